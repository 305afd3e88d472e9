"""What the pages answer: Flink's names, the health of a pipeline, lineage as a graph, and rows traced to offsets."""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.trips import TripsPipeline
from tidemark import Fold, state
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.declare.retention import Retention
from tidemark.errors import CorruptObjectError, NotFoundError, UsageError
from tidemark.model.checkpoint.codec import body_of
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Expectation, Verdict
from tidemark.model.checkpoint.store_objects import Failure
from tidemark.model.retention.savepoint import SavepointRequest, TombstoneKind
from tidemark.operations import checkpoints, retention, savepoints, timelines
from tidemark.operations.timelines import describe_restore
from tidemark.ports import PlanRequest
from tidemark.web import details, graphs, overview, previews, row_origin
from tidemark.web.history import CheckpointStatus
from tidemark.web.history_lines import HistoryQuery

FLINK_LIST = {"counts", "summary", "latest", "history"}
FLINK_COUNTS = {"total", "in_progress", "completed", "failed", "restored"}
FLINK_SUMMARY = {"checkpointed_size", "state_size", "end_to_end_duration", "processed_data"}
FLINK_LINE = {
    "id", "status", "is_savepoint", "trigger_timestamp", "checkpointed_size", "state_size", "end_to_end_duration",
    "processed_data", "num_subtasks", "num_acknowledged_subtasks", "checkpoint_type", "external_path", "discarded",
    "failure_timestamp", "failure_message",
}  # fmt: skip
HOSTILE = "<script>alert(1)</script>\"'‮" + "x" * 200


def pin(world: TripsPipeline, name: str, checkpoint: int, note: str = "") -> None:
    request = SavepointRequest(name=name, owner="me", origin="test", checkpoint=checkpoint, note=note)
    savepoints.open_savepoints(world.pages, "trips").create(request)


def release(world: TripsPipeline, checkpoint: int) -> None:
    tombstones = savepoints.open_savepoints(world.pages, "trips").tombstones
    raised, _ = tombstones.raise_for(TombstoneKind.CHECKPOINT, f"chk-{checkpoint}", "keep_last(2)")
    assert tombstones.confirm(raised)


def test_the_list_has_the_names_of_flink(world: TripsPipeline) -> None:
    world.checkpoint("a")
    told = body_of(overview.get_overview(world.pages, "trips", HistoryQuery()))
    assert told.keys() >= FLINK_LIST
    assert told["counts"].keys() >= FLINK_COUNTS
    assert told["summary"].keys() >= FLINK_SUMMARY
    assert told["summary"]["state_size"].keys() == {"min", "max", "avg", "p50", "p90", "p95", "p99", "p999"}
    assert told["history"][0].keys() >= FLINK_LINE
    assert told["latest"].keys() == {"completed", "savepoint", "failed", "restored"}
    assert body_of(details.get_config(world.pages, "trips")).keys() >= {
        "mode",
        "max_concurrent",
        "externalization",
        "state_backend",
    }


def test_counts_latest_and_health_follow_what_happens(world: TripsPipeline) -> None:
    first = world.checkpoint("a")
    pin(world, "kept", first)
    world.checkpoint("b")
    failed = [world.fail("the first"), world.fail("the second")]
    pending = world.plan().id
    told = body_of(overview.get_overview(world.pages, "trips", HistoryQuery()))
    counts = {name: told["counts"][name] for name in FLINK_COUNTS}
    assert counts == {"total": 5, "in_progress": 1, "completed": 2, "failed": 2, "restored": 0}
    assert told["health"]["failures_in_row"] == 2
    assert told["latest"]["failed"]["id"] == failed[-1]
    assert told["latest"]["failed"]["failure_message"] == "the second"
    assert told["latest"]["savepoint"]["savepoints"] == ["kept"]
    assert [line["id"] for line in told["history"]] == [pending, *reversed(failed), 2, 1]
    world.line.coordinator.abort(world.plan(), _failure("gone"))
    timelines.restore(world.pages, "trips", RestoreRequest(savepoint="kept", request="r"))
    told = body_of(overview.get_overview(world.pages, "trips", HistoryQuery()))
    assert (told["counts"]["restored"], told["latest"]["restored"]["id"]) == (1, first)
    assert told["latest"]["restored"]["external_path"] == "kept"
    assert (told["health"]["live"], told["health"]["newest"], told["health"]["failures_in_row"]) == ("t2", first, 0)


def _failure(message: str) -> Failure:
    return Failure(reason=FailureReason.DECLINED, message=message, next="run it again.")


def test_a_query_filters_and_pages(world: TripsPipeline) -> None:
    made = [world.checkpoint(f"b{n}") for n in range(4)]
    failed = world.fail()
    pin(world, "kept", made[1])

    def ids(query: HistoryQuery) -> list[int]:
        found = body_of(overview.get_overview(world.pages, "trips", query))
        return [line["id"] for line in found["history"]]

    assert ids(HistoryQuery(limit=2)) == [failed, made[3]]
    assert ids(HistoryQuery(limit=2, offset=2)) == [made[2], made[1]]
    assert ids(HistoryQuery(status=CheckpointStatus.FAILED)) == [failed]
    assert ids(HistoryQuery(pinned=True)) == ids(HistoryQuery(text="KEPT")) == [made[1]]
    assert ids(HistoryQuery(text=f"chk-{made[0]}")) == [made[0]]
    assert ids(HistoryQuery(timeline="t9")) == []
    assert body_of(overview.get_overview(world.pages, "trips", HistoryQuery(limit=1)))["matching"] == 5


def test_a_line_and_its_details_have_the_interval_of_the_run(world: TripsPipeline) -> None:
    world.drive("a")
    start = datetime(2030, 3, 16, tzinfo=UTC)
    request = PlanRequest(origin="r1", interval_start=start, interval_end=start + timedelta(days=1))
    checkpoints.run_once(world.pages, "trips", request)
    world.checkpoint("b")
    second, first = body_of(overview.get_overview(world.pages, "trips", HistoryQuery()))["history"]
    assert first["interval"] == {"start": "2030-03-16T00:00:00Z", "end": "2030-03-17T00:00:00Z"}
    assert second["interval"] is None
    for line in (first, second):
        assert body_of(details.get_details(world.pages, "trips", line["id"]))["interval"] == line["interval"]


class Remembered(state.Keyed):
    """A bus, for some time."""

    trips: int | None = state.count(ttl=timedelta(days=1, hours=12))
    miles: int | None = state.sum("miles", ttl=timedelta(milliseconds=90_500))


def test_a_time_to_live_is_written_in_units(world: TripsPipeline) -> None:
    (buses,) = world.line.pipeline.operators
    assert isinstance(buses, Fold)
    world.line.pipeline = replace(world.line.pipeline, operators=[replace(buses, state=Remembered)])
    world.checkpoint("a")
    (operator,) = details.get_config(world.pages, "trips").operators
    assert {f.name: f.ttl for f in operator.fields} == {"trips": "1 d 12 h", "miles": "1 min 30 s 500 ms"}


def test_counts_in_the_graph_have_separators(world: TripsPipeline) -> None:
    world.checkpoint(*["a"] * 1_200)
    number = world.checkpoint(*(f"b{n}" for n in range(1_001)))
    nodes = {n["id"]: n for n in body_of(graphs.build_graph(world.pages, "trips", number))["nodes"]}
    assert nodes["partition trips-0"]["second"] == "[1,200, 2,201)"
    assert nodes["operator buses"]["second"] == "1,001 records, 1,001 keys"


def test_a_new_process_answers_the_newest_at_once_and_all_in_the_end(trips_of: Callable[[], TripsPipeline]) -> None:
    world = trips_of()
    made = [world.checkpoint(f"b{n}") for n in range(3)]
    again = trips_of().pages
    told = body_of(overview.get_overview(again, "trips", HistoryQuery()))
    assert told["indexed"] == {"read": 3, "of": 3}
    assert [p["id"] for p in body_of(overview.list_points(again, "trips", 2))["points"]] == made[1:]


def test_a_point_of_the_charts_tells_what_each_partition_has_read_and_left(world: TripsPipeline) -> None:
    world.drive("a", "b")
    world.drive("c", partition=1)
    world.checkpoint()
    world.drive("d", "e", "f", partition=1)
    checkpoints.run_once(world.pages, "trips", PlanRequest(origin="test", max_records=2))
    first, second = body_of(overview.list_points(world.pages, "trips", 10))["points"]
    assert (first["offsets"], first["pending"]) == ({"trips-0": 2, "trips-1": 1}, {})
    assert (second["offsets"], second["pending"]) == ({"trips-1": 2}, {"trips-1": 1})
    assert (second["records"], second["pending_records"]) == (2, 1)


def test_a_run_that_continues_says_how_far_it_is(world: TripsPipeline) -> None:
    world.drive("a", "b", "c", "d")
    request = PlanRequest(origin="test", max_records=3, run="trips/monday")

    def told() -> Any:
        return body_of(overview.get_overview(world.pages, "trips", HistoryQuery()))["run"]

    checkpoints.run_once(world.pages, "trips", request)
    run = told()
    assert (run["run"], run["checkpoint"], run["total"]) == ("trips/monday", "chk-1", 4)
    assert run["share"] == run["done"] / 4 < 1
    assert run["seconds_left"] >= 0
    checkpoints.make_checkpoints(world.pages, "trips", request)
    assert told() is None, "it has ended"


def test_the_graph_leads_from_offsets_to_the_manifest(world: TripsPipeline) -> None:
    first = world.checkpoint("a", "b", None)
    second = world.checkpoint("a")
    pin(world, "kept", second)
    third = world.checkpoint("c")
    graph = body_of(graphs.build_graph(world.pages, "trips", second))
    nodes = {n["id"]: n for n in graph["nodes"]}
    assert all(e["begin"] in nodes and e["end"] in nodes for e in graph["edges"])
    assert nodes["partition trips-0"]["second"] == "[3, 4)"
    assert nodes["parent"]["checkpoint"] == first
    assert nodes["state buses"]["second"] == "runs 0 → 1"
    assert nodes["state buses"]["asset"] == "trips/state/buses"
    assert nodes[f"chk-{third}"]["kind"] == "child"
    assert nodes["pin kept"]["kind"] == "savepoint"
    ways = {(e["begin"], e["end"]) for e in graph["edges"]}
    line = ["partition trips-0", "operator buses", "state buses", "manifest", f"chk-{third}"]
    assert set(zip(line, line[1:], strict=False)) <= ways
    assert "dead buses" in {n["id"] for n in body_of(graphs.build_graph(world.pages, "trips", first))["nodes"]}


def test_the_graph_shows_expressions_and_how_many_records_were_filtered(world: TripsPipeline) -> None:
    plain = world.line.pipeline
    (buses,) = plain.operators
    assert isinstance(buses, Fold)
    folded = replace(buses, key_by={"bus": "lower(bus)"}, where="bus <> 'b'")
    world.line.pipeline = replace(plain, operators=[folded])
    graph = body_of(graphs.build_graph(world.pages, "trips", world.checkpoint("a", "b", "A", None)))
    facts = next(n for n in graph["nodes"] if n["id"] == "operator buses")["facts"]
    assert (facts["key"], facts["where"]) == ("bus = lower(bus)", "bus <> 'b'")
    assert (facts["records read"], facts["applied"], facts["filtered"], facts["dead letters"]) == (4, 2, 2, 0)


def test_the_graph_of_what_is_not_completed_and_of_a_restore(world: TripsPipeline) -> None:
    first = world.checkpoint("a")
    pin(world, "kept", first)
    failed = world.fail(HOSTILE)
    nodes = {n["id"]: n for n in body_of(graphs.build_graph(world.pages, "trips", failed))["nodes"]}
    assert nodes["manifest"]["status"] == "FAILED"
    assert nodes["manifest"]["facts"]["message"] == HOSTILE
    timelines.restore(world.pages, "trips", RestoreRequest(savepoint="kept", request="r"))
    after = world.checkpoint("b")
    nodes = {n["id"]: n for n in body_of(graphs.build_graph(world.pages, "trips", after))["nodes"]}
    assert (nodes["genesis"]["label"], nodes["genesis"]["second"]) == ("kept", "restore from savepoint")
    made = body_of(overview.find_made_by(world.pages, "trips", "any", "r"))
    assert made == {"pipeline": "trips", "checkpoints": [], "timelines": ["t2"], "savepoints": []}


def test_a_row_is_traced_to_the_checkpoint_and_the_offsets_that_changed_it(world: TripsPipeline) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    last: dict[str, int] = {}
    offsets: dict[int, tuple[int, int]] = {}
    for _ in range(6):
        begin = len(world.sent)
        buses = [chance.choice("abcd") for _ in range(chance.randrange(1, 4))]
        number = world.checkpoint(*buses)
        offsets[number] = (begin, len(world.sent))
        last |= dict.fromkeys(buses, number)
    for bus, number in last.items():
        told = body_of(row_origin.find_origin(world.pages, "trips", "buses", [bus]))
        changed = told["changed"]
        assert changed["checkpoint"] == number
        assert told["row"]["trips"] == sum(b == bus for b, _ in world.sent)
        (only,) = changed["ranges"]
        assert (only["partition"], (only["start"], only["end"])) == ("trips-0", offsets[number])
        assert any(b == bus for b, _ in world.sent[only["start"] : only["end"]])


def test_the_change_before_is_asked_with_the_parent(world: TripsPipeline) -> None:
    first = world.checkpoint("a")
    world.checkpoint("b")
    last = world.checkpoint("a")
    changed = body_of(row_origin.find_origin(world.pages, "trips", "buses", ["a"]))["changed"]
    assert changed["checkpoint"] == last
    assert (
        body_of(row_origin.find_origin(world.pages, "trips", "buses", ["a"], changed["parent"]))["changed"][
            "checkpoint"
        ]
        == first
    )


def test_what_is_unknown_is_said(world: TripsPipeline) -> None:
    world.checkpoint(HOSTILE)
    pages = world.pages
    assert body_of(row_origin.find_origin(pages, "trips", "buses", [HOSTILE]))["row"]["bus"] == HOSTILE
    wrong: tuple[Callable[[], object], ...] = (
        lambda: overview.get_overview(pages, "nobody", HistoryQuery()),
        lambda: details.get_details(pages, "trips", 99),
        lambda: graphs.build_graph(pages, "trips", 99),
        lambda: row_origin.find_origin(pages, "trips", "buses", ["nobody"]),
        lambda: row_origin.find_origin(pages, "trips", "nothing", ["a"]),
        lambda: previews.preview_disposal(pages, "trips", "nothing"),
        lambda: previews.preview_restore(pages, "trips", RestoreRequest(savepoint="nothing")),
    )
    for ask in wrong:
        with pytest.raises(NotFoundError):
            ask()
    with pytest.raises(UsageError):
        body_of(row_origin.find_origin(pages, "trips", "buses", ["a", "b"]))
    with pytest.raises(UsageError):
        body_of(previews.preview_restore(pages, "trips", RestoreRequest()))


def test_the_outlook_of_a_restore_is_that_of_its_dry_run(world: TripsPipeline) -> None:
    made = [world.checkpoint("a", "b"), world.checkpoint("a"), world.checkpoint("c")]
    context = world.pages
    for number in made:
        dry = body_of(
            describe_restore(timelines.plan_restore(context, "trips", RestoreRequest(checkpoint=number, request="x")))
        )
        told = body_of(previews.preview_restore(world.pages, "trips", RestoreRequest(checkpoint=number)))
        assert {name: told[name] for name in ("checkpoint", "closes", "left", "read_again")} == {
            name: dry[name] for name in ("checkpoint", "closes", "left", "read_again")
        }


def test_a_damaged_manifest_hides_no_other_line(world: TripsPipeline) -> None:
    first, second = world.checkpoint("a"), world.checkpoint("b")
    (world.folder / "timelines/t1/000000000002.json").write_bytes(b"{}")
    told = body_of(overview.get_overview(world.pages, "trips", HistoryQuery()))
    assert {line["id"]: line["status"] for line in told["history"]} == {first: "COMPLETED", second: "DAMAGED"}
    assert "000000000002.json" in told["trouble"]["what"]
    assert told["health"]["live"] is None


def test_of_a_damaged_manifest_the_plan_is_shown_with_its_neighbours(world: TripsPipeline) -> None:
    first, second, third = world.checkpoint("a"), world.checkpoint("b", "c"), world.checkpoint("d")
    (world.folder / "timelines/t1/000000000002.json").write_bytes(b"{}")
    told = body_of(details.get_details(world.pages, "trips", second))
    assert (told["status"], told["previous"], told["next"], told["parent"]) == ("DAMAGED", first, third, first)
    assert {r["partition"]: (r["start"], r["end"]) for r in told["ranges"]}["trips-0"] == (1, 3)
    assert "000000000002.json" in told["failure_message"] and "backup" in told["failure_next"]
    assert (told["tasks"], told["progress"], told["external_path"]) == ([], None, None)
    nodes = {n["id"]: n for n in body_of(graphs.build_graph(world.pages, "trips", second))["nodes"]}
    assert (nodes["manifest"]["status"], nodes["manifest"]["second"]) == ("DAMAGED", "damaged")
    assert nodes["state buses"]["second"] == "before: runs 0" and "after" not in nodes["state buses"]["facts"]
    assert (nodes["partition trips-0"]["second"], nodes[f"chk-{third}"]["checkpoint"]) == ("[1, 3)", third)
    plan = world.folder / "plans/t1/000000000002.0001.json"
    for spoil in (lambda: plan.write_bytes(b"{}"), plan.unlink):
        spoil()
        for ask in (details.get_details, graphs.build_graph):
            with pytest.raises(CorruptObjectError, match="timelines/t1/000000000002.json"):
                ask(world.pages, "trips", second)


def test_the_outlook_of_retention_is_its_plan(world: TripsPipeline) -> None:
    made = [world.checkpoint(bus) for bus in "abc"]
    pin(world, "kept", made[0])
    retention.declare_rule(world.pages, "trips", Retention.keep_last(1))
    told = body_of(previews.preview_retention(world.pages, "trips"))
    assert told["released"] == [f"chk-{made[1]}"]
    assert told["rule"] == "keep_last(1)"
    assert told["kept_bytes"] > 0
    assert any("kept" in keeper["why"] for keeper in told["kept_by"])


def test_details_tell_every_operator(world: TripsPipeline) -> None:
    number = world.checkpoint("a", "b", None)
    told = body_of(details.get_details(world.pages, "trips", number))
    (task,) = told["tasks"]
    assert (task["read"], task["applied"], task["dead_lettered"], task["keys"]) == (3, 2, 1, 2)
    assert task["checkpointed_size"] == told["checkpointed_size"] > 0
    assert {"fold", "runs"} <= task["timings"].keys()
    assert told["latest_ack_timestamp"] is not None
    assert [(r["partition"], r["start"], r["end"]) for r in told["ranges"]] == [("trips-0", 0, 3), ("trips-1", 0, 0)]
    failed = body_of(details.get_details(world.pages, "trips", world.fail()))
    assert (failed["status"], failed["tasks"], failed["failure_reason"]) == ("FAILED", [], "ENGINE_ERROR")


def test_details_have_the_verdict_of_a_gate_that_refused(world: TripsPipeline) -> None:
    world.drive("a")
    refused = Expectation(frame="records", type="expect_x", success=False, severity="critical", detail="1 of 1")
    plan, verdict = world.plan(), Verdict(passed=False, expectations=(refused,))
    reason = FailureReason.EXPECTATION_FAILED
    failure = Failure(reason=reason, message="gate failed", next="fix the data.", verdict=verdict)
    world.line.coordinator.abort(plan, failure)
    found = body_of(details.get_details(world.pages, "trips", plan.id))
    assert [(e["frame"], e["success"], e["detail"]) for e in found["expectations"]] == [("records", False, "1 of 1")]
    assert body_of(details.get_details(world.pages, "trips", world.fail()))["expectations"] == []


def test_details_say_which_checkpoints_before_were_released(world: TripsPipeline) -> None:
    first, second, third = (world.checkpoint(bus) for bus in "abc")
    release(world, first)
    released = [body_of(details.get_details(world.pages, "trips", n))["released"] for n in (second, third)]
    assert released == [[first], []]


def test_the_tree_says_whose_newest_checkpoint_was_released(world: TripsPipeline) -> None:
    first, newest = world.checkpoint("a"), world.checkpoint("b")
    timelines.restore(world.pages, "trips", RestoreRequest(checkpoint=first, request="back"))
    world.checkpoint("c")
    release(world, newest)
    found = {t["timeline"]: t["newest_released"] for t in map(body_of, overview.list_timelines(world.pages, "trips"))}
    assert found == {"t1": True, "t2": False}


def test_a_fork_that_was_closed_is_told_as_closed_in_the_tree(world: TripsPipeline) -> None:
    first = world.checkpoint("a")
    context = world.pages
    timelines.fork(context, "trips", "what-if", RestoreRequest(checkpoint=first))
    assert {t["timeline"]: t["fate"] for t in body_of(overview.list_timelines(world.pages, "trips"))} == {
        "t1": "live",
        "what-if": "fork",
    }
    timelines.close(context, "trips", "what-if")
    told = {t["timeline"]: t for t in body_of(overview.list_timelines(world.pages, "trips"))}
    assert {name: t["fate"] for name, t in told.items()} == {"t1": "live", "what-if": "closed"}
    assert (told["what-if"]["is_live"], told["what-if"]["successor"], told["what-if"]["parent"]) == (False, None, "t1")
