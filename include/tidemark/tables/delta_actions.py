"""The actions of one commit as a value: what design section 5 asks of every transaction; no input, no output."""

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.errors import StoreError
from tidemark.ports import CommitRequest, LiveFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """One transaction; afterwards exactly `live` is left in the table."""

    add: tuple[LiveFile, ...]
    remove: tuple[LiveFile, ...]
    live: tuple[LiveFile, ...]


def actions(request: CommitRequest, live: Sequence[LiveFile], parent: Sequence[LiveFile]) -> Actions:
    """Adds ours, removes what is neither ours nor the parent segment's, adds back what a foreign writer removed.

    What goes are orphans of abandoned attempts, rows below the parent's range (already compacted), files that the
    request drops, and whatever a foreign writer added.

    Args:
        request: what to commit.
        live: files of the table's newest version.
        parent: files of the parent segment, at its version and in its range.

    Raises:
        StoreError: rows do not add up, or a file to drop is not the parent's.
    """
    held = sum(f.rows for f in request.files)
    if held != request.rows:
        raise _refused(request, f"its files hold {held} rows, the write reported {request.rows}")
    unknown = set(request.drop) - {f.path for f in parent}
    if unknown:
        raise _refused(request, f"to be replaced, but not in the parent segment: {', '.join(sorted(unknown))}")
    ours = [LiveFile(file=f, level=request.level, checkpoint=request.checkpoint) for f in request.files]
    ours += request.replacing
    kept = [f for f in parent if f.path not in request.drop]
    wanted = {f.path for f in (*kept, *ours)}
    present = {f.path for f in live}
    return Actions(
        add=tuple(f for f in (*ours, *kept) if f.path not in present),
        remove=tuple(f for f in live if f.path not in wanted),
        live=(*kept, *ours),
    )


def _refused(request: CommitRequest, why: str) -> StoreError:
    return StoreError(
        f"commit refused: {request.table}: {why}",
        safe="every completed checkpoint is intact; nothing was committed.",
        next="run the pipeline again: it writes the files anew under another attempt.",
    )
