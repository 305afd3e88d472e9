"""Finds the files whose windows have all closed, by the bounds in the statistics of a commit.

A reader filters rows of closed windows, and a compaction drops them, so neither has to read a file that has no others.
Without this, a state would cost what its history does until a compaction comes as far down as the oldest rows. A row of
a session may be part of one that is still open whatever its own end is, so files whose spans overlap count as one.
"""

import json
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from tidemark.model.checkpoint.segments import LiveFile
from tidemark.model.schema.event_windows import END, START, StoredWindow, to_ms
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.model.state.compaction import Group

_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


def open_groups(schema: OperatorSchema, groups: Sequence[Group], frontier: int | None) -> list[Group]:
    """Returns the groups with only the files that may have rows of open windows; groups without any are left out.

    Args:
        schema: the stored schema.
        groups: all groups of a handle, oldest first.
        frontier: the frontier of the checkpoint that has the handle, in ms; None = no window has closed.
    """
    return _without(groups, _closed_files(schema.window, groups, frontier))


def closed_groups(schema: OperatorSchema, groups: Sequence[Group], frontier: int | None) -> list[Group]:
    """Returns the groups whose windows have all closed; see `open_groups`."""
    closed = _closed_files(schema.window, groups, frontier)
    return [group for group in groups if closed.issuperset(group.files)]


def _without(groups: Iterable[Group], files: Collection[LiveFile]) -> list[Group]:
    """Returns groups without some files; groups with no others are left out."""
    cut = (replace(group, files=tuple(f for f in group.files if f not in files)) for group in groups)
    return [group for group in cut if group.files]


def _closed_files(window: StoredWindow | None, groups: Sequence[Group], frontier: int | None) -> frozenset[LiveFile]:
    if window is None or frontier is None:
        return frozenset()
    files = [file for group in groups for file in group.files]
    if window.is_merged:
        return frozenset(_closed_sessions(files, frontier))
    return frozenset(file for file in files if _is_closed(window, file, frontier))


def _is_closed(window: StoredWindow, file: LiveFile, frontier: int) -> bool:
    last = _bounds(file.file.stats, "maxValues")
    # The last window of a row closes no sooner if one of its bounds is later.
    return last is not None and window.closes((to_ms(last[0]), to_ms(last[1]))) <= frontier


def _closed_sessions(files: Sequence[LiveFile], frontier: int) -> Iterator[LiveFile]:
    """Yields the files that no chain of overlapping rows can connect with a row that ends after the frontier."""
    spans = sorted(((*_span(file), file) for file in files), key=lambda s: s[:2])
    together: list[LiveFile] = []
    end = -math.inf
    for start, its_end, file in spans:
        if start >= end:
            yield from together if end <= frontier else ()
            together = []
        together.append(file)
        end = max(end, its_end)
    yield from together if end <= frontier else ()


def _span(file: LiveFile) -> tuple[float, float]:
    """The least start and the greatest end of the rows of a file; all of time if its statistics lack one of them."""
    first, last = (_bounds(file.file.stats, which) for which in ("minValues", "maxValues"))
    return (-math.inf, math.inf) if first is None or last is None else (to_ms(first[0]), to_ms(last[1]))


def least_end(stats: str) -> datetime | None:
    """Returns the least end of the rows of a file; None if its statistics lack it."""
    found = _bounds(stats, "minValues")
    return None if found is None else found[1]


def _bounds(stats: str, which: str) -> tuple[datetime, datetime] | None:
    try:
        found = json.loads(stats)[which]
        start, end = (datetime.strptime(found[name], _TIME).replace(tzinfo=UTC) for name in (START, END))
    except (ValueError, LookupError, TypeError):
        return None
    return start, end
