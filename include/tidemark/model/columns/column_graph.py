"""Columns and their dependencies as a graph, in the words of OpenLineage's facet `columnLineage` (1-2-0).

A column depends on others *directly*, because their values make its value, or *indirectly*, because they decide which
records count: they group, filter, join or order them. Each dataset also has a node for its rows: all its columns depend
on it, and it depends on what decides whether there is a row at all.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidemark.errors import NotFoundError, UsageError

SOURCE, STATE, OUTPUT, SINK, PUBLICATION = "source", "state", "output", "sink", "publication"
"""Kinds of datasets."""
DIRECT, INDIRECT = "DIRECT", "INDIRECT"
IDENTITY, TRANSFORMATION, AGGREGATION = "IDENTITY", "TRANSFORMATION", "AGGREGATION"
"""Subtypes of direct dependencies: the same value, one computed from a record, one computed from several records."""
_RANK = (IDENTITY, TRANSFORMATION, AGGREGATION)
JOIN, GROUP_BY, FILTER, SORT, WINDOW, CONDITIONAL = "JOIN", "GROUP_BY", "FILTER", "SORT", "WINDOW", "CONDITIONAL"
"""Subtypes of indirect dependencies."""
ROWS = ""
"""The name of the node for the rows of a dataset, and the subtype of a dependency on one."""


@dataclass(frozen=True, slots=True, order=True)
class ColumnRef:
    """A column of a dataset, or with an empty name all rows of it."""

    kind: str
    dataset: str
    name: str

    @property
    def rows(self) -> "ColumnRef":
        """The node for the rows of its dataset."""
        return replace(self, name=ROWS)

    @property
    def short(self) -> str:
        """`aircraft.flights`: what people write, unless two datasets of different kinds have such a column."""
        return f"{self.dataset}.{self.name}"

    @property
    def full(self) -> str:
        """`state:aircraft.flights`."""
        return f"{self.kind}:{self.short}"


@dataclass(frozen=True, slots=True, order=True)
class Influence:
    """How one column influences another one.

    Attributes:
        type: `DIRECT` or `INDIRECT`.
        subtype: see the constants; empty for all that decides the rows.
        is_opaque: whether it only may: a function that does not declare its fields lies between the two.
    """

    type: str
    subtype: str
    is_opaque: bool = False

    def then(self, below: "Influence") -> "Influence":
        """Returns the influence through both: this one is nearer to the result, `below` nearer to the records.

        The indirect one that is nearest to the result decides; of direct ones the one that changes a value most.
        """
        opaque = self.is_opaque or below.is_opaque
        if self.type == INDIRECT:
            passes = self.subtype == ROWS and below.type == INDIRECT
            return replace(below if passes else self, is_opaque=opaque)
        if below.type == INDIRECT:
            return replace(below, is_opaque=opaque)
        return replace(max(self, below, key=lambda of: _RANK.index(of.subtype)), is_opaque=opaque)


@dataclass(frozen=True, slots=True)
class Dependency:
    """A column depends on another one."""

    on: ColumnRef
    influence: Influence


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDataset:
    """Records, state or rows that have columns.

    Attributes:
        kind: see the constants.
        name: of a source, a uid, an output, a sink or a publication.
        uid: the operator that writes it; empty for a source.
        place: of a publication and of a table where it is; otherwise empty.
        columns: for each column the expression that makes it; empty if it is a field as it is.
    """

    kind: str
    name: str
    uid: str
    place: str
    columns: Mapping[str, str]

    @property
    def refs(self) -> list[ColumnRef]:
        """Its columns."""
        return [ColumnRef(self.kind, self.name, column) for column in self.columns]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachedColumn:
    """A column that another one depends on, or that depends on it.

    Attributes:
        column: the column.
        distance: the number of steps from one dataset to the next.
        influences: every way in which one influences the other.
    """

    column: ColumnRef
    distance: int
    influences: tuple[Influence, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnGraph:
    """The columns of a pipeline.

    Attributes:
        datasets: each after those that it is made from.
        dependencies: of each column and each node for rows.
    """

    datasets: tuple[ColumnDataset, ...]
    dependencies: Mapping[ColumnRef, Sequence[Dependency]]

    def find(self, text: str) -> ColumnRef:
        """Returns the column that a person names: `aircraft.flights`, or `state:aircraft.flights`.

        Raises:
            NotFoundError: there is no such column.
            UsageError: several datasets have one of that name.
        """
        found = [ref for dataset in self.datasets for ref in dataset.refs if text in (ref.short, ref.full)]
        if not found:
            raise NotFoundError(f"no column {text!r}", next=self._advice(text))
        if len(found) > 1:
            names = ", ".join(ref.full for ref in found)
            raise UsageError(f"{text!r} names several columns", next=f"write one of: {names}.")
        return found[0]

    def names(self) -> dict[ColumnRef, str]:
        """Returns how a person names each column: the short name where it is the only one, else the full one."""
        refs = [ref for dataset in self.datasets for ref in dataset.refs]
        shorts = Counter(ref.short for ref in refs)
        return {ref: ref.full if shorts[ref.short] > 1 else ref.short for ref in refs}

    def upstream(self, column: ColumnRef) -> list[ReachedColumn]:
        """Returns the columns that a column, or with an empty name all rows of its dataset, depends on."""
        return self._reach(column, lambda at: self.dependencies.get(at, ()), lambda before, step: before.then(step))

    def downstream(self, column: ColumnRef) -> list[ReachedColumn]:
        """Returns the columns that depend on a column."""
        reverse: dict[ColumnRef, list[Dependency]] = {}
        for of, its in self.dependencies.items():
            for dependency in its:
                reverse.setdefault(dependency.on, []).append(Dependency(of, dependency.influence))
        return self._reach(column, lambda at: reverse.get(at, ()), lambda before, step: step.then(before))

    def _reach(
        self,
        start: ColumnRef,
        steps: Callable[[ColumnRef], Iterable[Dependency]],
        joined: Callable[[Influence, Influence], Influence],
    ) -> list[ReachedColumn]:
        """Walks from a column; steps inside a dataset add nothing to a distance, so they go first."""
        waiting: deque[tuple[ColumnRef, Influence | None, int]] = deque([(start, None, 0)])
        seen: dict[tuple[ColumnRef, Influence | None], int] = {}
        while waiting:
            at, before, distance = waiting.popleft()
            if (at, before) in seen:
                continue
            seen[at, before] = distance
            for step in steps(at):
                influence = step.influence if before is None else joined(before, step.influence)
                if (step.on.kind, step.on.dataset) == (at.kind, at.dataset):
                    waiting.appendleft((step.on, influence, distance))
                else:
                    waiting.append((step.on, influence, distance + 1))
        found: dict[ColumnRef, list[tuple[Influence, int]]] = {}
        for (at, reached), distance in seen.items():
            if reached is not None and at.name and at != start and reached.subtype:
                found.setdefault(at, []).append((reached, distance))
        order = {ref: n for n, ref in enumerate(ref for dataset in self.datasets for ref in dataset.refs)}
        return [
            ReachedColumn(
                column=at,
                distance=min(distance for _, distance in found[at]),
                influences=_certain(influence for influence, _ in found[at]),
            )
            for at in sorted(found, key=order.__getitem__)
        ]

    def _advice(self, text: str) -> str:
        """The columns of the dataset that a wrong name begins with, or the datasets."""
        asked = text.partition(":")[2] or text
        near = [d for d in self.datasets if asked == d.name or asked.startswith(f"{d.name}.")]
        if near:
            return f"name one of: {', '.join(ref.short for d in near for ref in d.refs)}."
        return f"name a column of {', '.join(dict.fromkeys(d.name for d in self.datasets))}, as in DATASET.COLUMN."


def _certain(influences: Iterable[Influence]) -> tuple[Influence, ...]:
    """Returns each influence once, direct ones first; one that is certain need not be named as possible, too."""
    found = set(influences)
    return tuple(sorted(one for one in found if not one.is_opaque or replace(one, is_opaque=False) not in found))
