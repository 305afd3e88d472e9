"""Verbs over a pipeline with a FlatMap and with several outputs: real commands' functions, store and tables."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext
from tests.support.several_outputs import DAY, Beat, pipeline
from tests.support.trips import settings_of
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.coordinator.retention.key_erasure import ErasureRequest
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import UsageError
from tidemark.model.core import canonical
from tidemark.model.retention.export_manifest import Export
from tidemark.model.state.row_compaction import RowPolicy
from tidemark.operations import bootstrap, erasure, export, import_, queries, reads, sinks, timelines
from tidemark.web import details, graphs
from tidemark.web.sink_rows import find_sink_origin

BEATS = [Beat("a", [1, 7, 2], DAY), Beat("b", [9, 3], DAY)]


class OutputsContext(DiskContext):
    """Finds the declaration in the pipeline on disk."""

    def pipeline(self, name: str) -> Pipeline:
        return self.line.pipeline


@pytest.fixture
def line(tmp_path: Path) -> DiskPipeline:
    """A pipeline with two checkpoints."""
    made = DiskPipeline(tmp_path / "warehouse", pipeline(), "beats", partitions=1)
    for _ in range(2):
        send(made, BEATS)
        made.checkpoint()
    return made


@pytest.fixture
def context(line: DiskPipeline, tmp_path: Path) -> DiskContext:
    return OutputsContext(line, settings_of(tmp_path))


def send(line: DiskPipeline, beats: Sequence[Beat]) -> None:
    line.send([(0, json.dumps({**asdict(beat), "at": beat.at.isoformat()}).encode(), 1) for beat in beats])


REFUSED: dict[str, Callable[[DiskContext], object]] = {
    "state show": lambda context: reads.read_state(context, "beats", "part"),
    "state hash": lambda context: queries.hash_state(context, "beats", "part"),
    "state query": lambda context: queries.describe_query(context, "beats", "part", "duckdb"),
}


@pytest.mark.parametrize("verb", REFUSED)
def test_verbs_over_state_refuse_a_flat_map_by_name(verb: str, context: DiskContext) -> None:
    with pytest.raises(UsageError, match="part keeps no state: it is a FlatMap") as refused:
        REFUSED[verb](context)
    assert "watch" in refused.value.next


def test_sql_and_exports_leave_a_flat_map_out(context: DiskContext, tmp_path: Path) -> None:
    names = queries.run_sql(context, "beats", "show tables")["name"].to_pylist()
    assert "watch" in names and "part" not in names
    made: Export = export.export(context, "beats", None, str(tmp_path / "copy"))
    assert sorted(made.states) == sorted(
        {"watch", *(f"{uid}_sizes" for uid in ("late", "alarm", "parted_late", "parted_alarm"))}
    )
    assert "part" in reads.describe_manifest(context, reads.get_checkpoint(context, "beats"))["plan"]["schemas"]


def test_rows_of_every_sink_lead_to_their_records(context: DiskContext) -> None:
    for sink, uid in (("alarms", "watch"), ("late", "watch.late"), ("parted_late", "part.late")):
        rows = sinks.read_sink(context, "beats", sink).to_pylist()
        assert {r["_uid"] for r in rows} == {uid}
        found = find_sink_origin(context, "beats", sink, 2, {"who": "a"})
        assert found.uid == uid
        assert [r.start for r in found.changed.ranges] == [2]


def test_an_erasure_takes_the_rows_of_every_sink_of_the_operator(context: DiskContext, line: DiskPipeline) -> None:
    report = erasure.erase(context, "beats", ErasureRequest(uid="watch", key=("a",)))
    assert report.done is not None
    for sink in ("alarms", "late"):
        assert {r["who"] for r in sinks.read_sink(context, "beats", sink).to_pylist()} == {"b"}
    assert {r["who"] for r in sinks.read_sink(context, "beats", "parted_late").to_pylist()} == {"a", "b"}
    assert sum(report.residue.sinks.values()) == 4, "rows of the FlatMap are reported"
    assert {r.uid for r in report.chained} == {"late_sizes", "alarm_sizes"}
    send(line, BEATS)
    line.checkpoint()


def part(*by: str, key: tuple[str, ...] = ("a",), forever: bool = False) -> ErasureRequest:
    """The erasure of a value in columns of the rows that the FlatMap emits."""
    return ErasureRequest(uid="part", key=key, by=by, forever=forever)


def parted(context: DiskContext, checkpoint: int | None = None) -> list[dict[str, object]]:
    """The rows of the FlatMap's sink."""
    found: list[dict[str, object]] = sinks.read_sink(context, "beats", "parted_late", checkpoint=checkpoint).to_pylist()
    return found


def test_rows_of_a_flat_map_are_erased_by_their_columns_with_the_folds_behind(
    context: DiskContext, line: DiskPipeline
) -> None:
    before = parted(context)
    planned = erasure.plan_erasure(context, "beats", part("who"))
    assert (planned.done, parted(context)) == (None, before)
    assert {r.uid for r in planned.chained} == {"parted_late_sizes", "parted_alarm_sizes"}
    done = erasure.erase(context, "beats", part("who")).done
    assert done is not None and done.rows == 4 and set(done.restore_points) == {"chk-1", "chk-2"}
    for n in (1, 2):
        assert parted(context, n) == [r for r in before if r["who"] == "b" and r["_checkpoint"] in range(1, n + 1)]
    for uid in ("parted_late_sizes", "parted_alarm_sizes"):
        assert reads.read_state(context, "beats", uid)["who"].to_pylist() == ["b"]
    watched = sinks.read_sink(context, "beats", "late").to_pylist()
    assert {r["who"] for r in watched} == {"a", "b"}, "another operator's sink"
    again = erasure.erase(context, "beats", part("who"))
    assert again.done is not None and again.done.rows == 0
    send(line, BEATS)
    line.checkpoint()
    assert {r["who"] for r in parted(context)} == {"a", "b"}, "later records count"


def test_erased_rows_of_a_flat_map_are_not_emitted_again(context: DiskContext, line: DiskPipeline) -> None:
    erasure.erase(context, "beats", part("who", "place", key=("a", "0")))
    kept = parted(context)
    assert sorted((r["who"], r["place"]) for r in kept) == [("a", 2), ("a", 2), ("b", 1), ("b", 1)]
    timelines.fork(context, "beats", "trial", RestoreRequest(checkpoint=1))
    again = line.checkpoint(timeline="trial").id
    rows = [r for r in parted(context, again) if r["_checkpoint"] == again]
    assert [r | {"_checkpoint": 2} for r in rows] == [r for r in kept if r["_checkpoint"] == 2], "also the same numbers"
    assert [r["_path"] for r in rows] == [[1], [0]]


def test_a_blocked_value_is_never_emitted(context: DiskContext, line: DiskPipeline) -> None:
    report = erasure.erase(context, "beats", part("size", key=("3",), forever=True))
    assert report.done is not None and report.done.rows == 2
    assert {uid for uid, columns in report.untold.items()} >= {"parted_late_sizes"}
    send(line, BEATS)
    made = line.checkpoint()
    assert [r["size"] for r in parted(context)] == [1, 2] * 3
    (ack,) = (a for a in made.sealed.acks if a.uid == "part")
    assert (ack.read, ack.applied, ack.outputs["part.late"].emitted) == (2, 2, 2)


def test_the_same_value_in_two_columns_is_erased_twice(context: DiskContext) -> None:
    numbers = [
        done.number
        for column in ("size", "place", "place")
        if (done := erasure.erase(context, "beats", part(column, key=("9",), forever=True)).done)
    ]
    assert numbers == [1, 2, 0], "each column has a block of its own, once"


@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (part(), "part is a FlatMap: it has no keys"),
        (part("nobody"), "part has no rows with the columns nobody"),
        (part("place", key=("x",)), "not a key of part"),
        (ErasureRequest(uid="watch", key=("a",), by=("who",)), "watch has keys: who"),
    ],
)
def test_an_erasure_names_columns_of_a_flat_map_and_of_nothing_else(
    request_: ErasureRequest, match: str, context: DiskContext
) -> None:
    with pytest.raises(UsageError, match=match) as refused:
        erasure.plan_erasure(context, "beats", request_)
    assert "--by" in refused.value.next or "place (int)" in refused.value.next


def test_rows_of_every_sink_are_compacted_and_the_next_plan_adopts_them(
    context: DiskContext, line: DiskPipeline
) -> None:
    wanted = {sink: sinks.read_sink(context, "beats", sink).to_pylist() for sink in ("alarms", "late", "parted_late")}
    records = line.compact_rows(RowPolicy.everything())
    assert {record.uid for record in records} >= {"alarms~sinks", "late~sinks", "parted_late~sinks"}
    line.checkpoint()
    for sink, rows in wanted.items():
        assert sinks.read_sink(context, "beats", sink).to_pylist() == rows
    newest = reads.get_checkpoint(context, "beats")
    assert {"alarms~sinks", "late~sinks", "parted_late~sinks"} <= set(newest.plan.adopted)


def test_the_graph_leads_from_an_operator_to_those_that_read_it(context: DiskContext) -> None:
    graph = graphs.build_graph(context, "beats", 2)
    edges = {(edge.begin, edge.end) for edge in graph.edges}
    assert {
        ("partition beats-0", "operator watch"),
        ("partition beats-0", "operator part"),
        ("operator watch", "operator late_sizes"),
        ("operator part", "operator parted_late_sizes"),
        ("operator watch", "sink alarms"),
        ("operator watch", "sink late"),
        ("operator part", "sink parted_late"),
    } <= edges
    assert ("partition beats-0", "operator late_sizes") not in edges
    assert "state part" not in {node.id for node in graph.nodes}


def test_the_pages_show_every_sink_of_an_operator(context: DiskContext) -> None:
    by_uid = {found.uid: found for found in details.get_config(context, "beats").operators}
    assert (by_uid["watch"].sink, [more.sink for more in by_uid["watch"].more_sinks]) == ("alarms", ["late"])
    assert (by_uid["part"].kind, by_uid["part"].keys, by_uid["part"].sink) == ("flat_map", [], None)
    assert by_uid["part"].more_sinks[0].sink_columns[:3] == ["who", "size", "place"]
    tasks = {task.uid: task for task in details.get_details(context, "beats", 2).tasks}
    assert (tasks["part"].emitted, tasks["part"].rows, tasks["part"].live_runs) == (5, 0, 0)
    assert [more.name for more in tasks["watch"].more_sinks] == ["late"]


def test_the_time_of_every_output_counts_for_its_operator(context: DiskContext, line: DiskPipeline) -> None:
    path = line.root / "beats/timelines/t1/000000000002.json"
    kind = canonical.kind_of(path.name, path.read_bytes())
    body = canonical.decode(kind, path.name, path.read_bytes())
    body["sealed"]["timings_ms"] = {
        "read": 1, "process.watch": 10, "sent.watch": 100, "sent.watch.late": 1000, "outputs.part.late": 7, "gate": 3,
    }  # fmt: skip
    path.write_bytes(canonical.encode(kind, body))
    tasks = {task.uid: task for task in details.get_details(context, "beats", 2).tasks}
    assert dict(tasks["watch"].timings) == {"process": 10, "sent": 1100}
    assert (dict(tasks["part"].timings), tasks["part"].work_duration) == ({"outputs": 7}, 7)
    assert tasks["late_sizes"].work_duration == 0


def test_a_flat_map_cannot_be_bootstrapped(tmp_path: Path) -> None:
    fresh = DiskPipeline(tmp_path / "warehouse", pipeline(), "beats", partitions=1)
    context = OutputsContext(fresh, settings_of(tmp_path))
    request = bootstrap.BootstrapRequest(pipeline="beats", tables={"part": "/nowhere"}, starts="earliest")
    with pytest.raises(UsageError, match="part keeps no state"):
        bootstrap.plan_bootstrap(context, request)


def test_an_export_is_imported_and_continues_without_the_flat_map_that_has_nothing_to_import(
    context: DiskContext, line: DiskPipeline, tmp_path: Path
) -> None:
    export.export(context, "beats", None, str(tmp_path / "copy"))
    request = import_.ImportRequest(folder=str(tmp_path / "copy"), pipeline="beats", timeline="copied")
    preview = import_.plan_import(context, request)
    assert (preview.empty, preview.rows["part"]) == ((), 0)
    done = import_.import_folder(context, request)
    assert done.checkpoint is not None
    send(line, BEATS)
    made = line.checkpoint(timeline="copied")
    assert made.ack("part") is not None
    assert reads.read_state(context, "beats", "late_sizes", checkpoint=made.id).num_rows == 2
