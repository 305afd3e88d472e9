"""The state of one operator as a manifest names it: segments and handles of its tables, and its operator state."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from tidemark.errors import UsageError
from tidemark.model.checkpoint.codec import ADDED
from tidemark.model.core.types import FieldType


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A Parquet file of an attempt: path relative to the table, size in bytes, rows according to its footer."""

    path: str
    size: int
    rows: int
    stats: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFile:
    """A file in a version of a table, with its partition values."""

    file: WrittenFile
    level: int
    checkpoint: int

    @property
    def path(self) -> str:
        """Relative to the table."""
        return self.file.path


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Segment:
    """Rows of one Delta table at one version whose `_checkpoint` lies in `(after, through]`.

    Attributes:
        path: the table, relative to the warehouse and `/`-separated, so that you can move a warehouse.
        version: the Delta version to open.
        after: checkpoint id before the first one in the segment (exclusive); 0 is the beginning of time.
        through: last checkpoint id in the segment (inclusive).
        rows: rows in the range, as committed.
        bytes: bytes of the live files of the range, as committed.
        files: number of those files.
    """

    after: int
    through: int
    path: str
    version: int
    rows: int
    bytes: int
    files: int

    def __post_init__(self) -> None:
        if not 0 <= self.after < self.through:
            raise UsageError(f"not a segment: ({self.after}, {self.through}]", next="give 0 <= after < through.")

    def difference(self, files: Iterable[tuple[int, int]]) -> str | None:
        """Returns how files differ from the committed ones; None if they do not.

        Args:
            files: bytes and rows of each file of the version in the range.
        """
        found = list(files)
        held = (len(found), sum(size for size, _ in found), sum(rows for _, rows in found))
        if held == (self.files, self.bytes, self.rows):
            return None
        return (
            f"it has {held[0]} files of {held[2]} rows and {held[1]} bytes in ({self.after}, {self.through}];"
            f" the manifest names {self.files}, {self.rows} and {self.bytes}"
        )


@dataclass(frozen=True, slots=True)
class StateHandle:
    """The gap-free list of segments that is an operator's state; empty = no state yet.

    Readers take the union of the segments, each cut to its range, and merge by key in the order of
    `_checkpoint`, never of level.

    Attributes:
        segments: oldest first.
        expired: of a sink or of dead letters: rows of this checkpoint and of earlier ones are hidden, whether a
            compaction has dropped them yet or not (adr/0041).
    """

    segments: tuple[Segment, ...] = ()
    expired: int = field(default=0, kw_only=True, metadata=ADDED)

    def __post_init__(self) -> None:
        for lower, upper in zip(self.segments, self.segments[1:], strict=False):
            if lower.through != upper.after:
                raise UsageError(
                    f"gap in a state handle: ({lower.after}, {lower.through}] then ({upper.after}, {upper.through}]",
                    next="this is a defect of Tidemark: report it.",
                )

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.segments)

    def __bool__(self) -> bool:
        return bool(self.segments)

    @property
    def after(self) -> int:
        """Checkpoint id before the first one in the handle."""
        return self.segments[0].after if self.segments else 0

    @property
    def through(self) -> int:
        """Last checkpoint id that wrote rows; checkpoints without rows do not change it."""
        return self.segments[-1].through if self.segments else 0

    @property
    def rows(self) -> int:
        """Stored rows: at least the number of keys, more if runs are not yet compacted."""
        return sum(s.rows for s in self.segments)

    @property
    def bytes(self) -> int:
        """Full bytes of the state."""
        return sum(s.bytes for s in self.segments)

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of its tables, which contain `runs` and `base` of one stored schema."""
        return tuple(dict.fromkeys(s.path.rpartition("/")[0] for s in self.segments))

    def segment_of(self, path: str) -> Segment | None:
        """Returns the segment in table `path`, if any; at most one: the newest."""
        return next((s for s in reversed(self.segments) if s.path == path), None)

    def with_segments(self, segments: Iterable[Segment]) -> "StateHandle":
        """Returns a handle of other segments that hides the same rows."""
        return replace(self, segments=tuple(segments))

    def has_prefix(self, other: "StateHandle") -> bool:
        """Whether `other` covers exactly a leading part of this handle's range, ending at one of its runs.

        A compaction of `other` may be adopted under this condition: the compacted range begins where this one begins,
        and ends inside it or at its end.
        """
        return bool(other) and bool(self) and other.after == self.after and other.through <= self.through


BASE = "base"
"""Name of the table that compactions commit to: `<folder>/base` of state, `<table>~base` of rows (`row_tables`)."""


def is_base(path: str) -> bool:
    """Whether only compactions commit to a table, so that its files hold rows of several checkpoints."""
    parts = path.split("/")
    return parts[-1] == BASE if parts[1:2] == ["state"] else parts[-1].endswith(f"~{BASE}")


_FORM = "v2"


def current_rows_path(path: str) -> str:
    """Returns where a sink, or dead letters, are written now: their columns differ from those of 0.1 (adr/0045)."""
    return f"{path}~{_FORM}"


def is_first_form(path: str) -> bool:
    """Whether a table of rows has the columns of 0.1, which had no paths of emitted records."""
    return _FORM not in path.rpartition("/")[2].split("~")[1:2]


def owner_of(path: str) -> str:
    """Returns whose compactions commit to a table: the uid of state, `<name>~<kind>` of rows (`row_tables`)."""
    _, kind, name, *_ = path.split("/")
    return name if kind == "state" else f"{name}~{kind}"


LOG = "_delta_log"
"""The folder of a table's log."""
TORN = ".torn"
"""Suffix of a commit that a power cut has torn and a writer has set aside; it is deleted with its neighbours."""
_NUMBERED = re.compile(r"(\d{20})\.(json|checkpoint\.parquet|crc|json\.torn)", re.ASCII)


def log_version(name: str) -> int | None:
    """Returns the version that a file of a log belongs to; None for `_last_checkpoint` and unknown files."""
    found = _NUMBERED.fullmatch(name)
    return None if found is None else int(found[1])


# Operator state as a value: the small lists of an operator that belong to no key.
#
# A plan contains the lists as its parent left them, an ack the lists after the checkpoint. In between, each parallel
# task gets its part (`OperatorState.part_of_task`), and the parts that the tasks leave are combined again
# (`OperatorState.join_parts`).
BOUND = 64 * 1024
"""Maximum bytes of an operator's lists as JSON; they are stored in the manifest, and every task gets them."""


class Redistribution(Enum):
    """The part of a list that a parallel task gets (Flink's OperatorStateHandle.Mode).

    SPLIT: a contiguous slice; sizes differ by at most one element, and the first tasks have the longer ones. UNION: the
    whole list.
    """

    SPLIT = "split"
    UNION = "union"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorList:
    """One list.

    Attributes:
        name: name of the field.
        mode: how the list is distributed.
        element: type of its elements.
        elements: the elements in JSON form (`model.core.json_values`), in order.
        was: the previous name of a renamed field; only in declarations, never in manifests.
    """

    name: str
    mode: Redistribution
    element: FieldType
    elements: tuple[Any, ...] = ()
    was: str = field(default="", compare=False, metadata=ADDED)

    @property
    def size(self) -> int:
        """Bytes of its elements as JSON."""
        return sum(map(json_size, self.elements))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The part of one list that one task leaves.

    Attributes:
        elements: for a split list, all current elements of the task; for a union list, the elements that it appended
            since it last cleared the list.
        cleared: whether the task cleared a union list; unused for a split list.
    """

    elements: tuple[Any, ...]
    cleared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorState:
    """All lists of an operator, in order of declaration; false if it declares none.

    Attributes:
        lists: the lists with their elements.
        tasks: number of parallel tasks that left them; 0 = none has run yet.
    """

    lists: tuple[OperatorList, ...] = ()
    tasks: int = 0

    def __bool__(self) -> bool:
        return bool(self.lists)

    def part_of_task(self, task: int, tasks: int) -> dict[str, tuple[Any, ...]]:
        """Returns the part of each list that a task gets.

        Args:
            task: number of the task, from 0.
            tasks: number of tasks.
        """
        return {x.name: x.elements if x.mode is Redistribution.UNION else _slice(x, task, tasks) for x in self.lists}

    def join_parts(self, left: Mapping[int, Mapping[str, Part]], tasks: int) -> "OperatorState":
        """Combines the parts that the tasks leave.

        A split list is the concatenation of all tasks' lists in the order of tasks. A union list is the old list, or
        nothing if any task cleared it, followed by the elements that the tasks appended, in the order of tasks.

        Args:
            left: per task the lists that it changed; every other task left its part unchanged.
            tasks: number of tasks.
        """
        return OperatorState(lists=tuple(_joined(x, left, tasks) for x in self.lists), tasks=tasks)


def task_of(group: int, groups: int, tasks: int) -> int:
    """Returns the task of a key group: contiguous ranges, as in Flink."""
    return group * tasks // groups


def json_size(body: Any) -> int:
    """Returns the size of a JSON value in bytes."""
    return len(json.dumps(body, ensure_ascii=False).encode())


def _slice(x: OperatorList, task: int, tasks: int) -> tuple[Any, ...]:
    least, longer = divmod(len(x.elements), tasks)
    start = task * least + min(task, longer)
    return x.elements[start : start + least + (task < longer)]


def _joined(x: OperatorList, left: Mapping[int, Mapping[str, Part]], tasks: int) -> OperatorList:
    parts = {task: lists[x.name] for task, lists in sorted(left.items()) if x.name in lists}
    if x.mode is Redistribution.UNION:
        old = () if any(p.cleared for p in parts.values()) else x.elements
        return replace(x, elements=(*old, *(e for p in parts.values() for e in p.elements)))
    whole = (parts[t].elements if t in parts else _slice(x, t, tasks) for t in range(tasks))
    return replace(x, elements=tuple(e for part in whole for e in part))
