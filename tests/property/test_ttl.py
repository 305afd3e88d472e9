"""TTL, lists and deletes of folds: whatever the compaction schedule, the answer is that of a brute-force replay.

`TIDEMARK_TEST_SEED` repeats one run, `TIDEMARK_TEST_SCALE=10` makes ten times as many cases; a failing case prints its
own seed.
"""

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from tests.support.scale import SCALE
from tests.support.ttl_cases import EPOCH, Reading, TtlCase, case, expected, records
from tidemark import Fold, KafkaSource, Pipeline, state
from tidemark.errors import StateOverflowError
from tidemark.model.core.ttl import Now
from tidemark.model.schema.operator_schema import OperatorSchema, run_columns
from tidemark.readers.duckdb_session import QueryRunner, open_query_runner
from tidemark.sql.resolve import compacted_sql, resolving_sql
from tidemark.tables.delta_tables import arrow_schema
from tidemark.testing import BARRIER, replay
from tidemark.testing.twin.fold import fold
from tidemark.testing.twin.merge import compact_rows, resolve_rows

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
Rows = Sequence[Mapping[str, Any]]


@pytest.fixture(scope="module", autouse=True)
def _seed() -> None:
    print(f"TIDEMARK_TEST_SEED={SEED} pytest {__file__}")


@pytest.fixture(scope="module")
def ask() -> Iterator[QueryRunner]:
    """One DuckDB connection for all cases."""
    with open_query_runner() as found:
        yield found


def _table(schema: OperatorSchema, rows: Rows) -> pa.Table:
    return pa.Table.from_pylist([dict(r) for r in rows], schema=arrow_schema(run_columns(schema)))


def _plain(schema: OperatorSchema, rows: Rows) -> dict[tuple[Any, ...], dict[str, Any]]:
    fields = [f.name for f in schema.fields]
    return {tuple(r[k.name] for k in schema.keys): {name: r[name] for name in fields} for r in rows}


def _by_memory(schema: OperatorSchema, rows: Rows, now: Now) -> dict[tuple[Any, ...], dict[str, Any]]:
    return _plain(schema, list(resolve_rows(schema, rows, now).values()))


def _by_duckdb(ask: QueryRunner, schema: OperatorSchema, rows: Rows, now: Now) -> dict[tuple[Any, ...], dict[str, Any]]:
    return _plain(schema, ask(resolving_sql(schema, "rows", now), rows=_table(schema, rows)).to_pylist())


def _compacted(ask: QueryRunner | None, schema: OperatorSchema, rows: Rows, now: Now, deepest: bool) -> Rows:
    """The rows of a compaction; DuckDB's are those of the twin, column by column."""
    twin = compact_rows(schema, rows, now, deepest=deepest)
    if ask is None:
        return twin
    found = ask(compacted_sql(schema, "rows", now, deepest=deepest), rows=_table(schema, rows))
    assert _stored(schema, found) == _stored(schema, _table(schema, twin))
    by_sql: Rows = found.to_pylist()
    return by_sql


def _stored(schema: OperatorSchema, rows: pa.Table) -> list[dict[str, Any]]:
    keys = [(k.name, "ascending") for k in schema.keys]
    empty = {f.name for f in schema.fields if f.kind in ("distinct", "list")}
    found = rows.cast(arrow_schema(run_columns(schema))).sort_by(keys).to_pylist()
    return [{name: v or None if name in empty else v for name, v in row.items()} for row in found]


def _judge(made: TtlCase, seed: int, ask: QueryRunner | None) -> None:
    """Replays a case; any suffix of the runs is compacted any number of times, as of any checkpoint that had it."""
    chance, schema = random.Random(seed), made.schema
    handles: list[Rows] = []
    eager = chance.choice([0.0, 0.3, 0.8])
    for plan, batch in made.plans():
        handles.append(fold(schema, records(batch), plan, batch.now))
        while handles and chance.random() < eager:
            # Mostly above the deepest level, where a merged row has to remember what it cut.
            cut = chance.choice([0, *range(len(handles)), *range(1, len(handles))])
            merged = [row for rows in handles[cut:] for row in rows]
            handles = [*handles[:cut], _compacted(ask, schema, merged, batch.now, cut == 0)]
        rows = [row for level in handles for row in level]
        right = expected(made, batch.number)
        why = f"case {seed}, checkpoint {batch.number}, {schema.fields}"
        assert _by_memory(schema, rows, batch.now) == right, why
        if ask is not None and (batch.number == len(made.batches) or chance.random() < 0.3):
            assert _by_duckdb(ask, schema, rows, batch.now) == right, why


def test_the_memory_twin_is_right_for_any_schedule() -> None:
    for seed in range(SEED, SEED + 300 * SCALE):
        _judge(case(seed), seed, None)


def test_duckdb_is_right_for_any_schedule(ask: QueryRunner) -> None:
    for seed in range(SEED + 100_000, SEED + 100_000 + 60 * SCALE):
        _judge(case(seed, batches=7), seed, ask)


def test_expired_elements_do_not_count_against_the_limit_of_a_list() -> None:
    class Pages(state.Keyed):
        seen: list[int] = state.list("n", limit=2, ttl=timedelta(milliseconds=5))

    pipeline = Pipeline(
        name="pages",
        source=KafkaSource("t", Reading, event_time="at"),
        operators=[Fold("pages", key_by="key", state=Pages)],
    )
    readings = [Reading("a", EPOCH + timedelta(milliseconds=4 * n), n) for n in range(9)]
    at_once = replay(pipeline, [readings, BARRIER])
    one_by_one = replay(pipeline, [part for r in readings for part in ([r], BARRIER)])
    assert at_once.state("pages") == one_by_one.state("pages") == {"a": Pages(seen=[7, 8])}
    crowded = [Reading("a", EPOCH, n) for n in range(3)]
    with pytest.raises(StateOverflowError, match=r"seen of key \(a\) has 3 values, its limit is 2"):
        replay(pipeline, [crowded, BARRIER])
    with pytest.raises(StateOverflowError, match=r"seen of key \(a\) has 3 values, its limit is 2"):
        replay(pipeline, [crowded[:2], BARRIER, crowded[2:], BARRIER]).state("pages")
