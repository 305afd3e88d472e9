"""DAGs that people trigger with a form: the first task checks what was asked for, and answers what to type."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from airflow.sdk.exceptions import AirflowFailException
from pydantic import BaseModel, ValidationError

from tidemark.airflow.retrying import HOPELESS, as_airflow
from tidemark.errors import ConflictError, NotFoundError, TidemarkError, UsageError

M = TypeVar("M", bound=BaseModel)


def parsed(model: type[M], conf: Mapping[str, object]) -> M:
    """The `conf` of a DAG run, validated. Airflow itself lets unknown keys pass.

    Raises:
        UsageError: an unknown key, or a value that does not fit; each is named.
    """
    try:
        return model.model_validate(dict(conf))
    except ValidationError as error:
        complaints = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise UsageError(
            f"conf of the DAG run does not fit: {complaints}",
            next=f"trigger it again with {', '.join(model.model_fields)} only.",
        ) from error


def offered(pipeline: str, pipelines: Sequence[str]) -> str:
    """`pipeline`, if the DAG's form offers it; an API call may name any.

    Raises:
        NotFoundError: it does not.
    """
    if pipeline not in pipelines:
        raise NotFoundError(f"this DAG has no pipeline {pipeline!r}", next=f"name one of: {', '.join(pipelines)}.")
    return pipeline


@contextmanager
def answering() -> Iterator[None]:
    """Fails the task at once with our three lines, where the same words would meet the same answer; else it retries.

    A conflict is an answer here, as on the command line: a name is taken, somebody was first.
    """
    try:
        yield
    except (ConflictError, *HOPELESS) as error:
        raise AirflowFailException(str(error)) from error
    except TidemarkError as error:
        raise as_airflow(error) from error
