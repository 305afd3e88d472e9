"""Lineage of columns against what a changed record changes: nothing is missing, and for folds nothing is too much."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.column_cases import (
    OTHERS,
    PARTS,
    PIPELINE,
    SOURCES,
    Record,
    changed,
    contents,
    differences,
    observe,
    run,
)
from tidemark.model.columns import column_lineage
from tidemark.model.columns.column_graph import SOURCE, ColumnGraph
from tidemark.model.columns.column_lineage import draw_columns

Pairs = set[tuple[str, str]]
EXACT = ("state:shops", "state:countries", "state:hours", "sink:hourly", "state:big_shops")
"""Datasets without a function whose fields are not declared, and whose rows all records of the script reach."""


def graph() -> ColumnGraph:
    return draw_columns(PIPELINE.schemas(), PIPELINE.columns)


def computed(of: ColumnGraph) -> Pairs:
    """Every pair of a field of a record and a column that the graph leads to it."""
    return {
        (reached.column.short, ref.full)
        for dataset in of.datasets
        for ref in dataset.refs
        for reached in of.upstream(ref)
        if reached.column.kind == SOURCE
    }


@pytest.fixture(scope="module")
def observed() -> Pairs:
    """What every change of every field of a script shows."""
    return observe(PARTS)


def test_every_dependency_that_a_record_shows_is_in_the_lineage(observed: Pairs) -> None:
    assert observed, "the script shows something"
    assert observed - computed(graph()) == set()


def test_the_script_reaches_every_column(observed: Pairs) -> None:
    """Otherwise a column without any dependency would pass."""
    columns = {ref.full for d in graph().datasets if d.kind in ("state", "sink") for ref in d.refs}
    silent = {c for c in columns if c not in {column for _, column in observed}}
    assert silent <= {"state:all_small.all_records", "state:paid.join_side", "state:paid.join_position"}


@pytest.mark.parametrize("dataset", EXACT)
def test_the_lineage_of_folds_has_no_dependency_that_no_record_shows(observed: Pairs, dataset: str) -> None:
    of_dataset = {pair for pair in computed(graph()) if pair[1].startswith(f"{dataset}.")}
    assert of_dataset - observed == set()


FIELDS = st.sampled_from([*OTHERS])


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_no_change_of_any_record_shows_more(data: Any) -> None:
    """Random scripts: records of the script in any order, over any number of checkpoints."""
    records: list[Record] = data.draw(st.lists(st.sampled_from([r for part in PARTS for r in part]), max_size=12))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=2)))
    parts = [records[a:b] for a, b in zip([0, *cuts], [*cuts, len(records)], strict=True)]
    kind, field = data.draw(FIELDS)
    places = [(p, n) for p, part in enumerate(parts) for n, record in enumerate(part) if isinstance(record, kind)]
    if not places:
        return
    p, n = data.draw(st.sampled_from(places))
    other = [list(part) for part in parts]
    other[p][n] = changed(other[p][n], field, data.draw(st.sampled_from(OTHERS[kind, field])))
    found = differences(contents(run(parts)), contents(run(other)))
    known = computed(graph())
    assert {(f"{SOURCES[kind]}.{field}", column) for column in found} - known == set()


def forget(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    """A bug: a part of the dependencies is left out."""

    def none(*_: Any, **__: Any) -> Iterable[Any]:
        return ()

    return lambda patch: patch.setattr(column_lineage._Drawing, name, none)


def without_rows(patch: pytest.MonkeyPatch) -> None:
    """A bug: columns do not depend on what decides their rows."""
    kept = column_lineage._Drawing._dataset

    def dataset(self: Any, kind: str, name: str, uid: str, columns: Any, *, place: str = "") -> Any:
        return (
            kept(self, kind, name, uid, {}, place=place)
            if kind == "sink"
            else kept(self, kind, name, uid, columns, place=place)
        )

    patch.setattr(column_lineage._Drawing, "_dataset", dataset)


BUGS = {
    "what filters, groups and orders a fold": forget("_deciding"),
    "conditions of functions": forget("_where"),
    "expiry": forget("_expiry"),
    "rows of inputs": forget("_rows_of"),
    "event times": forget("_times"),
    "what functions read": forget("_read"),
    "a sink without columns": without_rows,
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str, observed: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[bug](monkeypatch)
    assert observed - computed(graph()), f"without {bug} the lineage looks complete"
