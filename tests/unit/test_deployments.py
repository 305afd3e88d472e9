"""Other code is deployed while a DAG run is between its tasks: what a manifest names is the code that computed it."""

from pathlib import Path

import pytest

from tests.support.airflow import AirflowPipeline, MemoryContext
from tidemark.context import Context
from tidemark.coordinator.records.states import Aborted, OpenPlan
from tidemark.coordinator.recovery.backfill import BackfillRequest
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.environment import find_pipeline
from tidemark.errors import ConflictError
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.plan import CheckpointPlan, Slot
from tidemark.operations import backfill, checkpoints, timelines
from tidemark.ports import PlanRequest

ASK = PlanRequest(origin="test")
TRIPS = (Path(__file__).parents[1] / "airflow/pipelines/trips.py").read_text()
GATED = TRIPS.replace("max_dead_letters=0.5", "max_dead_letters=0.5, gate=dict")
OTHER = TRIPS.replace("miles: int", "miles: int | None")


class Releases:
    """Folders of code, and a link to the deployed one."""

    def __init__(self, root: Path) -> None:
        self.root, self.link = root, root / "deployed" / "pipelines"
        self.link.parent.mkdir()

    def made(self, name: str, text: str) -> Path:
        folder = self.root / name / "pipelines"
        folder.mkdir(parents=True)
        (folder / "trips.py").write_text(text)
        return folder

    def deploy(self, folder: Path) -> None:
        self.link.unlink(missing_ok=True)
        self.link.symlink_to(folder)


@pytest.fixture
def releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Releases:
    made = Releases(tmp_path)
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_PIPELINES", str(made.link))
    assert OTHER.count("int | None") == 2
    return made


@pytest.fixture
def context(releases: Releases) -> Context:
    """One trip, planned by the first release; the second one is deployed then."""
    world = AirflowPipeline()
    world.drive("a", 3)
    releases.deploy(releases.made("first", TRIPS))
    return MemoryContext(world)


def test_a_copy_of_a_file_is_the_same_code(releases: Releases) -> None:
    one, other = (find_pipeline("trips", [releases.made(name, GATED)]) for name in ("one", "other"))
    assert one is not other
    assert one.fingerprint == other.fingerprint
    assert find_pipeline("trips", [releases.root / "other" / "pipelines"]) is other, "one identity in a process"


def test_a_link_leads_to_the_code_that_it_leads_to_now(releases: Releases) -> None:
    found = []
    for name, text in (("first", TRIPS), ("second", OTHER)):
        releases.deploy(releases.made(name, text))
        found.append(find_pipeline("trips", [releases.link]).fingerprint)
    assert len(set(found)) == 2


def test_a_plan_of_other_code_is_planned_anew_by_the_fold_that_meets_it(context: Context, releases: Releases) -> None:
    planned = checkpoints.plan(context, "trips", ASK).slot
    assert planned is not None
    releases.deploy(releases.made("second", OTHER))
    folded = checkpoints.fold(context, "trips", planned, ASK)
    assert checkpoints.fold(context, "trips", planned, ASK).slot == folded.slot, (
        "a repeated task finds what stands in its place"
    )
    made = checkpoints.complete(context, "trips", folded.slot)
    assert folded.slot != planned
    assert made.plan.fingerprint == context.pipeline("trips").fingerprint
    state = context.coordinator("trips").state(checkpoints.get_plan(context, "trips", planned))
    assert isinstance(state, Aborted)
    assert state.record.failure.reason is FailureReason.CODE_CHANGED


def test_what_was_sealed_before_stays_what_it_is(context: Context, releases: Releases) -> None:
    planned = checkpoints.plan(context, "trips", ASK).slot
    assert planned is not None
    before = context.pipeline("trips").fingerprint
    checkpoints.fold(context, "trips", planned, ASK)
    releases.deploy(releases.made("second", OTHER))
    assert checkpoints.complete(context, "trips", planned).plan.fingerprint == before


def test_a_step_of_a_backfill_is_left_to_its_backfill(context: Context, releases: Releases) -> None:
    for _ in range(2):
        assert checkpoints.run_once(context, "trips", ASK).checkpoint is not None
    one = backfill.open_backfill(context, "trips", BackfillRequest(begins=RestoreRequest(checkpoint=1)))
    one.begin()
    step = backfill.plan_step(context, one)
    assert isinstance(step, CheckpointPlan)
    releases.deploy(releases.made("second", OTHER))
    with pytest.raises(ConflictError, match="was planned by other code"):
        checkpoints.fold(context, "trips", str(step.slot), ASK)
    assert isinstance(context.coordinator("trips").state(step), OpenPlan)


def test_a_run_whose_timeline_ended_before_its_fold_goes_on_with_the_live_one(context: Context) -> None:
    assert checkpoints.run_once(context, "trips", ASK).checkpoint is not None
    planned = checkpoints.plan(context, "trips", ASK).slot
    assert planned is not None
    timelines.restore(context, "trips", RestoreRequest(checkpoint=1))
    made = checkpoints.complete(context, "trips", checkpoints.fold(context, "trips", planned, ASK).slot)
    assert (Slot.parse(planned).timeline, made.plan.slot.timeline) == ("t1", "t2")
