"""Which files a fold with windows writes and reads: one run per batch, and nothing that has closed."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.spark import SparkPipeline, TwinPipeline
from tests.support.spark_warehouse import merge_both_ways
from tests.support.window_cases import Rules, Sent, pipeline, record
from tidemark.coordinator.checkpoints.state_compactor import CompactionTask, StateCompactor
from tidemark.engine.fold import closings
from tidemark.engine.read.frames import fold
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import CompactionRecord
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.model.state.compaction import LevelPolicy
from tidemark.ports import PutOutcome
from tidemark.readers.state_reader import files_of

KINDS = {
    "tumbling": Rules(is_small=True),
    "sliding": Rules(is_small=True, size=20, every=10),
    "session": Rules(is_small=True, sessions=True),
}


@pytest.fixture(params=KINDS)
def rules(request: pytest.FixtureRequest) -> Rules:
    return KINDS[request.param]


@pytest.fixture
def line(rules: Rules, spark: SparkSession, tmp_path: Path) -> SparkPipeline:
    return SparkPipeline(pipeline(rules), spark=spark, root=tmp_path)


@pytest.fixture
def twin(rules: Rules) -> TwinPipeline:
    return TwinPipeline(pipeline(rules))


@pytest.fixture
def folded_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """Grows with each fold of a batch after it was read."""
    calls: list[object] = []

    def noted(records: DataFrame, schema: OperatorSchema, *given: Any, **named: Any) -> DataFrame:
        if schema.uid == "sold":
            calls.append(records)
        return fold(records, schema, *given, **named)

    monkeypatch.setattr(closings, "fold", noted)
    yield calls


def sent(*sales: tuple[str, int], partitions: int = 2) -> list[object]:
    """Sales of a shop at a minute, in both partitions, so that the watermark moves."""
    return [record(Sent(p, shop, minute, 1)) for shop, minute in sales for p in range(partitions)]


def both(line: SparkPipeline, twin: TwinPipeline, records: Iterable[object]) -> Checkpoint:
    """A checkpoint over the records, which must be the twin's."""
    records = list(records)
    its, mine = twin.checkpoint(records), line.checkpoint(records)
    counts = [(a.applied, a.late, a.keys, a.emitted) for found in (its, mine) for a in found.sealed.acks]
    assert counts[: len(counts) // 2] == counts[len(counts) // 2 :]
    assert line.state("sold", mine) == twin.state("sold", its)
    assert line.emitted("sold", mine) == twin.emitted("sold", its)
    return mine


def stored(line: SparkPipeline, made: Checkpoint) -> set[Path]:
    """The files that a checkpoint names."""
    return {line.root / segment.path / f.path for segment, f in files_of(str(line.root), made.handles["sold"])}


def there(line: SparkPipeline) -> set[Path]:
    return {path for path in (line.root / "shops/state/sold").rglob("*.parquet") if "_delta_log" not in path.parts}


def test_a_small_batch_is_folded_once_whether_its_own_windows_close_or_not(
    line: SparkPipeline, twin: TwinPipeline, folded_again: list[object]
) -> None:
    both(line, twin, sent(("a", 1), ("b", 2)))
    opened = both(line, twin, sent(("a", 5), ("b", 6)))
    closing = both(line, twin, sent(("a", 41), ("b", 58), ("a", 90)))
    assert not folded_again
    assert {row["shop"] for row in line.emitted("sold", closing)} == {"a", "b"}
    assert all(row["window_end"].minute == 0 or row["_changed"] == closing.id for row in line.state("sold", closing))
    assert stored(line, opened) < stored(line, closing) == there(line), "the run with rows that closed is gone"


def compacted(line: SparkPipeline, made: Checkpoint) -> CompactionRecord:
    schema = made.plan.schemas["sold"]
    task = CompactionTask(
        pipeline="shops",
        timeline="t1",
        checkpoint=made.id,
        schema=schema,
        handle=made.handles["sold"],
        now=made.now,
        table=made.plan.tables["sold"],
        policy=LevelPolicy(runs=2),
    )
    compactor = StateCompactor(
        merge=merge_both_ways(line.spark, line.root),
        tables=line.tables,
        clock=line.clock,
        write_ids=lambda: "w",
        listener=lambda step, moment: None,
        put_job=lambda key, record: PutOutcome.WON,
        put_record=lambda key, record: PutOutcome.WON,
    )
    record = compactor.compact(task)
    assert record is not None
    return record


@pytest.mark.parametrize("rules", [KINDS["tumbling"], KINDS["session"]], ids=["tumbling", "session"])
def test_files_whose_windows_had_all_closed_are_read_by_no_closing_and_no_compaction(
    line: SparkPipeline, twin: TwinPipeline
) -> None:
    old = both(line, twin, sent(*((shop, 1) for shop in "abcdefgh")))
    both(line, twin, sent(("a", 200)))
    for path in stored(line, old):
        path.write_bytes(bytes(path.stat().st_size))
    made = both(line, twin, sent(("a", 400)))
    record = compacted(line, made)
    assert record.output.rows <= 2 < record.input.rows
    empty = line.checkpoint([], drains=True)
    assert compacted(line, empty).output.rows == 0
