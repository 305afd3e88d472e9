"""Declarations that change between checkpoints: any order, any compactions; memory and DuckDB answer as a replay does.

`TIDEMARK_TEST_SEED` repeats one run; a failing case prints its own seed.
"""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.support.evolving_pipelines import Narrow, PipelineHistory, encoded
from tests.support.memory import MemoryPipeline
from tidemark import Fold, KafkaSource, Pipeline, state
from tidemark.coordinator.checkpoints.loop import CheckpointLoop
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.portable_sql.dialects import DUCKDB
from tidemark.ports import PlanRequest
from tidemark.readers.duckdb_session import QueryRunner, open_query_runner
from tidemark.sql.resolve import mapped_sql, resolving_sql, table_columns
from tidemark.tables.delta_tables import arrow_schema
from tidemark.testing.twin.memory import MemoryCompute

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
PLACE = TopicPartition("records", 0)
State = dict[tuple[Any, ...], dict[str, Any]]


@pytest.fixture(scope="module", autouse=True)
def _seed() -> None:
    print(f"TIDEMARK_TEST_SEED={SEED} pytest {__file__}")


@pytest.fixture(scope="module")
def ask() -> Iterator[QueryRunner]:
    """One DuckDB connection for all cases."""
    with open_query_runner() as found:
        yield found


@dataclass
class EvolvingPipeline(MemoryPipeline):
    """A pipeline in memory whose declaration may be another one at every checkpoint."""

    def __post_init__(self) -> None:
        self.log.create(PLACE.topic, 1)

    def complete(self, pipeline: Pipeline, records: list[Any], at_ms: int = 0) -> Checkpoint:
        """One checkpoint over records of one time."""
        for record in records:
            self.log.append(PLACE, encoded(record), timestamp_ms=at_ms)
        loop = CheckpointLoop(
            coordinator=self.coordinator, pipeline=pipeline, execute=lambda owned: self.executed(pipeline, owned)
        )
        return loop.run_once(PlanRequest(origin="test")).checkpoints[0]

    def state(self, pipeline: Pipeline, found: Checkpoint, uid: str) -> State:
        """What memory resolves."""
        compute = MemoryCompute(pipeline=pipeline, log=self.log, tables=self.tables)
        return _plain(found, uid, compute.resolve(found, uid).values())

    def by_duckdb(self, ask: QueryRunner, found: Checkpoint, uid: str) -> State:
        """What DuckDB resolves of the same rows, table by table."""
        schema, handle = found.plan.schemas[uid], found.handles[uid]
        tables, parts = {}, []
        for n, segment in enumerate(handle):
            of = arrow_schema(table_columns(schema, segment.path))
            rows = [{name: row[name] for name in of.names} for row in self.tables.rows(StateHandle((segment,)))]
            tables[f"t{n}"] = pa.Table.from_pylist(rows, schema=of)
            parts.append(mapped_sql(schema, segment.path, f"t{n}", DUCKDB))
        if not parts:
            return {}
        sql = resolving_sql(schema, f'({" UNION ALL ".join(parts)}) AS "_stored"', found.now)
        return _plain(found, uid, ask(sql, **tables).to_pylist())


def _plain(found: Checkpoint, uid: str, rows: Any) -> State:
    schema = found.plan.schemas[uid]
    maps = {f.name for f in schema.maps}
    return {
        tuple(row[k.name] for k in schema.keys): {
            f.name: dict(row[f.name]) if f.name in maps else row[f.name] for f in schema.fields
        }
        for row in rows
    }


@dataclass(frozen=True)
class Told:
    """A checkpoint, its declaration, and what the replay says of it."""

    checkpoint: Checkpoint
    pipeline: Pipeline
    right: dict[str, State]


def _judge(seed: int, ask: QueryRunner | None) -> int:
    """Runs a case; returns how many compactions were adopted."""
    chance = random.Random(seed)
    history, line = PipelineHistory(chance), EvolvingPipeline()
    told: list[Told] = []
    adopted = 0
    for n in range(6):
        if n:
            history.change()
        pipeline = history.pipeline()
        found = line.complete(pipeline, history.send())
        adopted += len(found.plan.adopted)
        told.append(Told(found, pipeline, {uid: history.expected(uid) for uid in history.kinds}))
        for uid in history.kinds:
            if found.handles[uid] and chance.random() < 0.4:
                through = chance.choice(found.handles[uid].segments).through
                line.compact(found, uid, StateHandle(tuple(s for s in found.handles[uid] if s.through <= through)))
    for t in told:
        for uid, right in t.right.items():
            why = f"case {seed}, {t.checkpoint.plan.name}, {uid}: {list(t.pipeline.schemas()[uid].fields)}"
            assert line.state(t.pipeline, t.checkpoint, uid) == right, why
            if ask is not None:
                assert line.by_duckdb(ask, t.checkpoint, uid) == right, why
    return adopted


def test_any_changes_and_any_compactions_answer_as_a_replay_does() -> None:
    adopted = sum(_judge(SEED + n, None) for n in range(60))
    assert adopted > 60, "hardly a compaction was adopted: the cases test too little"


def test_duckdb_answers_the_same(ask: QueryRunner) -> None:
    for n in range(6):
        _judge(SEED - 1 - n, ask)


def _expiring(ttl: int | None, last: str) -> Pipeline:
    """A sum that expires after some seconds, or never, and a plain count."""
    live = None if ttl is None else timedelta(seconds=ttl)
    body = {"total": state.sum("n", ttl=live), last: state.count()}
    made = type("Expiring", (state.Keyed,), {"__annotations__": {"total": int | None, last: int}, **body})
    return Pipeline(name="ttl", source=KafkaSource("records", Narrow), operators=[Fold("u", key_by="key", state=made)])


def _since_the_last_gap(seconds: list[int], ttl: int | None, now: int) -> list[int]:
    """Touches of a key that still count under a ttl, given that nothing was combined or dropped."""
    if ttl is None:
        return seconds
    if now - seconds[-1] >= ttl:
        return []
    starts = [n for n in range(1, len(seconds)) if seconds[n] - seconds[n - 1] >= ttl]
    return seconds[starts[-1] :] if starts else seconds


def _judge_ttl(seed: int) -> None:
    chance, line = random.Random(seed), EvolvingPipeline()
    touched: dict[str, list[int]] = {}
    second = 1
    for _ in range(8):
        ttl = chance.choice([None, 1, 2, 4])
        pipeline = _expiring(ttl, chance.choice(["n", "n", "m"]))
        second += chance.randint(0, 3)
        keys_now = chance.sample(["a", "b", "c"], chance.randint(1, 3))
        found = line.complete(pipeline, [Narrow(k, 1, Decimal(0)) for k in keys_now], at_ms=second * 1000)
        for k in keys_now:
            touched.setdefault(k, []).append(second)
        counted = {k: len(_since_the_last_gap(d, ttl, second)) or None for k, d in touched.items()}
        assert {k: row["total"] for (k,), row in line.state(pipeline, found, "u").items()} == counted, f"case {seed}"


def test_a_ttl_that_is_set_changed_and_taken_away_counts_for_what_is_stored() -> None:
    for n in range(40):
        _judge_ttl(SEED + n)
