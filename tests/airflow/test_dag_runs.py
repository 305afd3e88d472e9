"""Real DAG runs by `dag.test()`: operators, XCom, retries, callbacks and asset events are Airflow's own."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.airflow import DAY, PLACE, AirflowPipeline
from tidemark import Retention
from tidemark.context import Context
from tidemark.coordinator.records.states import NothingOpen
from tidemark.errors import BrokerError, BusyError, EngineError
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Expectation, Verdict
from tidemark.model.checkpoint.store_objects import AbortRecord
from tidemark.operations import checkpoints, reads, stop
from tidemark.ports import PlanRequest

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]
DagRun = Callable[..., Any]


def states(run: Any) -> dict[str, str]:
    return {ti.task_id: str(ti.state) for ti in run.get_task_instances()}


def tries(run: Any) -> dict[str, int]:
    return {ti.task_id: ti.try_number for ti in run.get_task_instances()}


def events(run: Any) -> list[Any]:
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select
    from sqlalchemy.orm import joinedload

    with create_session() as session:
        wanted = select(AssetEvent).where(AssetEvent.source_run_id == run.run_id).options(joinedload(AssetEvent.asset))
        return list(session.scalars(wanted.order_by(AssetEvent.id)))


def last_abort(context: Context) -> AbortRecord:
    """The abort record of the only plan that failed since the newest checkpoint."""
    found = context.coordinator("trips").open_plan()
    assert isinstance(found, NothingOpen), found
    (aborted,) = found.aborted
    return aborted


def broken(error: type[Exception]) -> Exception:
    return error("it broke", next="mend it")  # type: ignore[call-arg]


def test_a_run_completes_one_checkpoint_and_tells_the_assets(world: AirflowPipeline, dag_run: DagRun) -> None:
    world.drive("a", 3)
    world.drive("a", 4)
    world.drive("late", 1, day=1)
    run = dag_run(day=1)
    assert run.state == "success"
    assert states(run) == dict.fromkeys(("plan", "fold", "validate", "complete"), "success")
    (made,) = world.checkpoints()
    assert made.plan.origin == run.run_id
    assert world.buses() == {"a": (2, 7)}, "records from the interval's end on belong to the next run"
    by_uri = {event.asset.uri: event for event in events(run)}
    behind = by_uri.pop("x-tidemark://trips/completed")
    assert (behind.partition_key, behind.extra["id"]) == (None, "chk-1"), "Airflow starts other DAGs by events without"
    assert set(by_uri) == {"x-tidemark://trips/checkpoint", "x-tidemark://trips/state/buses"}
    for event in by_uri.values():
        assert event.partition_key == "chk-1"
        assert event.extra["id"] == "chk-1"
        assert event.source_task_id == "complete", "nothing is told before it is published"
    assert by_uri["x-tidemark://trips/checkpoint"].extra["records"] == 2


def test_only_what_changed_has_an_event_with_facts_of_its_own(world: AirflowPipeline, dag_run: DagRun) -> None:
    world.drive("a", 3)
    world.drive("b", 4)
    world.drive(None, 1)
    told = extras(dag_run(day=1))
    state, letters = (told[f"x-tidemark://trips/{kind}/buses"] for kind in ("state", "dead_letters"))
    (ack,) = world.checkpoints()[0].sealed.acks
    assert (state["keys"], state["rows"], state["bytes"]) == (2, ack.handle.rows, ack.handle.bytes)
    assert state["versions"] == {s.path: s.version for s in ack.handle}
    assert (letters["dead_lettered"], letters["rows"]) == (1, 1)
    assert "dead_lettered" not in state and "keys" not in letters
    assert "/dead_letters/" in next(iter(letters["versions"]))
    idle = set(extras(dag_run(day=2)))
    assert idle == {f"x-tidemark://trips/{kind}" for kind in ("checkpoint", "completed")}, "it read and changed nothing"


def test_each_checkpoint_of_a_run_is_a_key_of_what_it_changed(world: AirflowPipeline, dag_run: DagRun) -> None:
    for bus in ("a", "b", None, "a", "b"):
        world.drive(bus, 1)
    run = dag_run(day=1, conf={"max_records": 2})
    keys: dict[str, set[str | None]] = {}
    for event in events(run):
        keys.setdefault(event.asset.name, set()).add(event.partition_key)
    assert keys == {
        "trips/checkpoint": {"chk-1", "chk-2", "chk-3"},
        "trips/completed": {None},
        "trips/state/buses": {"chk-1", "chk-2", "chk-3"},
        "trips/dead_letters/buses": {"chk-2"},
    }


def test_consecutive_runs_add_up(world: AirflowPipeline, dag_run: DagRun) -> None:
    for day in range(3):
        world.drive("a", 1, day=day)
        assert dag_run(day=day + 1).state == "success"
    assert [c.plan.name for c in world.checkpoints()] == ["chk-1", "chk-2", "chk-3"]
    assert [world.buses(c)["a"] for c in world.checkpoints()] == [(1, 1), (2, 2), (3, 3)]


def extras(run: Any) -> dict[str, dict[str, Any]]:
    return {event.asset.uri: event.extra for event in events(run)}


def test_the_event_counts_what_the_retention_keeps_and_nothing_is_deleted(
    world: AirflowPipeline, dag_run: DagRun, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    runs = []
    for day in range(4):
        world.drive("a", 1, day=day)
        runs.append(dag_run(day=day + 1))
    told = [extras(run)["x-tidemark://trips/checkpoint"] for run in runs]
    assert [(extra["retention"], extra["kept"]) for extra in told] == [("keep_last(2)", n) for n in (1, 2, 2, 2)]
    assert "kept" not in extras(runs[-1])["x-tidemark://trips/state/buses"]
    logged = caplog.text + "".join(capfd.readouterr())
    assert "retention keep_last(2): keeps 1 (chk-1); a sweep releases the others" in logged
    assert "retention keep_last(2): keeps 2 (chk-4, chk-3); a sweep releases the others" in logged
    assert [world.buses(c)["a"] for c in world.checkpoints()] == [(n, n) for n in (1, 2, 3, 4)], "all are readable"
    again = reads.explain_kept(world.open_context(), world.checkpoints()[2], Retention.keep_last(2))
    assert list(again) == [3, 2], "a task that is repeated later says what it said"


def test_without_a_retention_nothing_is_said_of_it(
    world: AirflowPipeline, trips: Any, dag_run: DagRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trips.get_task("complete"), "retention", None)
    world.drive("a", 1)
    extra = extras(dag_run(day=1))["x-tidemark://trips/checkpoint"]
    assert extra["id"] == "chk-1"
    assert {"retention", "kept"}.isdisjoint(extra)


def test_a_manifest_that_cannot_be_read_does_not_fail_a_later_checkpoint(
    world: AirflowPipeline, dag_run: DagRun, tmp_path: Path, capfd: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for day in range(2):
        world.drive("a", 1, day=day)
        dag_run(day=day + 1)
    (oldest,) = tmp_path.rglob("timelines/*/000000000001.json")
    oldest.write_bytes(oldest.read_bytes()[:-9])
    world.drive("a", 1, day=2)
    run = dag_run(day=3)
    assert run.state == "success"
    assert tries(run)["complete"] == 1
    extra = extras(run)["x-tidemark://trips/checkpoint"]
    assert extra["id"] == "chk-3"
    assert "kept" not in extra
    captured = capfd.readouterr()
    assert "retention keep_last(2): not evaluated" in captured.out + captured.err + caplog.text


def test_a_covered_interval_succeeds_and_says_so(
    world: AirflowPipeline, dag_run: DagRun, capfd: Any, caplog: Any
) -> None:
    world.drive("a", 1)
    dag_run(day=1)
    run = dag_run(day=1)
    assert run.state == "success"
    assert states(run) == {"plan": "success", "fold": "skipped", "validate": "skipped", "complete": "skipped"}
    (planned,) = [ti for ti in run.get_task_instances() if ti.task_id == "plan"]
    assert planned.xcom_pull(task_ids="plan") == {"covered_by": "chk-1"}
    assert events(run) == []
    assert len(world.checkpoints()) == 1
    captured = capfd.readouterr()
    assert "covered by chk-1" in captured.out + captured.err + caplog.text


def test_a_run_without_interval_reads_what_is_there(world: AirflowPipeline, dag_run: DagRun) -> None:
    world.drive("a", 1)
    world.drive("b", 2, day=30)
    assert dag_run(day=None).state == "success"
    assert world.buses() == {"a": (1, 1), "b": (1, 2)}


def test_until_in_the_form_cuts_the_ranges(world: AirflowPipeline, dag_run: DagRun) -> None:
    world.drive("a", 1)
    world.drive("a", 1, day=1)
    assert dag_run(day=None, conf={"until": "2024-03-02T00:00:00Z"}).state == "success"
    assert world.buses() == {"a": (1, 1)}


def test_a_bounded_backlog_becomes_several_checkpoints_in_one_run(world: AirflowPipeline, dag_run: DagRun) -> None:
    for _ in range(5):
        world.drive("a", 1)
    run = dag_run(day=1, conf={"max_records": 2})
    assert run.state == "success"
    assert [c.sealed.facts.records for c in world.checkpoints()] == [2, 2, 1]
    keys = {e.partition_key for e in events(run) if e.asset.uri == "x-tidemark://trips/checkpoint"}
    assert keys == {"chk-1", "chk-2", "chk-3"}


@pytest.mark.parametrize("conf", [{"max_record": 5}, {"until": "tomorrow"}, {"accept_loss": "yes"}])
def test_conf_that_does_not_fit_is_refused_before_anything_is_planned(
    world: AirflowPipeline, dag_run: DagRun, conf: dict[str, Any]
) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    try:
        run = dag_run(day=1, conf=conf)
    except ParamValidationError:
        return  # Airflow's own check of the form
    assert run.state == "failed"
    assert states(run)["plan"] == "failed"
    assert tries(run)["plan"] == 1, "no retry mends a misspelt key"
    assert world.steps == []


def test_a_refused_candidate_fails_validate_and_is_aborted(
    world: AirflowPipeline, dag_run: DagRun, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    found = Expectation(frame="records", type="between", success=False, severity="critical", detail="miles -1")
    world.drive("a", -1)
    world.verdict = Verdict(passed=False, expectations=(found,))
    run = dag_run(day=1)
    assert run.state == "failed"
    assert states(run) == {
        "plan": "success",
        "fold": "success",
        "validate": "failed",
        "complete": "upstream_failed",
    }
    assert tries(run)["validate"] == 1
    assert events(run) == [], "nothing was published, so nothing is told"
    aborted = last_abort(world.open_context())
    assert aborted.failure.reason is FailureReason.EXPECTATION_FAILED
    assert aborted.failure.verdict == world.verdict
    told = caplog.text + "".join(capfd.readouterr())
    assert "failed records: between: miles -1" in told, "each expectation has a line of its own"
    assert "EXPECTATION_FAILED: gate failed" in told
    assert "EXPECTATION_FAILED: EXPECTATION_FAILED" not in told


def test_after_a_refusal_the_same_offsets_are_planned_under_a_new_id(world: AirflowPipeline, dag_run: DagRun) -> None:
    world.drive("a", 5)
    world.verdict = Verdict(passed=False)
    dag_run(day=1)
    world.verdict = Verdict()
    assert dag_run(day=1).state == "success"
    assert [c.plan.name for c in world.checkpoints()] == ["chk-2"]
    assert world.buses() == {"a": (1, 5)}


def test_a_refused_later_piece_of_a_backlog_is_not_taken_for_the_first(world: AirflowPipeline, dag_run: DagRun) -> None:
    for _ in range(4):
        world.drive("a", 1)
    judged = iter([Verdict(), Verdict(passed=False)])
    world.judge = lambda: lambda plan, runs: next(judged)  # type: ignore[method-assign]
    run = dag_run(day=1, conf={"max_records": 2})
    assert run.state == "failed"
    assert states(run)["validate"] == "failed"
    assert len(world.checkpoints()) == 1


def test_a_retry_takes_the_next_attempt_and_applies_nothing_twice(world: AirflowPipeline, dag_run: DagRun) -> None:
    world.drive("a", 3)
    world.accidents = [("seal", broken(EngineError)), ("runs.buses", broken(EngineError))]
    run = dag_run(day=1)
    assert run.state == "success"
    assert tries(run)["fold"] == 3
    (made,) = world.checkpoints()
    assert made.sealed.attempt == 3
    assert world.buses() == {"a": (1, 3)}


def test_a_lost_reply_at_the_end_is_repaired_by_the_retry(world: AirflowPipeline, dag_run: DagRun) -> None:
    world.drive("a", 3)
    world.accidents = [("publish", broken(BrokerError))]
    run = dag_run(day=1)
    assert run.state == "success"
    assert tries(run)["complete"] == 2
    assert len(world.checkpoints()) == 1
    assert world.buses() == {"a": (1, 3)}


def test_when_every_try_failed_the_plan_is_aborted_with_its_reason(
    world: AirflowPipeline, dag_run: DagRun, capfd: Any, caplog: Any
) -> None:
    world.drive("a", 3)
    world.accidents = [("read", broken(EngineError))] * 3
    run = dag_run(day=1)
    assert run.state == "failed"
    assert tries(run)["fold"] == 3
    aborted = last_abort(world.open_context())
    assert aborted.failure.reason is FailureReason.ENGINE_ERROR
    captured = capfd.readouterr()
    assert "ENGINE_ERROR" in captured.out + captured.err + caplog.text
    assert dag_run(day=1).state == "success"
    assert world.buses() == {"a": (1, 3)}


def test_a_final_reason_is_not_retried(world: AirflowPipeline, dag_run: DagRun) -> None:
    for _ in range(3):
        world.drive(None, 1)
    run = dag_run(day=1)
    assert run.state == "failed"
    assert tries(run)["fold"] == 1
    aborted = last_abort(world.open_context())
    assert aborted.failure.reason is FailureReason.DEAD_LETTERS_EXCEEDED


def test_a_run_of_a_stopped_pipeline_fails_at_once_and_says_so(
    world: AirflowPipeline, dag_run: DagRun, capfd: Any, caplog: Any
) -> None:
    world.drive("a", 1)
    stop.stop(world.open_context(), "trips", "disk swap")
    run = dag_run(day=1)
    assert (run.state, tries(run)["plan"]) == ("failed", 1)
    captured = capfd.readouterr()
    assert "the pipeline is stopped: disk swap" in captured.out + captured.err + caplog.text
    stop.resume(world.open_context(), "trips", "done")
    assert dag_run(day=1).state == "success"


def test_lost_offsets_stop_the_run_until_the_loss_is_accepted(world: AirflowPipeline, dag_run: DagRun) -> None:
    world.drive("a", 1)
    dag_run(day=1)
    world.drive("a", 2, day=1)
    world.drive("a", 4, day=1)
    world.log.trim(PLACE, 2)
    run = dag_run(day=2)
    assert run.state == "failed"
    assert tries(run)["plan"] == 1
    assert dag_run(day=2, conf={"accept_loss": True}).state == "success"
    assert world.buses() == {"a": (2, 5)}
    (gap,) = world.checkpoints()[-1].plan.losses
    assert re.search(r"1", str(gap.lost))


def test_a_run_finishes_an_open_plan_and_then_covers_its_own_interval(world: AirflowPipeline, dag_run: DagRun) -> None:
    world.drive("a", 1)
    world.drive("a", 1, day=1)
    request = PlanRequest(origin="cli", interval_end=DAY.replace(day=2), until_interval_end=True)
    checkpoints.plan(world.open_context(), "trips", request)
    assert dag_run(day=2).state == "success"
    assert [c.sealed.facts.records for c in world.checkpoints()] == [1, 1]
    assert world.buses() == {"a": (2, 2)}


def test_what_an_earlier_run_left_sealed_is_published_and_told_by_the_next(
    world: AirflowPipeline, dag_run: DagRun
) -> None:
    world.drive("a", 1)
    runtime, died = world.open_context(), PlanRequest(origin="died")
    slot = checkpoints.plan(runtime, "trips", died).slot
    assert slot is not None
    checkpoints.fold(runtime, "trips", slot, died)
    world.drive("a", 1, day=1)
    run = dag_run(day=2)
    assert run.state == "success"
    told = {e.partition_key for e in events(run) if e.asset.uri == "x-tidemark://trips/checkpoint"}
    assert told == {"chk-1", "chk-2"}


def test_a_fold_that_takes_too_long_expires_and_is_not_tried_again(
    world: AirflowPipeline, trips: Any, dag_run: DagRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.drive("a", 3)
    monkeypatch.setattr(trips.get_task("fold"), "attempt_timeout", 1_000)
    monkeypatch.setattr(world, "judge", lambda: lambda plan, runs: time.sleep(20))
    run = dag_run(day=1)
    assert run.state == "failed"
    assert tries(run)["fold"] == 1
    aborted = last_abort(world.open_context())
    assert aborted.failure.reason is FailureReason.EXPIRED


def slow(seconds: float) -> Verdict:
    """A gate that passes after a while."""
    time.sleep(seconds)
    return Verdict()


def test_each_checkpoint_of_a_run_has_the_whole_timeout(
    world: AirflowPipeline, trips: Any, dag_run: DagRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(8):
        world.drive("a", 1)
    monkeypatch.setattr(trips.get_task("fold"), "attempt_timeout", 2_000)
    monkeypatch.setattr(world, "judge", lambda: lambda plan, runs: slow(0.8))
    began = time.monotonic()
    assert dag_run(day=1, conf={"max_records": 2}).state == "success"
    assert time.monotonic() - began > 3.2
    assert [c.sealed.facts.records for c in world.checkpoints()] == [2, 2, 2, 2]


def test_a_later_checkpoint_of_a_run_expires_alone(
    world: AirflowPipeline, trips: Any, dag_run: DagRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        world.drive("a", 1)
    waits = iter([0, 20])
    monkeypatch.setattr(trips.get_task("fold"), "attempt_timeout", 1_000)
    monkeypatch.setattr(world, "judge", lambda: lambda plan, runs: slow(next(waits)))
    run = dag_run(day=1, conf={"max_records": 2})
    assert (run.state, tries(run)["fold"]) == ("failed", 1)
    assert last_abort(world.open_context()).failure.reason is FailureReason.EXPIRED
    assert [c.sealed.facts.records for c in world.checkpoints()] == [2]
    monkeypatch.setattr(world, "judge", lambda: lambda plan, runs: Verdict())
    assert dag_run(day=1, conf={"max_records": 2}).state == "success"
    assert [c.sealed.facts.records for c in world.checkpoints()] == [2, 1, 1], "half of what was too much"


def test_the_next_run_tells_what_a_failed_one_completed(world: AirflowPipeline, dag_run: DagRun) -> None:
    world.drive("a", 1)
    assert dag_run(day=1).state == "success"
    for _ in range(4):
        world.drive("a", 1, day=1)
    judged = iter([Verdict(), Verdict(passed=False)])
    world.judge = lambda: lambda plan, runs: next(judged)  # type: ignore[method-assign]
    failed = dag_run(day=2, conf={"max_records": 2})
    assert (failed.state, events(failed)) == ("failed", [])
    world.judge = lambda: lambda plan, runs: Verdict()  # type: ignore[method-assign]
    run = dag_run(day=3)
    told = {e.partition_key for e in events(run) if e.asset.uri == "x-tidemark://trips/checkpoint"}
    assert told == {c.plan.name for c in world.checkpoints()[1:]}
    assert len(told) == 2, "the failed run's first checkpoint, and its own"
    assert {e.partition_key for e in events(dag_run(day=4)) if e.asset.name == "trips/checkpoint"} == {
        world.checkpoints()[-1].plan.name
    }


def test_a_run_that_is_stopped_in_the_middle_is_not_green(world: AirflowPipeline, dag_run: DagRun) -> None:
    for _ in range(4):
        world.drive("a", 1)

    def judge(plan: Any, runs: Any) -> Verdict:
        stop.stop(world.open_context(), "trips", "disk swap")
        return Verdict()

    world.judge = lambda: judge  # type: ignore[method-assign]
    run = dag_run(day=1, conf={"max_records": 2})
    assert run.state == "failed"
    assert states(run)["fold"] == "failed"
    assert len(world.checkpoints()) == 1


def test_a_run_that_ran_out_of_time_leaves_no_plan_open(world: AirflowPipeline, trips: Any) -> None:
    world.drive("a", 3)
    runtime = world.open_context()
    checkpoints.plan(runtime, "trips", PlanRequest(origin="slow-run"))
    for context in ({"reason": "task_failure", "run_id": "slow-run"}, {"reason": "timed_out", "run_id": "other"}):
        (expire,) = trips.on_failure_callback
        expire(context)
        assert checkpoints.find_pending(runtime, "trips") is not None, "only its own plan, and only for this reason"
    expire({"reason": "timed_out", "run_id": "slow-run"})
    aborted = last_abort(runtime)
    assert aborted.failure.reason is FailureReason.EXPIRED


def test_a_busy_timeline_is_waited_for(world: AirflowPipeline, dag_run: DagRun) -> None:
    world.drive("a", 3)
    world.accidents = [("attempt", BusyError("held", next="wait"))]
    run = dag_run(day=1)
    assert run.state == "success"
    assert tries(run)["fold"] == 2
    assert world.buses() == {"a": (1, 3)}
