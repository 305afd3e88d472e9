"""The contract of publications, at every kind of target: each has the state of the checkpoint that it names."""

import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.publications.changelog_ward import ChangelogWard
from tests.publications.postgres_ward import PostgresWard
from tests.publications.published_ward import NAME, UIDS, PublishedWard
from tests.publications.topic_ward import TopicWard
from tests.support.postgres import INSTALL, programs
from tests.support.prerequisites import needs
from tidemark.coordinator.recovery.backfill import BackfillRequest
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.operations.backfill import open_backfill
from tidemark.operations.publications import publishing
from tidemark.publications.change_states import ChangeStates
from tidemark.publications.operator_states import OperatorStates

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", "20261127"))
RIVALS = 3


@pytest.fixture(
    params=[
        "mirror",
        "changes",
        pytest.param("upsert", marks=needs(programs() is not None, f"no PostgreSQL here: {INSTALL}")),
        pytest.param("topic", marks=pytest.mark.kafka),
    ]
)
def ward(request: pytest.FixtureRequest, tmp_path: Path) -> PublishedWard:
    """A ward of each kind, with one checkpoint."""
    print(f"seed {SEED}; TIDEMARK_TEST_SEED={SEED}")
    made = _ward(request, tmp_path, random.Random(SEED))
    made.checkpoint()
    return made


def _ward(request: pytest.FixtureRequest, folder: Path, chance: random.Random) -> PublishedWard:
    if request.param == "upsert":
        return PostgresWard(folder, chance, request.getfixturevalue("postgres_server"))
    if request.param == "topic":
        return TopicWard(folder, chance, request.getfixturevalue("broker"))
    return {"mirror": PublishedWard, "changes": ChangelogWard}[request.param](folder, chance)


def test_a_state_that_exists_is_published_as_a_whole_then_by_differences(ward: PublishedWard) -> None:
    ward.checkpoint()
    for modes in ("rebuild", "difference", "difference", "difference"):
        for uid in UIDS:
            assert ward.published(uid) == [modes]
        ward.checkpoint()
    assert [ward.told(uid) for uid in UIDS] == [(4, 5)] * 3
    ward.check()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ["publish.begun", "publish.target", "publish.done"])
def test_a_publisher_that_is_killed_anywhere_is_finished_by_the_next(ward: PublishedWard, step: str, when: str) -> None:
    for _ in range(2):  # a rebuild, then a difference
        assert ward.kill("kept", step, when), "the step is reached"
        ward.checkpoint()
        ward.published("kept")
        ward.checkpoint()
    begun = ward.steps("kept").newest(ward.publication("kept"))
    assert begun is not None
    assert ward.told("kept") == (begun.number, 4)
    ward.check()


def test_of_publishers_at_once_each_step_is_made_once(ward: PublishedWard) -> None:
    failed = list[BaseException]()

    def publish() -> None:
        try:
            publishing.publish(ward.context, NAME, ward.publication("kept"))
        except BaseException as error:
            failed.append(error)

    for number in range(1, 4):
        rivals = [threading.Thread(target=publish) for _ in range(RIVALS)]
        for rival in rivals:
            rival.start()
        for rival in rivals:
            rival.join()
        assert len(failed) < RIVALS * number and {type(error) for error in failed} <= set(ward.fences), failed
        ward.published("kept")  # where rivals fence one another, none of them may have finished the step
        assert ward.told("kept") == (number, number)
        ward.checkpoint()
    ward.check()


def test_a_zombie_that_wakes_after_two_more_steps_changes_nothing(
    ward: PublishedWard, monkeypatch: pytest.MonkeyPatch
) -> None:
    ward.published("kept")
    ward.checkpoint()
    kind = ChangeStates if ward.kind == "changes" else OperatorStates
    difference = kind.difference

    def overtaken(states: Any, *of: Any) -> Any:
        found = difference(states, *of)
        monkeypatch.setattr(kind, "difference", difference)
        ward.published("kept")
        ward.checkpoint()
        ward.published("kept")
        return found

    monkeypatch.setattr(kind, "difference", overtaken)
    if ward.fences:
        with pytest.raises(ward.fences, match="has begun since"):
            ward.publish("kept")
    else:
        (made,) = ward.publish("kept")
        assert made.checkpoint == "chk-2", "another process had made its step"
    ward.compare("kept")
    assert ward.told("kept") == (3, 3)
    ward.check()


def test_erasures_restores_and_declarations_are_followed(ward: PublishedWard) -> None:
    ward.checkpoint()
    for uid in UIDS:
        ward.published(uid)
    gone = min(ward.keys("sensors"))
    ward.erase(gone, "sensors")
    assert ward.published("sensors") == ["difference"], "no later checkpoint is needed"
    assert gone not in ward.keys("sensors")
    ward.checkpoint()
    ward.published("sensors")
    ward.restore(2)
    assert ward.published("sensors") == [], "no step back to an ancestor"
    ward.checkpoint()
    assert ward.published("sensors") == ["difference"]
    ward.declare(
        lambda text: text.replace("    total: int |", '    highest: int | None = state.max("room")\n    total: int |')
    )
    ward.checkpoint()
    assert ward.published("sensors") == ["rebuild"]
    ward.checkpoint()
    assert ward.published("sensors") == ["difference"]


def test_a_backfill_is_followed_once_it_is_live(ward: PublishedWard) -> None:
    for _ in range(3):
        ward.checkpoint()
    ward.published("kept")
    ward.declare(lambda text: text.replace("kept.total += reading", "kept.total += 2 * reading"))
    request = BackfillRequest(begins=RestoreRequest(checkpoint=1), fork="fix")
    fix = open_backfill(ward.context, NAME, request)
    fix.begin()
    ward.line.pipeline = ward.pipeline
    made = list(fix.repeat(ward.line.execute))
    assert ward.published("kept") == [], "a fork is not published"
    fix.promote(lambda: None)
    assert set(ward.published("kept")) == {"difference"}
    assert ward.told("kept")[1] == made[-1].id
    ward.checkpoint()
    assert ward.published("kept") == ["difference"]
