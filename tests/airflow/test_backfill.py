"""The backfill DAG, by `dag.test()`: form, mapped steps, comparison, question and answer, promote."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.conftest import HERE, Trigger
from tests.airflow.human_in_the_loop import human_answers
from tests.support.airflow import AirflowPipeline
from tests.support.airflow_disk import AirflowDiskPipeline
from tests.support.backfills import list_repeats, run_long_backfill, states_by_task
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.model.checkpoint.manifest import Checkpoint, Expectation, Verdict
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import checkpoints
from tidemark.ports import PlanRequest

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]
ASK = PlanRequest(origin="test")


@pytest.fixture
def disk(world: Any, monkeypatch: pytest.MonkeyPatch) -> AirflowDiskPipeline:
    """Three checkpoints of a trip each, and a savepoint of the first one."""
    made = AirflowDiskPipeline()
    monkeypatch.setattr("tidemark.context.open_context", made.open_context)
    for day in range(3):
        made.drive("a", day + 1, day=day)
        checkpoints.run_once(made.open_context(), "trips", ASK)
    request = SavepointRequest(name="sp", owner="me", origin="test", checkpoint=1)
    Savepoints(made.open_context().coordinator("trips")).create(request)
    return made


def test_it_repeats_step_by_step_compares_and_promotes(
    disk: AirflowDiskPipeline, trigger_backfill: Trigger, caplog: Any, capfd: Any
) -> None:
    run = trigger_backfill(savepoint="sp", mode="promote")
    assert (str(run.state), states_by_task(run)) == (
        "success",
        {task: ["success"] for task in ("plan", "compare", "approve", "promote")} | {"repeat": ["success"] * 2},
    )
    assert list_repeats(disk) == [(), (2,), (3,)]
    assert disk.buses() == {"a": (3, 6)}
    assert {c.plan.origin for c in disk.checkpoints()[1:]} == {run.run_id}
    logged = caplog.text + "".join(capfd.readouterr())
    assert "| buses | 0 | 0 | 0 | 1 |" in logged, "the same code makes no difference"
    disk.drive("a", 1, day=4)
    live = checkpoints.run_once(disk.open_context(), "trips", ASK).checkpoint
    assert live is not None
    assert live.plan.slot.timeline.startswith("backfill-sp-")
    again = trigger_backfill(savepoint="sp", mode="promote")
    assert (str(again.state), states_by_task(again)["repeat"]) == ("success", ["success"]), "a second run finds it done"
    assert len(disk.checkpoints()) == 4


def test_compare_only_leaves_the_live_timeline_alone(disk: AirflowDiskPipeline, trigger_backfill: Trigger) -> None:
    run = trigger_backfill(checkpoint="chk-1", to="chk-2", max_records=100, name="look")
    assert (str(run.state), states_by_task(run)) == (
        "success",
        {
            "plan": ["success"],
            "repeat": ["success"],
            "compare": ["success"],
            "approve": ["skipped"],
            "promote": ["skipped"],
        },
    )
    assert list_repeats(disk) == [(), (), ()]
    fork = disk.open_context().coordinator("trips").head("look").entry
    assert isinstance(fork, Checkpoint)
    assert fork.plan.replays == (2,)


def test_fields_that_only_one_of_the_codes_has_are_told(
    disk: AirflowDiskPipeline,
    trigger_backfill: Trigger,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: Any,
    capfd: Any,
) -> None:
    text = (HERE / "pipelines" / "trips.py").read_text()
    assert text.count('miles: int = state.sum("miles")') == 1
    (tmp_path / "pipelines").mkdir()
    changed = text.replace('miles: int = state.sum("miles")', 'longest: int | None = state.max("miles")')
    (tmp_path / "pipelines" / "trips.py").write_text(changed)
    monkeypatch.setenv("TIDEMARK_PIPELINES", str(tmp_path / "pipelines"))
    assert str(trigger_backfill(savepoint="sp", mode="compare").state) == "success"
    assert "| buses | 0 | 0 | 0 | 1 | +longest; -miles |" in caplog.text + "".join(capfd.readouterr())


@pytest.mark.parametrize(("answer", "live"), [("Approve", [(), (2,), (3,), (4,)]), ("Reject", [(), (), (), ()])])
def test_somebody_is_asked_while_live_checkpoints_go_on(
    disk: AirflowDiskPipeline, trigger_backfill: Trigger, answer: str, live: list[tuple[int, ...]]
) -> None:
    seen: list[str] = []

    def looks(detail: Any) -> None:
        seen.append(f"{detail.subject}\n{detail.body}")
        disk.drive("b", 9, day=5)
        checkpoints.run_once(disk.open_context(), "trips", ASK)

    with human_answers(answer, looks):
        run = trigger_backfill(savepoint="sp", mode="approve")
    assert str(run.state) == "success"
    assert "Make the backfilled timeline live?" in seen[0]
    assert "| buses | 0 | 0 | 0 | 1 |" in seen[0]
    assert seen[0].endswith("Reject: it stays next to the live timeline.")
    assert states_by_task(run)["promote"] == ["success" if answer == "Approve" else "skipped"]
    assert [r if len(r) < 1 or r[0] != 6 else (4,) for r in list_repeats(disk)] == live
    assert disk.buses() == {"a": (3, 6), "b": (1, 9)}


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({}, "name one restore point"),
        ({"savepoint": "sp", "checkpoint": "1"}, "name one restore point"),
        ({"savepoint": "nope"}, "no savepoint 'nope'"),
        ({"checkpoint": "x7"}, "not a checkpoint id"),
        ({"savepoint": "sp", "form": "b"}, "trigger it again with pipeline, savepoint"),
        ({"savepoint": "sp", "to": "77"}, "no completed checkpoint chk-77"),
        ({"savepoint": "sp", "to": "2", "mode": "approve"}, "up to chk-2 cannot become live"),
    ],
)
def test_a_form_that_does_not_fit_is_answered_by_the_first_task(
    disk: AirflowDiskPipeline, trigger_backfill: Trigger, conf: dict[str, Any], message: str, caplog: Any, capfd: Any
) -> None:
    run = trigger_backfill(**conf)
    assert str(run.state) == "failed"
    assert states_by_task(run)["plan"] == ["failed"]
    logged = caplog.text + "".join(capfd.readouterr())
    assert message in logged
    assert "Next: " in logged
    assert disk.open_context().coordinator("trips").timelines.names() == ["t1"]


@pytest.fixture
def refusing(disk: AirflowDiskPipeline) -> Iterator[None]:
    """A gate that refuses everything."""
    failed = Expectation(frame="records", type="nothing_is_good", success=False, severity="critical", detail="bad")
    disk.verdict = Verdict(passed=False, expectations=(failed,))
    yield
    disk.verdict = Verdict()


@pytest.mark.usefixtures("refusing")
def test_a_refused_step_ends_the_run_and_the_next_run_goes_on(
    disk: AirflowDiskPipeline, trigger_backfill: Trigger
) -> None:
    run = trigger_backfill(savepoint="sp", mode="promote")
    assert str(run.state) == "failed"
    assert states_by_task(run)["repeat"] == ["failed", "failed"]
    assert {states_by_task(run)[task][0] for task in ("compare", "approve", "promote")} == {"upstream_failed"}
    plans = disk.open_context().coordinator("trips").objects.list("plans/")
    assert len([key for key in plans if key.endswith(".abort.json")]) == 1, "the later step is not even tried"
    assert list_repeats(disk) == [(), (), ()]
    disk.verdict = Verdict()
    again = trigger_backfill(savepoint="sp", mode="promote")
    assert str(again.state) == "success"
    assert list_repeats(disk) == [(), (2,), (3,)]


@pytest.mark.usefixtures("airflow_home")
def test_steps_are_divided_evenly_among_the_tasks_that_airflow_allows() -> None:
    from tidemark.airflow.backfill_tasks import share_steps

    for steps, tasks in ((1500, 1024), (1024, 1024), (1025, 1024), (3, 1024), (7, 3), (1, 1), (0, 5)):
        ids = [(n, n + steps) for n in range(steps)]
        shares = share_steps(ids, tasks)
        counts = [share["count"] for share in shares]
        assert (sum(counts), len(shares)) == (steps, min(steps, tasks))
        assert not counts or max(counts) - min(counts) <= 1
    assert [share["step"] for share in share_steps([(1,), (2, 3), (4,)], 2)] == ["chk-1", "chk-2 chk-3 chk-4"]


def test_a_backfill_of_more_intervals_than_tasks_is_killed_and_goes_on(
    world: AirflowPipeline, trigger_backfill: Trigger, monkeypatch: pytest.MonkeyPatch, caplog: Any, capfd: Any
) -> None:
    run_long_backfill(30, 4, trigger_backfill, monkeypatch)
    assert "30 steps in 4 mapped tasks" in caplog.text + "".join(capfd.readouterr())
