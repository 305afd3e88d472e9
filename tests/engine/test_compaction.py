"""Compaction changes no answer, is adopted by the next plan only, and may be lost without harm."""

import math
import random
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PythonException

from tests.engine.kafka_spark_pipeline import KafkaSparkPipeline
from tests.engine.test_folding import bodies
from tests.engine.worker_ranges import by_workers
from tests.support import spark_warehouse
from tests.support.key_group_ranges import read_by_ranges
from tests.support.readings import pipeline
from tests.support.spark_warehouse import warehouse_of
from tidemark.engine.state.resolve_sql import merge_levels as merge_with_spark
from tidemark.engine.state.resolve_sql import resolve_state
from tidemark.engine.state.state_files import SparkWarehouse
from tidemark.errors import StateOverflowError
from tidemark.model.checkpoint.manifest import WrittenRun
from tidemark.model.checkpoint.segments import LiveFile, Segment, WrittenFile
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.model.state.compaction import Group, LevelMerge, LevelPolicy, groups_of, is_top_light


def grow(line: KafkaSparkPipeline, checkpoints: int, seed: int = 1) -> None:
    chance = random.Random(seed + line.number)
    for _ in range(checkpoints):
        line.send(list(bodies(chance, 30)))
        line.checkpoint()


def test_nothing_is_due_before_eight_runs(line: KafkaSparkPipeline) -> None:
    grow(line, 2)
    assert line.compact("devices") is None


def test_a_compaction_changes_no_answer_and_later_checkpoints_build_on_it(line: KafkaSparkPipeline) -> None:
    grow(line, 3)
    record = line.compact("devices", runs=2)
    assert record is not None
    before = line.state("devices")
    assert line.state("devices", record.output) == before
    assert record.input == line.handles["devices"]
    assert [s.path.rpartition("/")[2] for s in record.output] == ["base"]

    grow(line, 1)
    unadopted = line.state("devices")
    line.adopt(record)
    assert [s.path.rpartition("/")[2] for s in line.handles["devices"]] == ["base", "runs"]
    assert line.state("devices") == unadopted

    grow(line, 1)
    runs = line.handles["devices"].segments[1]
    assert (runs.after, runs.through, runs.files) == (3, 5, 2)
    assert {f.checkpoint for f in line.tables.files_of(replace(runs, after=0))} == {4, 5}
    assert line.state("devices", record.output) == before
    for uid in line.handles:
        resolved_by_workers_are_those_of_sql(line, uid)


def resolved_by_workers_are_those_of_sql(line: KafkaSparkPipeline, uid: str) -> None:
    schema, handle = line.pipeline.schemas()[uid], line.handles[uid]
    by_sql = resolve_state(warehouse_of(line.spark, line.root), schema, handle, line.now)
    found = by_workers(line.spark, line.root, schema, handle, line.now)
    assert [(f.name, f.dataType.simpleString()) for f in found.schema] == [
        (f.name, f.dataType.simpleString()) for f in by_sql.schema
    ]
    keys = [k.name for k in schema.keys]
    assert found.sort(*keys).collect() == by_sql.sort(*keys).collect()


def test_operands_become_values_at_the_deepest_level_only_and_deeper_files_stay(line: KafkaSparkPipeline) -> None:
    grow(line, 2)
    first = line.compact("days", runs=2)
    assert first is not None
    line.adopt(first)
    grow(line, 2)
    before = line.state("days")
    second = line.compact("days", runs=2, ratio=0)
    assert second is not None
    line.adopt(second)
    (base,) = line.handles["days"]
    files = line.tables.files_of(base)
    assert [(f.level, f.checkpoint) for f in files] == [(1, 2), (1, 4)]
    assert (base.after, base.through, base.files) == (0, 4, 2)
    assert line.state("days") == before
    assert _kinds(line, "days") == {2: {"value"}, 4: {"operand"}}
    assert line.compact("days", ratio=math.inf) is None, "without a run nothing is due"
    whole = line.compact("days", LevelPolicy.everything())
    assert whole is not None
    line.adopt(whole)
    assert line.state("days") == before
    assert _kinds(line, "days") == {4: {"value"}}
    assert line.compact("days", LevelPolicy.everything()) is None, "nothing would change"


def test_a_compaction_whose_record_was_lost_is_replaced_by_the_next(line: KafkaSparkPipeline) -> None:
    grow(line, 2)
    lost = line.compact("devices", runs=2)
    again = line.compact("devices", runs=2)
    assert lost is not None and again is not None
    (base,) = again.output
    assert base.version == 1 and len(line.tables.files_of(base)) == 1
    assert line.state("devices", lost.output) == line.state("devices", again.output) == line.state("devices")


def test_an_overflow_stops_the_compaction_and_names_the_key(line: KafkaSparkPipeline) -> None:
    for n in range(2):
        line.send([{"device": str(n), "at": "2020-01-01T00:00:00Z", "count": 2**62, "group": 7, "ok": True}])
        line.checkpoint()
    with pytest.raises(StateOverflowError, match=r"of key \(7, true\)"):
        line.compact("days", runs=2)
    schema, handle = line.pipeline.schemas()["days"], line.handles["days"]
    with pytest.raises(StateOverflowError, match=r"of key \(7, true\)"):
        read_by_ranges(str(line.root), schema, handle, line.now)
    with pytest.raises(PythonException, match=r"StateOverflowError: .* of key \(7, true\)"):
        by_workers(line.spark, line.root, schema, handle, line.now).collect()


def test_spark_merges_what_only_it_can(line: KafkaSparkPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    grow(line, 3)
    before, merged = line.state("devices"), []
    monkeypatch.setattr(OperatorSchema, "is_portable", False)

    def noted(warehouse: SparkWarehouse, wanted: LevelMerge) -> WrittenRun:
        merged.append(merge_with_spark(warehouse, wanted))
        return merged[-1]

    monkeypatch.setattr(spark_warehouse, "merge_with_spark", noted)
    record = line.compact("devices", LevelPolicy.everything())
    assert record is not None
    assert [run.rows for run in merged] == [record.output.rows] == [len(before)]
    assert line.state("devices", record.output) == before
    with pytest.raises(StateOverflowError, match=r"of key \(7, true\)"):
        for n in range(2):
            line.send([{"device": str(n), "at": "2020-01-01T00:00:00Z", "count": 2**62, "group": 7, "ok": True}])
            line.checkpoint()
        line.compact("days", runs=2)


def _kinds(line: KafkaSparkPipeline, uid: str) -> dict[int, set[str]]:
    (base,) = line.handles[uid]
    rows = line.spark.read.format("delta").option("versionAsOf", str(base.version)).load(f"{line.root}/{base.path}")
    found: dict[int, set[str]] = {}
    for row in rows.selectExpr("_checkpoint", "_kind").distinct().collect():
        found.setdefault(row["_checkpoint"], set()).add(row["_kind"])
    assert resolve_state(
        warehouse_of(line.spark, line.root), line.pipeline.schemas()[uid], line.handles[uid], line.now
    ).count()
    return found


def test_space_and_files_stay_bounded_on_the_disk(line: KafkaSparkPipeline) -> None:
    policy, deepest = LevelPolicy(runs=2, file_bytes=40_000), 0
    for _ in range(5):
        grow(line, 2)
        record = line.compact("devices", policy)
        assert record is not None
        line.adopt(record)
        found = {s: line.tables.files_of(s) for s in line.handles["devices"]}
        paths = [line.root / s.path / f.path for s, files in found.items() for f in files]
        (level, *newer) = [group.level for group in groups_of(line.handles["devices"], line.tables.files_of)]
        assert 0 not in (level, *newer), "no run is left"
        deepest += not newer
        resolved_rows = len(line.state("devices"))
        assert sum(pq.read_metadata(p).num_rows for p in paths) <= policy.space * resolved_rows
        assert sum(p.stat().st_size for p in paths) == line.handles["devices"].bytes
        assert len(paths) <= 4 * (1 + len(newer)) + line.handles["devices"].bytes / policy.small_bytes
    assert deepest, "the same thirty keys again and again are merged down"


def test_a_resolve_that_merges_only_touched_keys_answers_the_same(line: KafkaSparkPipeline) -> None:
    grow(line, 4)
    known = {"device": "old", "at": "2020-01-02T00:00:00Z", "count": 5, "group": 1, "ok": True}
    line.send([{**known, "group": 1_000 + n} for n in range(40)])
    line.checkpoint()
    whole = line.compact("days", LevelPolicy.everything())
    assert whole is not None
    line.adopt(whole)
    (base,) = line.handles["days"]
    line.send([known, {**known, "group": 77}])
    line.checkpoint()
    schema, handle = line.pipeline.schemas()["days"], line.handles["days"]
    assert handle.rows > base.rows
    warehouse = warehouse_of(line.spark, line.root)
    assert is_top_light(schema, warehouse.groups(handle))
    expected = line.state("days", handle)
    found = resolve_state(warehouse, schema, handle, line.now).toArrow()
    keys = [(k.name, "ascending") for k in schema.keys]
    by_spark = resolve_state(warehouse, schema, handle, line.now, whole=True).toArrow().sort_by(keys)
    assert found.sort_by(keys).to_pylist() == by_spark.to_pylist()
    assert len(expected) == found.num_rows > handle.rows - base.rows
    resolved_by_workers_are_those_of_sql(line, "days")


@pytest.mark.parametrize(("newer", "wanted"), [((20,), True), ((21,), False), ((10, 10), True), ((), False)])
def test_the_bottom_is_left_alone_where_it_is_five_times_what_lies_above(newer: tuple[int, ...], wanted: bool) -> None:
    schema = pipeline("t").schemas()["days"]
    groups = [group(n, rows) for n, rows in enumerate((100, *newer), 1)]
    assert is_top_light(schema, groups) == wanted


def group(checkpoint: int, rows: int) -> Group:
    """One file of one run."""
    file = WrittenFile(path=f"{checkpoint}/f.parquet", size=1, rows=rows, stats="{}")
    segment = Segment(after=0, through=9, path="p/runs", version=0, rows=0, bytes=0, files=0)
    live = LiveFile(file=file, level=0, checkpoint=checkpoint)
    return Group(segment=segment, level=0, checkpoint=checkpoint, files=(live,))
