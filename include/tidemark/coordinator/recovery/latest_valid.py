"""Stepping back to the newest checkpoint that is whole: loudly, and no further than was asked for (I4).

Flink stops at an unreadable retained checkpoint and never steps back by itself, because side effects may have been
committed since (FLINK-22502). Here it is asked for, and what sinks got meanwhile is known by offset.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tidemark.errors import DamagedError, NotFoundError
from tidemark.model.checkpoint.manifest import Checkpoint

MAX_FALLBACK = 3
"""Checkpoints that may be passed over where nobody said how many."""


@dataclass(frozen=True, slots=True)
class SteppedBack:
    """Where a step back ends.

    Attributes:
        checkpoint: the newest one that is whole.
        passed_over: the newer ones, newest first, each with what is wrong with it.
    """

    checkpoint: Checkpoint
    passed_over: tuple[tuple[Checkpoint, DamagedError], ...]


def newest_whole(
    chain: Iterable[Checkpoint], verify: Callable[[Checkpoint], None], max_fallback: int = MAX_FALLBACK
) -> SteppedBack:
    """The newest checkpoint that is whole.

    Args:
        chain: checkpoints, newest first.
        verify: raises DamagedError for one that is not whole.
        max_fallback: how many may be passed over.

    Raises:
        NotFoundError: there is no checkpoint at all.
        DamagedError: more than that are damaged; names each of them.
        CorruptObjectError: a manifest on the way is damaged, so that nobody knows what comes before it.
    """
    damaged: list[tuple[Checkpoint, DamagedError]] = []
    for checkpoint in chain:
        try:
            verify(checkpoint)
        except DamagedError as error:
            damaged.append((checkpoint, error))
            if len(damaged) > max_fallback:
                raise _too_far(damaged, max_fallback) from error
        else:
            return SteppedBack(checkpoint, tuple(damaged))
    if damaged:
        raise _too_far(damaged, max_fallback)
    raise NotFoundError("there is no checkpoint yet", next="run the pipeline: there is nothing to go back from.")


def _too_far(damaged: list[tuple[Checkpoint, DamagedError]], max_fallback: int) -> DamagedError:
    names = ", ".join(checkpoint.plan.name for checkpoint, _ in damaged)
    bound = f", and at most {max_fallback} may be passed over" if len(damaged) > max_fallback else ""
    return DamagedError(
        f"no whole checkpoint: {names} are damaged{bound}; the newest: {damaged[0][1].what}",
        safe="nothing was started or changed.",
        next=f"tidemark verify {damaged[0][0].plan.pipeline}    (names all bad files and what they break).",
    )
