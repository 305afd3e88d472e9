"""DAGs that people trigger with a form: the first task checks what was asked for, and answers what to type."""

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
    """The `conf` of a DAG run whose form asks for a pipeline first.

    Attributes:
        pipeline: one of those that the DAG names.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    pipeline: str


SELDOM = "Seldom needed"
"""A section of a form; all but the first one are folded."""

M = TypeVar("M", bound=BaseModel)
P = TypeVar("P", bound=PipelineConf)


class PipelinesOperator(BaseOperator):
    """A task of a DAG whose form asks for a pipeline.

    Args:
        pipelines: names that may be asked for.
        **kwargs: as BaseOperator takes them.
    """

    def __init__(self, *, pipelines: Sequence[str], **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self.pipelines = list(pipelines)


def names_of(pipelines: Sequence[Pipeline], verb: str) -> list[str]:
    """What a form offers.

    Args:
        pipelines: as a DAG file gives them.
        verb: the function that it calls, for the message.

    Raises:
        DeclarationError: none.
    """
    if not pipelines:
        raise DeclarationError(f"{verb}() without pipelines", next="name those that the form shall offer.")
    return list(dict.fromkeys(pipeline.name for pipeline in pipelines))


def pipeline_field(names: Sequence[str]) -> Param:
    """The form's first field."""
    told = "One of those that this DAG was made for."
    return Param(names[0], type="string", enum=list(names), title="Pipeline", description=told)


def text_field(title: str, description: str, default: str | None = None, **more: Any) -> Param:  # noqa: ANN401
    """A field that may stay empty; `more` are keywords of JSON Schema."""
    return Param(default, type=["null", "string"], title=title, description=description, **more)


def savepoint_field(pipeline: str, title: str, description: str, **more: Any) -> Param:  # noqa: ANN401
    """A savepoint's name. A text: what a list lacks, Airflow would refuse until it has parsed the DAG again."""
    return text_field(title, f"Its name, as tidemark savepoint list {pipeline} shows it. {description}", **more)


def number_field(title: str, description: str, **more: Any) -> Param:  # noqa: ANN401
    """A number of at least 1 that may stay empty."""
    return Param(None, type=["null", "integer"], minimum=1, title=title, description=description, **more)


def switch(title: str, description: str, **more: Any) -> Param:  # noqa: ANN401
    """A field that is off unless it is switched on. Without the null, Airflow's form would mark it as required."""
    return Param(False, type=["null", "boolean"], title=title, description=description, **more)


def parsed(model: type[M], conf: Mapping[str, object]) -> M:
    """The `conf` of a DAG run, validated. Airflow itself lets unknown keys pass; a null stands for a key left out.

    Raises:
        UsageError: an unknown key, or a value that does not fit; each is named.
    """
    given = {key: value for key, value in conf.items() if value is not None or key not in model.model_fields}
    try:
        return model.model_validate(given)
    except ValidationError as error:
        complaints = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        fields = sorted(model.model_fields, key=lambda name: model.model_fields[name].annotation is bool)
        raise UsageError(
            f"conf of the DAG run does not fit: {complaints}",
            next=f"trigger it again with {', '.join(fields)} only.",  # switches, which many forms inherit, last
        ) from error


def asked_for(model: type[P], context: Context, pipelines: Sequence[str]) -> P:
    """The form, checked: the same in every task of the DAG run. An API call may name any pipeline.

    Raises:
        UsageError: as `parsed`.
        NotFoundError: the form does not offer the pipeline.
    """
    conf = parsed(model, {**context["params"], **(context["dag_run"].conf or {})})
    if conf.pipeline not in pipelines:
        raise NotFoundError(f"this DAG has no pipeline {conf.pipeline!r}", next=f"name one of: {', '.join(pipelines)}.")
    return conf


@contextmanager
def answering() -> Iterator[None]:
    """Fails the task at once with our three lines, where the same words would meet the same answer; else it retries.

    A conflict is an answer here, as on the command line: a name is taken, somebody was first.
    """
    try:
        yield
    except (ConflictError, *HOPELESS) as error:
        raise AirflowFailException(str(error)) from None  # an answer, and the log would tell its cause once more
    except TidemarkError as error:
        raise as_airflow(error) from error
