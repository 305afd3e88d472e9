"""Other code is deployed while a DAG run is between its tasks: what a manifest names is the code that computed it."""

from pathlib import Path

import pytest

from tests.airflow.world import MemoryRuntime, World
from tidemark.coordinator.records.states import Aborted, OpenPlan
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.discovery import find_pipeline
from tidemark.errors import ConflictError
from tidemark.model.failure import FailureReason
from tidemark.model.plan import CheckpointPlan, Slot
from tidemark.ports import PlanRequest
from tidemark.wiring import Runtime
from tidemark.wiring.backfills import BackfillTerms

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
def runtime(releases: Releases) -> Runtime:
    """One trip, planned by the first release; the second one is deployed then."""
    world = World()
    world.drive("a", 3)
    releases.deploy(releases.made("first", TRIPS))
    return MemoryRuntime(world)


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


def test_a_plan_of_other_code_is_planned_anew_by_the_fold_that_meets_it(runtime: Runtime, releases: Releases) -> None:
    planned = runtime.plan("trips", ASK).slot
    assert planned is not None
    releases.deploy(releases.made("second", OTHER))
    folded = runtime.fold("trips", planned, ASK)
    assert runtime.fold("trips", planned, ASK).slot == folded.slot, "a repeated task finds what stands in its place"
    made = runtime.complete("trips", folded.slot)
    assert folded.slot != planned
    assert made.plan.fingerprint == runtime.pipeline("trips").fingerprint
    state = runtime.coordinator("trips").state(runtime.plan_at("trips", planned))
    assert isinstance(state, Aborted)
    assert state.record.failure.reason is FailureReason.CODE_CHANGED


def test_what_was_sealed_before_stays_what_it_is(runtime: Runtime, releases: Releases) -> None:
    planned = runtime.plan("trips", ASK).slot
    assert planned is not None
    before = runtime.pipeline("trips").fingerprint
    runtime.fold("trips", planned, ASK)
    releases.deploy(releases.made("second", OTHER))
    assert runtime.complete("trips", planned).plan.fingerprint == before


def test_a_step_of_a_backfill_is_left_to_its_backfill(runtime: Runtime, releases: Releases) -> None:
    for _ in range(2):
        assert runtime.run_once("trips", ASK).checkpoint is not None
    one = runtime.backfill("trips", BackfillTerms(begins=RestoreRequest(checkpoint=1)))
    one.begin()
    step = runtime.next_step(one)
    assert isinstance(step, CheckpointPlan)
    releases.deploy(releases.made("second", OTHER))
    with pytest.raises(ConflictError, match="was planned by other code"):
        runtime.fold("trips", str(step.slot), ASK)
    assert isinstance(runtime.coordinator("trips").state(step), OpenPlan)


def test_a_run_whose_timeline_ended_before_its_fold_goes_on_with_the_live_one(runtime: Runtime) -> None:
    assert runtime.run_once("trips", ASK).checkpoint is not None
    planned = runtime.plan("trips", ASK).slot
    assert planned is not None
    runtime.restore("trips", RestoreRequest(checkpoint=1))
    made = runtime.complete("trips", runtime.fold("trips", planned, ASK).slot)
    assert (Slot.parse(planned).timeline, made.plan.slot.timeline) == ("t1", "t2")
