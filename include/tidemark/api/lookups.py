"""How you name a checkpoint in Python: by number, `chk-17`, savepoint or time. Errors say what to type in Python."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Protocol

from tidemark.context import Context
from tidemark.coordinator.plans.initial_offsets import to_ms
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.errors import NotFoundError, ReleasedError
from tidemark.operations import reads
from tidemark.operations.savepoint_states.patch import source_of


class Named(Protocol):
    """A checkpoint or a savepoint that you have already."""

    @property
    def name(self) -> str:
        """`chk-17`, or the savepoint's name."""


At = int | str | datetime | Named
"""Which checkpoint: `17`, `"chk-17"`, a savepoint's name, a `CompletedCheckpoint` or `Savepoint`, or a time.

A time is an aware datetime. It names the newest checkpoint of the live timeline whose logical time is not after it."""


@contextmanager
def add_advice(advice: str) -> Iterator[None]:
    """An error of the block about a missing name ends with this advice; ReleasedError keeps its own.

    Raises:
        NotFoundError: the block raised one.
    """
    try:
        yield
    except ReleasedError:
        raise
    except NotFoundError as error:
        raise NotFoundError(error.what, safe=error.safe, next=advice) from None


def find_id(context: Context, pipeline: str, at: At | None) -> int | None:
    """The id of the checkpoint that `at` names; None for None.

    Raises:
        NotFoundError: no such savepoint, or no checkpoint as of the time.
        UsageError: the time has no zone.
    """
    with add_advice(".checkpoints() and .savepoints.list() list the names."):
        return reads.find_checkpoint_id(context, pipeline, _value(at))


def restore_request(at: At | RestoreRequest) -> RestoreRequest:
    """The request to begin at a checkpoint; a request stays as it is.

    Raises:
        UsageError: the time has no zone.
    """
    if isinstance(at, RestoreRequest):
        return at
    found = _value(at)
    if isinstance(found, datetime):
        return RestoreRequest(as_of_ms=to_ms(reads.checked_time(found)))
    return source_of(found) if isinstance(found, str) else RestoreRequest(checkpoint=found)


def _value(at: At | None) -> int | str | datetime | None:
    return at if at is None or isinstance(at, int | str | datetime) else at.name
