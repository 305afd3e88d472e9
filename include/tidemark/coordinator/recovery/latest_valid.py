"""Falls back to the newest checkpoint that is whole: only on request, visibly, and no further than requested.

Flink stops at an unreadable retained checkpoint and never falls back by itself, because side effects may have been
committed since (FLINK-22502). Here you request it, and the offsets that sinks received in the meantime are known.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tidemark.errors import DamagedError, NotFoundError
from tidemark.model.checkpoint.manifest import Checkpoint

MAX_FALLBACK = 3
"""The default number of checkpoints that may be passed over."""


@dataclass(frozen=True, slots=True)
class SteppedBack:
    """The checkpoint that a fallback has reached.

    Attributes:
        checkpoint: the newest checkpoint that is whole.
        passed_over: the newer ones, newest first, each with its damage.
    """

    checkpoint: Checkpoint
    passed_over: tuple[tuple[Checkpoint, DamagedError], ...]


def latest_valid(
    chain: Iterable[Checkpoint], verify: Callable[[Checkpoint], None], max_fallback: int = MAX_FALLBACK
) -> SteppedBack:
    """Finds the newest checkpoint that is whole.

    Args:
        chain: checkpoints, newest first.
        verify: raises DamagedError for a checkpoint that is not whole.
        max_fallback: the most checkpoints that may be passed over.

    Raises:
        NotFoundError: there is no checkpoint at all.
        DamagedError: more checkpoints than that are damaged; lists each of them.
        CorruptObjectError: a manifest on the way is damaged, so the checkpoints before it are unknown.
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
    raise NotFoundError("there is no checkpoint yet", next="run the pipeline: there is nothing to fall back to.")


def _too_far(damaged: list[tuple[Checkpoint, DamagedError]], max_fallback: int) -> DamagedError:
    names = ", ".join(checkpoint.plan.name for checkpoint, _ in damaged)
    bound = f", and at most {max_fallback} may be passed over" if len(damaged) > max_fallback else ""
    return DamagedError(
        f"no whole checkpoint: {names} are damaged{bound}; the newest: {damaged[0][1].what}",
        safe="nothing was started or changed.",
        next=f"tidemark verify {damaged[0][0].plan.pipeline}    (lists damaged files and broken restore points).",
    )
