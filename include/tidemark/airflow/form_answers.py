"""Trigger forms of DAGs: their fields, their validation, and errors that say what to do next."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from airflow.sdk import BaseOperator, Context, Param
from airflow.sdk.exceptions import AirflowFailException
from pydantic import BaseModel, ConfigDict, ValidationError

from tidemark.airflow.retries import HOPELESS, as_airflow
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import ConflictError, DeclarationError, NotFoundError, TidemarkError, UsageError


class PipelineConf(BaseModel):
    """The `conf` of a DAG run whose form has a pipeline as its first field.

    Attributes:
        pipeline: one of the DAG's pipelines.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    pipeline: str


RARE = "Rarely needed"
"""A section of a form. Airflow folds all sections except the first."""

M = TypeVar("M", bound=BaseModel)
P = TypeVar("P", bound=PipelineConf)


class PipelinesOperator(BaseOperator):
    """A task of a DAG whose form has a field for the pipeline.

    Args:
        pipelines: names of the pipelines that the form offers.
        **kwargs: passed to BaseOperator.
    """

    def __init__(self, *, pipelines: Sequence[str], **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self.pipelines = list(pipelines)


def names_of(pipelines: Sequence[Pipeline], verb: str) -> list[str]:
    """Returns the names of the pipelines that a form offers.

    Args:
        pipelines: the argument of the DAG function.
        verb: the DAG function's name, for the message.

    Raises:
        DeclarationError: `pipelines` is empty.
    """
    if not pipelines:
        raise DeclarationError(f"{verb}() without pipelines", next="pass the pipelines that the form should offer.")
    return list(dict.fromkeys(pipeline.name for pipeline in pipelines))


def pipeline_field(names: Sequence[str]) -> Param:
    """Returns the form's first field."""
    text = "One of this DAG's pipelines."
    return Param(names[0], type="string", enum=list(names), title="Pipeline", description=text)


def text_field(title: str, description: str, default: str | None = None, **more: Any) -> Param:  # noqa: ANN401
    """Returns a text field that may stay empty; `more` are keywords of JSON Schema."""
    return Param(default, type=["null", "string"], title=title, description=description, **more)


def savepoint_field(pipeline: str, title: str, description: str, **more: Any) -> Param:  # noqa: ANN401
    """Returns a field for a savepoint's name. It is free text, because Airflow updates a list only when it parses."""
    return text_field(
        title, f"The savepoint's name; tidemark savepoint list {pipeline} shows all names. {description}", **more
    )


def number_field(title: str, description: str, **more: Any) -> Param:  # noqa: ANN401
    """Returns a field for a number of at least 1 that may stay empty."""
    return Param(None, type=["null", "integer"], minimum=1, title=title, description=description, **more)


def switch(title: str, description: str, **more: Any) -> Param:  # noqa: ANN401
    """Returns a switch that is off by default. It allows null, or Airflow's form would mark it as required."""
    return Param(False, type=["null", "boolean"], title=title, description=description, **more)


def validate_conf(model: type[M], conf: Mapping[str, object]) -> M:
    """Validates the `conf` of a DAG run. Airflow itself accepts unknown keys; a null counts as a missing key.

    Raises:
        UsageError: there are unknown keys or invalid values; the message lists them all.
    """
    given = {key: value for key, value in conf.items() if value is not None or key not in model.model_fields}
    try:
        return model.model_validate(given)
    except ValidationError as error:
        complaints = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        fields = sorted(model.model_fields, key=lambda name: model.model_fields[name].annotation is bool)
        raise UsageError(
            f"the DAG run's conf is invalid: {complaints}",
            next=f"trigger it again with {', '.join(fields)} only.",  # switches, which many forms inherit, last
        ) from error


def read_conf(model: type[P], context: Context, pipelines: Sequence[str]) -> P:
    """Returns the validated form, which is the same in every task of the DAG run. An API call may name any pipeline.

    Raises:
        UsageError: as for `validate_conf`.
        NotFoundError: the form does not offer the pipeline.
    """
    conf = validate_conf(model, {**context["params"], **(context["dag_run"].conf or {})})
    if conf.pipeline not in pipelines:
        raise NotFoundError(f"this DAG has no pipeline {conf.pipeline!r}", next=f"name one of: {', '.join(pipelines)}.")
    return conf


@contextmanager
def fail_on_refusal() -> Iterator[None]:
    """Fails the task at once with Tidemark's three-line error if a retry would fail the same way; otherwise it retries.

    A conflict fails at once too, as on the command line: a name is taken, or another process was first.
    """
    try:
        yield
    except (ConflictError, *HOPELESS) as error:
        raise AirflowFailException(str(error)) from None  # the message is complete; the log would repeat its cause
    except TidemarkError as error:
        raise as_airflow(error) from error
