"""Events of OpenLineage: what is in them, held to the specification; what is not; and receivers that do not work."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.disk_context import DiskContext
from tests.support.openlineage import complaints, receiving
from tests.support.openlineage_sent import sent
from tests.support.trips import TripsPipeline
from tidemark.errors import EngineError, TidemarkError
from tidemark.model.checkpoint.plan import Interval
from tidemark.operations import checkpoints, reads, stop
from tidemark.ports import PlanRequest
from tidemark.ports.observing import LineageEvent
from tidemark.testing.twin.memory import MemoryLineage

CANARY = "canary-7d1f"
"""A key; it must be in no event."""
Events = list[dict[str, Any]]


def lines(world: TripsPipeline) -> Events:
    """The events of the file, each held to the specification."""
    path = world.root / "told" / "lineage.jsonl"
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for event in found:
        assert complaints(event) == []
    return found


def to_file(world: TripsPipeline, **settings: Any) -> DiskContext:
    return world.context(openlineage="file:told/lineage.jsonl", **settings)


def run(context: DiskContext, **request: Any) -> None:
    checkpoints.run_once(context, "trips", PlanRequest(origin="manual__1", **request))


def facet(event: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = event["run"]["facets"][name]
    return found


def test_the_rules_find_what_is_wrong() -> None:
    """The schema of the tests refuses what the published one does."""
    for broken in ({}, {"eventType": "BEGIN"}, {"run": {"runId": "1"}}):
        assert complaints(broken)


def test_a_checkpoint_is_announced_with_offsets_versions_and_its_manifest(world: TripsPipeline) -> None:
    world.drive("a", "b", None)
    run(to_file(world))
    start, complete = lines(world)
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert complete["job"]["namespace"] == "tidemark"
    assert complete["job"]["name"] == "trips"
    (made,) = reads.list_checkpoints(world.context(), "trips")
    told = facet(complete, "tidemark_checkpoint")
    assert (told["id"], told["timeline"], told["attempt"], told["origin"]) == ("chk-1", "t1", 1, "manual__1")
    assert (world.line.root / told["manifest"]).is_file()
    assert "parent" not in told
    for event in (start, complete):
        (topic,) = event["inputs"]
        assert (topic["namespace"], topic["name"]) == ("kafka://localhost:9092", "trips")
        bounds = topic["inputFacets"]["tidemark_offsets"]["partitions"]
        assert bounds == {"0": {"start": 0, "end": 3}, "1": {"start": 0, "end": 0}}
    written = {o["name"]: o for o in complete["outputs"]}
    (ack,) = made.sealed.acks
    assert set(written) == {f"{world.line.root}/{commit.path}" for commit in ack.commits}
    for commit in ack.commits:
        facets = written[f"{world.line.root}/{commit.path}"]["facets"]
        assert facets["version"]["datasetVersion"] == str(commit.version)
        assert (world.line.root / commit.path / "_delta_log" / f"{commit.version:020d}.json").is_file()
    kinds = {o["facets"]["tidemark_table"]["kind"]: o["outputFacets"]["outputStatistics"] for o in complete["outputs"]}
    assert (kinds["state"]["rowCount"], kinds["state"]["size"]) == (2, ack.run_bytes)
    assert kinds["dead letters"]["rowCount"] == 1


def test_the_next_one_names_its_parent(world: TripsPipeline) -> None:
    for bus in "ab":
        world.drive(bus)
        run(to_file(world))
    assert [facet(e, "tidemark_checkpoint").get("parent") for e in lines(world)] == [None, None, "chk-1", "chk-1"]
    assert len({e["run"]["runId"] for e in lines(world)}) == 2


def test_steps_in_processes_of_their_own_tell_one_run(world: TripsPipeline) -> None:
    """As Airflow does it: plan, fold, complete, complete once more."""
    world.drive("a")
    request = PlanRequest(origin="manual__1")
    slot = checkpoints.plan(to_file(world), "trips", request).slot
    assert slot is not None
    checkpoints.fold(to_file(world), "trips", slot, request)
    assert [e["eventType"] for e in lines(world)] == ["START"]
    for _ in range(2):
        checkpoints.complete(to_file(world), "trips", slot)
    assert [e["eventType"] for e in lines(world)] == ["START", "COMPLETE", "COMPLETE"]
    assert len({e["run"]["runId"] for e in lines(world)}) == 1


def test_a_failed_attempt_tells_its_reason_and_the_next_one_is_another_run(world: TripsPipeline) -> None:
    world.drive(CANARY)
    context = to_file(world)

    def broken(*_: object) -> None:
        raise EngineError(f"the value of {CANARY} is too large", next="mend it")

    context.execute = broken  # type: ignore[assignment, method-assign]
    with pytest.raises(EngineError):
        run(context)
    run(to_file(world))
    first, failed, second, complete = lines(world)
    assert [e["eventType"] for e in (first, failed, second, complete)] == ["START", "FAIL", "START", "COMPLETE"]
    assert facet(failed, "errorMessage")["message"] == "ENGINE_ERROR"
    assert first["run"]["runId"] == failed["run"]["runId"] != second["run"]["runId"] == complete["run"]["runId"]
    assert [facet(e, "tidemark_checkpoint")["attempt"] for e in lines(world)] == [1, 1, 2, 2]


def test_no_key_no_value_and_no_secret_is_in_any_event(world: TripsPipeline) -> None:
    world.drive(CANARY, None)
    with receiving() as receiver:
        run(world.context(openlineage=receiver.address, openlineage_api_key=f"{CANARY}-secret"))
    assert len(receiver.events) == 2
    assert CANARY not in json.dumps(receiver.events)
    assert all(headers["Authorization"] == f"Bearer {CANARY}-secret" for _, headers in receiver.requests)
    assert all(path == "/api/v1/lineage" for path, _ in receiver.requests)
    world.drive(CANARY)
    run(to_file(world))
    assert CANARY not in json.dumps(lines(world))


def test_an_interval_is_the_nominal_time(world: TripsPipeline) -> None:
    world.drive("a")
    plan = replace(world.plan(), interval=Interval(start_ms=0, end_ms=86_400_000))
    event = sent(LineageEvent(plan=plan, attempt=1, at_ms=1_500))
    assert complaints(event) == []
    assert event["eventTime"] == "1970-01-01T00:00:01.500Z"
    assert facet(event, "nominalTime")["nominalEndTime"] == "1970-01-02T00:00:00.000Z"


def test_it_is_off_unless_it_is_set(world: TripsPipeline) -> None:
    world.drive("a")
    run(world.context())
    assert lines(world) == []
    assert world.context().observers.lineage is None


@pytest.mark.parametrize("status", [201, 500, 301, 308])
def test_what_a_receiver_answers_fails_no_run(world: TripsPipeline, logged: list[dict[str, Any]], status: int) -> None:
    world.drive("a")
    with receiving(status) as receiver:
        run(world.context(openlineage=receiver.address))
    assert len(reads.list_checkpoints(world.context(), "trips")) == 1
    warned = [e for e in logged if e["event"] == "observer_given_up"]
    assert len(warned) == (0 if status == 201 else 1)
    assert len(receiver.requests) == (2 if status == 201 else 1), "after a failure nothing more is tried"


def test_a_receiver_that_is_closed_fails_no_run(world: TripsPipeline, logged: list[dict[str, Any]]) -> None:
    with receiving() as receiver:
        closed = receiver.address
    world.drive("a")
    run(world.context(openlineage=closed))
    assert len(reads.list_checkpoints(world.context(), "trips")) == 1
    assert [e["what"] for e in logged if e["event"] == "observer_given_up"] == ["lineage"]


def test_a_receiver_that_hangs_holds_a_run_up_for_two_seconds_once(
    world: TripsPipeline, logged: list[dict[str, Any]], waits: list[float]
) -> None:
    world.drive("a")
    with receiving(hangs=True) as receiver:
        run(world.context(openlineage=receiver.address))
        assert len(reads.list_checkpoints(world.context(), "trips")) == 1, (
            "it was completed while the receiver still hangs"
        )
    assert sum(waits) <= 2.0, "nothing, where the client's own two seconds were over first"
    assert len(receiver.requests) == 1
    assert len([e for e in logged if e["event"] == "observer_given_up"]) == 1


def test_a_file_that_cannot_be_written_fails_no_run(world: TripsPipeline, logged: list[dict[str, Any]]) -> None:
    (world.root / "told").write_text("a file where the folder should be")
    world.drive("a")
    run(to_file(world))
    assert len(reads.list_checkpoints(world.context(), "trips")) == 1
    assert [e["what"] for e in logged if e["event"] == "observer_given_up"] == ["lineage"]


def test_the_twin_keeps_what_the_receiver_gets(world: TripsPipeline) -> None:
    world.drive("a")
    context, twin = world.context(), MemoryLineage()
    context.observers.lineage = twin
    run(context)
    told = [sent(event) for event in twin.events]
    assert [e["eventType"] for e in told] == ["START", "COMPLETE"]
    assert all(complaints(event) == [] for event in told)


def test_an_error_of_planning_announces_nothing(world: TripsPipeline) -> None:
    context = to_file(world)
    stop.stop(context, "trips", "enough")
    with pytest.raises(TidemarkError):
        run(context)
    assert lines(world) == []


def test_an_interrupt_ends_the_run_of_an_attempt_too(world: TripsPipeline) -> None:
    """Ctrl-C and Airflow's timeouts are no Exceptions."""
    world.drive("a")
    context = to_file(world)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    context.execute = interrupted  # type: ignore[assignment, method-assign]
    with pytest.raises(KeyboardInterrupt):
        run(context)
    assert [e["eventType"] for e in lines(world)] == ["START", "FAIL"]
    assert facet(lines(world)[1], "errorMessage")["message"] == "TASK_FAILURE"


def test_what_was_left_sealed_is_announced_by_whoever_publishes_it(world: TripsPipeline) -> None:
    world.drive("a")
    request = PlanRequest(origin="manual__1")
    slot = checkpoints.plan(to_file(world), "trips", request).slot
    assert slot is not None
    checkpoints.fold(to_file(world), "trips", slot, request)
    world.drive("b")
    planned = checkpoints.plan(to_file(world), "trips", PlanRequest(origin="manual__2"))
    assert planned.published == (1,)
    assert [e["eventType"] for e in lines(world)] == ["START", "COMPLETE"]
    assert {facet(e, "tidemark_checkpoint")["origin"] for e in lines(world)} == {"manual__1"}
