"""How far targets are behind: checkpoints, records and time, and the verdict with its reason."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.publications.published_ward import NAME, PublishedWard
from tidemark.answers.publication_facts import PublicationLag, PublicationStatus, PublicationTask
from tidemark.answers.run_outcomes import TaskFailure
from tidemark.coordinator.records.states import OpenPlan
from tidemark.errors import NotFoundError
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.store_objects import Failure
from tidemark.operations.publications import publishing
from tidemark.ports import PlanRequest
from tidemark.web.publication_lag import describe_publication, judge, list_publication_lags

UID = "sensors"


class LaggingWard(PublishedWard):
    """A ward whose clock the test moves, and which knows when each checkpoint was completed, with how many records."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, random.Random(seed))
        self.context.clock = self.line.clock
        self.done: dict[int, tuple[int, int]] = {}

    def complete(self) -> int:
        """A checkpoint, a minute after the one before."""
        before = self.sent
        self.line.clock.advance(60_000)
        made = self.checkpoint().id
        self.done[made] = (self.line.clock.now_ms(), self.sent - before)
        return made

    def lag(self, uid: str = UID) -> PublicationLag:
        """That of an operator's publication."""
        found = {one.uid: one for one in list_publication_lags(self.context, NAME, lambda names: {})}
        return found[uid]


@pytest.fixture
def ward(tmp_path: Path) -> LaggingWard:
    seed = random.randrange(2**32)
    print("seed", seed)
    return LaggingWard(tmp_path, seed)


def test_the_lag_is_that_of_the_checkpoints_which_the_target_does_not_have(ward: LaggingWard) -> None:
    ward.complete()
    ward.publish(UID)
    ward.publish("kept")
    lag = ward.lag()
    assert (lag.verdict, lag.behind, lag.records, lag.late_ms) == ("UP_TO_DATE", 0, 0, 0)
    had, missing = lag.checkpoint, [ward.complete() for _ in range(ward.chance.randrange(1, 5))]
    ward.line.clock.advance(7 * 60_000)
    lag = ward.lag()
    assert (lag.verdict, lag.state, lag.checkpoint, lag.newest) == ("BEHIND", "behind", had, f"chk-{missing[-1]}")
    assert lag.behind == len(missing)
    assert lag.records == sum(ward.done[n][1] for n in missing)
    assert lag.late_ms == ward.line.clock.now_ms() - ward.done[missing[0]][0]
    ward.publish(UID)
    assert ward.lag().verdict == "UP_TO_DATE" and ward.lag("kept").behind == len(missing)


def test_a_publication_that_was_not_begun_is_declared_by_the_newest_plan(ward: LaggingWard) -> None:
    names = [ward.publication(uid) for uid in sorted(ward.uids)]
    planned = ward.line.coordinator.trigger(ward.pipeline, PlanRequest(origin="test"))
    assert isinstance(planned, OpenPlan)
    for _ in range(2):
        none = list_publication_lags(ward.context, NAME, lambda names: {})
        assert [(one.publication, one.behind, one.why) for one in none] == [
            (name, 0, "there is no checkpoint to publish yet") for name in names
        ], "a plan that failed says as much of the declaration as an open one"
        ward.line.coordinator.abort(planned.plan, Failure(reason=FailureReason.ENGINE_ERROR, message="", next=""))
    first = ward.complete()
    for _ in range(ward.chance.randrange(1, 5)):
        ward.complete()
    ward.restore(first)
    lag = ward.lag("kept")
    assert (lag.verdict, lag.behind, lag.records) == ("NOT_STARTED", 1, ward.done[first][1])
    made = [first, *(ward.complete() for _ in range(ward.chance.randrange(1, 5)))]
    ward.publish(UID)
    found = {one.publication: one for one in list_publication_lags(ward.context, NAME, lambda names: {})}
    assert list(found) == names
    for uid in ("fresh", "kept"):
        lag = found[ward.publication(uid)]
        assert (lag.uid, lag.kind, lag.place) == (uid, "delta-mirror", str(ward.mirror(uid)))
        assert (lag.verdict, lag.state, lag.checkpoint, lag.newest) == ("NOT_STARTED", "new", None, f"chk-{made[-1]}")
        assert (lag.behind, lag.records) == (len(made), ward.sent), "the live timeline has read each record once"
        assert lag.late_ms == ward.line.clock.now_ms() - ward.done[first][0]
    listed = {one.publication: one for one in publishing.list_publications(ward.context, NAME)}
    assert {name: one.behind for name, one in listed.items()} == {name: one.behind for name, one in found.items()}
    details = describe_publication(ward.context, NAME, ward.publication("kept"), 10)
    assert (details.status, details.steps) == (listed[ward.publication("kept")], [])


def test_its_records_are_known_once_the_history_is_read(ward: LaggingWard, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_PORTION", "PORTION"):
        monkeypatch.setattr(f"tidemark.web.history_cache.{name}", 1)
    for _ in range(3):
        ward.complete()
    seen = [ward.lag() for _ in range(4)]
    assert [one.records for one in seen] == [None, None, ward.sent, ward.sent]
    assert [one.late_ms is None for one in seen] == [True, True, False, False] and seen[-1].behind == 3


def test_a_publication_shows_from_the_plan_that_declares_it_to_the_first_that_does_not(ward: LaggingWard) -> None:
    def declared() -> set[str]:
        return {one.uid for one in list_publication_lags(ward.context, NAME, lambda names: {})}

    ward.complete()
    ward.uids = ("sensors", "kept")
    ward.declare()
    assert declared() == {"sensors", "kept", "fresh"}, "no plan has the new declaration yet"
    ward.complete()
    assert declared() == {"sensors", "kept"}
    with pytest.raises(NotFoundError, match="has begun no publication 'fresh-mirror'"):
        describe_publication(ward.context, NAME, ward.publication("fresh"), 10)
    ward.publish(UID)
    ward.uids = ("kept",)
    ward.declare()
    ward.complete()
    assert declared() == {"sensors", "kept"}, "what was begun stays, as it pins its checkpoint"


def test_a_target_that_has_a_closed_timeline_lacks_only_what_is_newer(ward: LaggingWard) -> None:
    ward.complete()
    ward.complete()
    ward.publish(UID)
    ward.restore(1)
    assert ward.lag().records == 0
    made = ward.complete()
    lag = ward.lag()
    again = ward.done[2][1]  # it reads the records of chk-2 again
    assert (lag.behind, lag.records, lag.newest) == (1, again + ward.done[made][1], f"chk-{made}")


def test_the_steps_are_those_that_were_made(ward: LaggingWard) -> None:
    made = []
    for _ in range(3):
        ward.complete()
        made += ward.publish(UID)
    name = ward.publication(UID)
    assert list(describe_publication(ward.context, NAME, name, 10).steps) == made[::-1]
    assert list(describe_publication(ward.context, NAME, name, 2).steps) == made[:0:-1]
    with pytest.raises(NotFoundError, match="has begun no publication 'nothing'"):
        describe_publication(ward.context, NAME, "nothing", 10)


def test_a_dropped_one_is_not_behind(ward: LaggingWard) -> None:
    ward.complete()
    ward.publish(UID)
    publishing.drop(ward.context, NAME, ward.publication(UID))
    ward.complete()
    lag = ward.lag()
    assert (lag.verdict, lag.behind, lag.records, lag.late_ms) == ("DROPPED", 0, 0, 0)


STATUS = PublicationStatus(
    publication="p", uid="u", kind="delta-mirror", place="/lake/u", state="behind", checkpoint="chk-1", version="0",
    behind=2, published_at=None,
)  # fmt: skip
TASK = PublicationTask(dag_id="d", is_paused=False, run_id="r", state="success", failure=None)
CHANGED = TaskFailure(
    task="p", map_index=-1, try_number=1, is_final=True, error="TargetChangedError", what="MIRROR_CHANGED: …", safe="",
    next="tidemark publication rebuild n p",
)  # fmt: skip
AWAY = replace(CHANGED, is_final=False, error="StoreError", what="the database is away", next="start it.")


@pytest.mark.parametrize(
    ("status", "task", "verdict", "why"),
    [
        (STATUS, None, "BEHIND", "2 checkpoints are not published yet"),
        (replace(STATUS, behind=1), TASK, "BEHIND", "1 checkpoint is not published yet"),
        (replace(STATUS, behind=0), TASK, "BEHIND", "an erasure is not published yet"),
        (replace(STATUS, state="begun"), TASK, "BEHIND", "the next run finishes it"),
        (replace(STATUS, state="new"), TASK, "NOT_STARTED", "yet; the next run of DAG d starts it"),
        (replace(STATUS, state="new"), None, "NOT_STARTED", "no DAG that you may read publishes it"),
        (replace(STATUS, state="new"), replace(TASK, is_paused=True), "NOT_STARTED", "DAG d is paused; once"),
        (replace(STATUS, state="new", behind=0), TASK, "NOT_STARTED", "there is no checkpoint to publish yet"),
        (replace(STATUS, state="new"), replace(TASK, state="running"), "PUBLISHING", "under way"),
        (replace(STATUS, state="new"), replace(TASK, state="failed"), "FAILING", "the next run tries again"),
        (STATUS, replace(TASK, state="running"), "PUBLISHING", "under way"),
        (STATUS, replace(TASK, is_paused=True), "BLOCKED", "DAG d is paused"),
        (STATUS, replace(TASK, state="failed", failure=CHANGED), "BLOCKED", "others have changed the target"),
        (STATUS, replace(TASK, state="up_for_retry", failure=AWAY), "FAILING", "Airflow tries again"),
        (STATUS, replace(TASK, state="failed", failure=replace(AWAY, is_final=True)), "FAILING", "the next run tries"),
        (STATUS, replace(TASK, state="failed"), "FAILING", "the newest try failed"),
        # The class of the error decides, whatever its words are; a record of an earlier release has none.
        (STATUS, replace(TASK, state="failed", failure=replace(CHANGED, what="?", next="?")), "BLOCKED", "others have"),
        (STATUS, replace(TASK, state="failed", failure=replace(CHANGED, error="StoreError")), "FAILING", "the newest"),
        (STATUS, replace(TASK, state="failed", failure=replace(CHANGED, error=None)), "FAILING", "the newest try"),
        (STATUS, replace(TASK, state="running", failure=replace(CHANGED, is_final=False)), "PUBLISHING", "under way"),
        (replace(STATUS, state="dropped"), replace(TASK, state="failed"), "DROPPED", "keeps its rows"),
        (replace(STATUS, state="removed"), TASK, "BLOCKED", "no longer declares it"),
        (replace(STATUS, state="current"), replace(TASK, state="failed", failure=CHANGED), "UP_TO_DATE", "newest"),
        (replace(STATUS, state="current"), replace(TASK, is_paused=True), "UP_TO_DATE", "newest"),
    ],
)
def test_the_first_rule_that_applies_decides(
    status: PublicationStatus, task: PublicationTask | None, verdict: str, why: str
) -> None:
    found, reason = judge(status, task)
    assert found == verdict and why in reason
