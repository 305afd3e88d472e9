"""The graph of columns: names, both directions, and what a chain of dependencies amounts to."""

import pytest

from tidemark.errors import NotFoundError, UsageError
from tidemark.model.columns.column_graph import ColumnDataset, ColumnGraph, ColumnRef, Dependency, Influence

AS_IS, SUM = Influence("DIRECT", "IDENTITY"), Influence("DIRECT", "AGGREGATION")
COMPUTED, MAYBE = Influence("DIRECT", "TRANSFORMATION"), Influence("DIRECT", "TRANSFORMATION", is_opaque=True)
KEY, FILTER, ROWS = Influence("INDIRECT", "GROUP_BY"), Influence("INDIRECT", "FILTER"), Influence("INDIRECT", "")


def ref(text: str) -> ColumnRef:
    """`state:a.b`; `state:a.` for its rows."""
    kind, _, name = text.partition(":")
    dataset, _, column = name.partition(".")
    return ColumnRef(kind, dataset, column)


def dataset(text: str, *columns: str) -> ColumnDataset:
    kind, _, name = text.partition(":")
    return ColumnDataset(kind=kind, name=name, uid="", place="", columns=dict.fromkeys(columns, ""))


def graph(*edges: tuple[str, str, Influence]) -> ColumnGraph:
    """`a` is emitted from `r`, `b` folds it; both have a sink or a state of the same name."""
    found: dict[ColumnRef, list[Dependency]] = {}
    for of, on, influence in edges:
        found.setdefault(ref(of), []).append(Dependency(ref(on), influence))
    datasets = (dataset("source:r", "x", "y"), dataset("output:a", "n", "m"), dataset("state:a", "n"))
    return ColumnGraph(datasets=(*datasets, dataset("state:b", "k", "s")), dependencies=found)


CHAIN = graph(
    ("output:a.n", "source:r.x", COMPUTED),
    ("output:a.n", "output:a.", ROWS),
    ("output:a.", "source:r.y", FILTER),
    ("state:b.s", "output:a.n", SUM),
    ("state:b.s", "state:b.", ROWS),
    ("state:b.k", "state:b.", ROWS),
    ("state:b.", "output:a.m", KEY),
    ("state:b.", "output:a.", ROWS),
    ("output:a.m", "source:r.y", MAYBE),
    ("output:a.m", "output:a.", ROWS),
)


def links(found: ColumnGraph, column: str, *, down: bool = False) -> dict[str, tuple[int, list[str]]]:
    walked = found.downstream(ref(column)) if down else found.upstream(ref(column))
    words = lambda of: f"{'maybe ' if of.is_opaque else ''}{of.subtype}"  # noqa: E731
    return {one.column.full: (one.distance, [*map(words, one.influences)]) for one in walked}


def test_a_chain_amounts_to_its_strongest_step_and_the_first_that_decides() -> None:
    assert links(CHAIN, "state:b.s") == {
        "source:r.x": (2, ["AGGREGATION"]),
        "source:r.y": (2, ["FILTER", "GROUP_BY"]),
        "output:a.n": (1, ["AGGREGATION"]),
        "output:a.m": (1, ["GROUP_BY"]),
    }


def test_both_directions_say_the_same() -> None:
    refs = [one.full for d in CHAIN.datasets for one in d.refs]
    up = {(a, b, tuple(of)) for a in refs for b, (_, of) in links(CHAIN, a).items()}
    down = {(a, b, tuple(of)) for b in refs for a, (_, of) in links(CHAIN, b, down=True).items()}
    assert up == down and len(up) > 8


def test_a_column_without_a_direct_source_depends_on_what_decides_its_rows() -> None:
    assert links(CHAIN, "state:b.k") == {
        "source:r.y": (2, ["FILTER", "GROUP_BY"]),
        "output:a.m": (1, ["GROUP_BY"]),
    }


def test_a_short_name_is_enough_where_it_is_the_only_one() -> None:
    assert CHAIN.find("b.s") == CHAIN.find("state:b.s") == ref("state:b.s")
    assert CHAIN.names()[ref("state:b.s")] == "b.s"
    assert CHAIN.names()[ref("state:a.n")] == "state:a.n"
    with pytest.raises(UsageError, match=r"output:a\.n, state:a\.n"):
        CHAIN.find("a.n")
    with pytest.raises(NotFoundError, match=r"b\.k, b\.s"):
        CHAIN.find("b.t")
    with pytest.raises(NotFoundError, match=r"r, a, b"):
        CHAIN.find("c.t")


def test_what_is_certain_is_not_possible_too() -> None:
    found = graph(("state:b.s", "source:r.x", MAYBE), ("state:b.s", "source:r.x", COMPUTED))
    assert links(found, "state:b.s") == {"source:r.x": (1, ["TRANSFORMATION"])}
