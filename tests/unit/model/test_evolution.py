"""Evolution cell by cell: the tables of docs/how-to/evolve-state.md say what the code answers."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.schema_changes import (
    CHANGES,
    FOLD_KINDS,
    PROCESS_KINDS,
    TYPES,
    alone,
    decimal,
    every,
    field,
    fold,
    process,
)
from tidemark.model.portable_sql.dialects import DUCKDB, SPARK
from tidemark.model.schema.operator_schema import Layout, OperatorSchema, run_columns
from tidemark.model.state.evolution import compare_schemas, evolve_schema, shares_tables
from tidemark.sql.resolve import columns, counts, mapped_sql, table_columns

PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/evolve-state.md"
FOLDER = "p/state/u/t1-1"
RUNS = f"{FOLDER}/runs"
KINDS = (*FOLD_KINDS, *PROCESS_KINDS)


def _table(first: str) -> dict[str, list[str]]:
    """Rows of the page's table whose first heading is this, by their first cell; the heading is under an empty name."""
    lines = PAGE.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(f"| {first} |"))
    rows = [lines[at], *(line for line in _until_gap(lines[at + 2 :]))]
    cells = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]
    return {"": cells[0][1:], **{row[0]: row[1:] for row in cells[1:]}}


def _until_gap(lines: list[str]) -> list[str]:
    return lines[: next(i for i, line in enumerate(lines) if not line.startswith("|"))]


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_answered_as_the_page_says(name: str) -> None:
    change = CHANGES[name]
    answer, tables, _ = _table("change")[name]
    found = compare_schemas(change.old, change.new)
    assert answer == ("refused" if found.misfits else "yes")
    if not found.misfits:
        assert tables == ("the same" if shares_tables(change.old, change.new) else "new")
    assert all(m.uid == "u" and m.what and m.remedy for m in found.misfits)


def test_the_page_has_a_row_for_every_change_and_no_other() -> None:
    assert set(_table("change")) - {""} == set(CHANGES)


def _pairs(first: str, names: tuple[str, ...]) -> list[tuple[str, str]]:
    table = _table(first)
    assert (tuple(table[""]), tuple(table)[1:]) == (names, names)
    return [(old, new) for old in names for new in names]


@pytest.mark.parametrize(("old", "new"), _pairs("type", tuple(TYPES)))
@pytest.mark.parametrize("kind", ["value", "map", "list_of_values", "latest"])
def test_a_type_becomes_another_as_the_page_says(kind: str, old: str, new: str) -> None:
    cell = _table("type")[old][list(TYPES).index(new)]
    found = compare_schemas(alone(kind, TYPES[old]), alone(kind, TYPES[new]))
    assert cell == ("same" if old == new else "–" if found.misfits else "yes")


@pytest.mark.parametrize(("old", "new"), _pairs("kind", KINDS))
def test_a_kind_becomes_another_as_the_page_says(old: str, new: str) -> None:
    found = compare_schemas(alone(old), alone(new))
    assert _table("kind")[old][KINDS.index(new)] == ("–" if found.misfits else "same")


def test_a_refused_field_is_named_with_old_new_and_remedy() -> None:
    old = fold(field("sum", "total"), field("latest", "place"))
    ttl = every(1, clock="logical_time")
    new = fold(field("max", "total"), field("latest", "place", ignore_nulls=True, ttl=ttl), clock="logical_time")
    assert [str(m) for m in compare_schemas(old, new).misfits] == [
        "u.clock: event_time became logical_time"
        " (declare the ttl with clock='event_time', or give the operator a new uid)",
        "u.total: sum('x') became max('x') (declare it under a new name)",
        "u.place: latest('x') with ignore_nulls=False became latest('x') with ignore_nulls=True"
        " (declare it under a new name)",
    ]


def _after(*schemas: OperatorSchema) -> OperatorSchema:
    """The stored schema after one declaration has followed the other, rows of the first still being there."""
    stored = schemas[0]
    for declared in schemas[1:]:
        stored = evolve_schema(stored, declared, [FOLDER])
    return stored


def test_a_field_that_comes_back_does_not_get_its_old_state() -> None:
    both, one = fold(field("count", "n"), field("sum", "s")), fold(field("count", "n"))
    assert dict(columns(_after(both, one, both), RUNS, DUCKDB))["s"] == "CAST(NULL AS BIGINT)"
    assert dict(columns(_after(both, both), RUNS, DUCKDB))["s"] == '"s"'


def test_a_chain_of_renames_finds_the_first_name() -> None:
    a = fold(field("sum", "a"))
    stored = _after(a, fold(field("sum", "b", was="a")), fold(field("sum", "c", was="b")), fold(field("sum", "c")))
    assert dict(columns(stored, RUNS, SPARK))["c"] == '"a"'
    assert stored.fields[0].was == ""


def test_a_name_that_is_taken_over_is_not_mixed_up() -> None:
    stored = _after(
        fold(field("sum", "a")),
        fold(field("sum", "b", was="a")),
        fold(field("sum", "a"), field("sum", "b", was="a")),
    )
    found = dict(columns(stored, RUNS, DUCKDB))
    assert (found["a"], found["b"]) == ("CAST(NULL AS BIGINT)", '"a"')


def test_what_was_not_there_is_zero_for_counts_empty_for_collections_and_null_else() -> None:
    added = fold(*(field(kind, kind) for kind in FOLD_KINDS), field("sum", "s", ttl=every(1)))
    found = dict(columns(_after(fold(field("count", "n")), added), RUNS, DUCKDB))
    assert found["count"] == "CAST(0 AS BIGINT)"
    assert found["mean__count"] == "CAST(0 AS BIGINT)"
    assert found["distinct"] == "CAST(coalesce(NULL, []) AS BIGINT[])"
    assert found["list"] == 'CAST(coalesce(NULL, []) AS STRUCT("at" BIGINT, "value" BIGINT)[])'
    assert found["s__cut"] == "CAST(NULL AS BOOLEAN)"
    assert {found[n] for n in ("sum", "min", "max", "mean__sum", "s")} == {"CAST(NULL AS BIGINT)"}


def test_a_wider_type_is_cast_in_the_engines_own_words() -> None:
    old, new = alone("latest", decimal(10, 2)), alone("latest", decimal(20, 2))
    stored = _after(old, new)
    assert dict(columns(stored, RUNS, SPARK))["f"] == (
        'CAST("f" AS STRUCT<`at`: TIMESTAMP, `topic`: STRING, `partition`: BIGINT, `offset`: BIGINT,'
        " `value`: DECIMAL(20,2)>)"
    )
    assert 'AS STRUCT("at" TIMESTAMPTZ' in dict(columns(stored, RUNS, DUCKDB))["f"]


def test_entries_of_renamed_and_removed_maps() -> None:
    old = process(field("map", "a"), field("map", "b"), field("value", "v"))
    stored = _after(old, process(field("map", "c", was="a")))
    assert counts(stored, RUNS) == '"_field" IS NULL OR "_field" IN (\'a\')'
    assert dict(columns(stored, RUNS, SPARK))["_field"] == "CASE \"_field\" WHEN 'a' THEN 'c' ELSE \"_field\" END"
    assert counts(_after(old, process(field("value", "v"))), RUNS) == '"_field" IS NULL'
    added = _after(process(field("value", "v")), old)
    assert dict(columns(added, RUNS, SPARK))["_field"] == "CAST(NULL AS STRING)"
    assert "_field" not in dict(table_columns(added, RUNS))


def test_rows_of_the_current_columns_are_read_as_they_are() -> None:
    schema = _after(fold(field("count", "n")), fold(field("count", "n", limit=5)))
    assert schema.older == ()
    names = ", ".join(f'"{n}" AS "{n}"' for n, _ in run_columns(schema))
    assert mapped_sql(schema, RUNS, "rows", DUCKDB) == f"SELECT {names} FROM rows"


def test_without_a_ttl_access_times_go_on_by_the_clock_that_they_are_stored_by() -> None:
    logical, off = CHANGES["ttl off with logical time"].old, CHANGES["ttl off with logical time"].new
    assert _after(logical, off).clock == _after(logical, off, off, logical).clock == "logical_time"


def test_a_folder_that_no_handle_names_any_more_is_forgotten() -> None:
    stored = _after(fold(field("count", "n")), fold(field("count", "n"), field("sum", "s")))
    assert [layout.folder for layout in stored.older] == [FOLDER]
    assert evolve_schema(stored, stored, ["p/state/u/t1-7"]).older == ()


def test_the_stored_schema_goes_through_json_and_its_fingerprint_leaves_the_past_out() -> None:
    stored = _after(fold(field("count", "n")), fold(field("count", "n"), field("sum", "s", was="gone", ttl=every(2))))
    assert OperatorSchema.from_json(stored.to_json()) == stored
    assert isinstance(stored.older[0], Layout)
    assert stored.fingerprint == replace(stored, older=()).fingerprint
