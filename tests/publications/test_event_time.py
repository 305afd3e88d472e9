"""Publications of open windows and of processes with timers: what has closed or fired leaves every kind of target."""

import os
import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from tests.publications.published_ward import NAME, SENSORS, PublishedWard
from tests.publications.timed_wards import UIDS, TimedChangelogWard, TimedPostgresWard, TimedTopicWard, TimedWard
from tests.support.postgres import INSTALL, programs
from tests.support.prerequisites import needs
from tests.support.scale import SCALE
from tidemark import Retention
from tidemark.coordinator.publications.publisher import StatePublisher
from tidemark.coordinator.retention.root_set import collect_roots
from tidemark.operations import retention
from tidemark.operations.publications import publishing

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))


@pytest.fixture(
    params=[
        "mirror",
        "changes",
        pytest.param("upsert", marks=needs(programs() is not None, f"no PostgreSQL here: {INSTALL}")),
        pytest.param("topic", marks=pytest.mark.kafka),
    ]
)
def ward(request: pytest.FixtureRequest, tmp_path: Path) -> PublishedWard:
    """A ward of each kind, with a checkpoint."""
    print(f"seed {SEED}; TIDEMARK_TEST_SEED={SEED}")
    made, chance = dict[str, Callable[[], PublishedWard]](), random.Random(SEED)
    made["mirror"] = lambda: TimedWard(tmp_path, chance)
    made["changes"] = lambda: TimedChangelogWard(tmp_path, chance)
    made["upsert"] = lambda: TimedPostgresWard(tmp_path, chance, request.getfixturevalue("postgres_server"))
    made["topic"] = lambda: TimedTopicWard(tmp_path, chance, request.getfixturevalue("broker"))
    found = made[request.param]()
    found.checkpoint()
    return found


def test_a_target_has_the_windows_that_are_open_and_the_timers_that_are_set(ward: PublishedWard) -> None:
    for modes in ("rebuild", "difference", "difference", "difference"):
        for uid in UIDS:
            assert set(ward.published(uid)) == {modes}
        for _ in range(2):
            ward.checkpoint()
    ward.check()


def test_an_erased_key_of_a_window_is_gone_by_a_rebuild_as_no_state_says_which_windows_it_had(
    ward: PublishedWard,
) -> None:
    for _ in range(3):
        ward.checkpoint()
    for uid in UIDS:
        ward.published(uid)
        gone = min(ward.keys(uid)).partition(" ")[0]
        ward.erase(gone, uid)
        assert ward.published(uid) == ["difference" if uid == "quiet" else "rebuild"]
        assert not any(place.startswith(gone) for place in ward.keys(uid))
        ward.erase("never", "quiet" if uid != "quiet" else "tumbling")
        assert "rebuild" not in ward.published(uid), "an erasure of another operator"
    ward.checkpoint()
    for uid in UIDS:
        ward.published(uid)


@pytest.mark.parametrize("n", range(4 * SCALE))
def test_random_walks(tmp_path: Path, n: int) -> None:
    print(f"seed {SEED}; TIDEMARK_TEST_SEED={SEED}")
    kind = TimedChangelogWard if n % 2 else TimedWard
    ward, uid = kind(tmp_path, random.Random(f"{SEED} {n}")), UIDS[(n + n // 4 + SEED) % len(UIDS)]
    ward.checkpoint()
    ward.publish(uid)
    for _ in range(14):
        newest = next(ward.line.coordinator.checkpoints()).id
        moves = [ward.checkpoint] * 4 + [lambda: ward.publish(uid)] * 3 + [lambda: _compact(ward, uid)]
        moves += [lambda: _sweep(ward), lambda: _kill(ward, uid)]
        moves += [lambda: _restore(ward), lambda: _erase(ward, uid)] if newest > 2 else []
        ward.chance.choice(moves)()
    ward.checkpoint()
    ward.published(uid)
    if n % 2 == 0:
        ward.check()


def _compact(ward: PublishedWard, uid: str) -> None:
    ward.line.compact(uid, full=ward.chance.random() < 0.5)


def _sweep(ward: PublishedWard) -> None:
    ward.line.clock.ms += timedelta(days=11) // timedelta(milliseconds=1)
    retention.sweep(ward.context, NAME, str(Retention.keep_last(2)), grace_ms=0)


def _kill(ward: PublishedWard, uid: str) -> None:
    step = ward.chance.choice(("publish.begun", "publish.target", "publish.done"))
    ward.kill(uid, step, ward.chance.choice(("before", "after")))


def _restore(ward: PublishedWard) -> None:
    survey = collect_roots(ward.line.coordinator, None)
    ward.restore(ward.chance.choice([c.id for c in survey.lines.all() if not survey.is_released(c.id)]))
    ward.checkpoint()


def _erase(ward: PublishedWard, uid: str) -> None:
    ward.publish(uid)  # what is begun is finished first: the oracle reads the state before the erasure
    ward.erase(ward.chance.choice(SENSORS), uid)
    ward.publish(uid)


def test_a_planted_publisher_that_forgets_erased_windows_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StatePublisher, "_erasures", lambda *_: iter(()))
    ward = TimedWard(tmp_path, random.Random(SEED))
    ward.checkpoint()
    with pytest.raises(AssertionError):
        test_an_erased_key_of_a_window_is_gone_by_a_rebuild_as_no_state_says_which_windows_it_had(ward)


def test_verify_compares_open_windows(tmp_path: Path) -> None:
    ward = TimedWard(tmp_path, random.Random(SEED))
    ward.checkpoint()
    for uid in UIDS:
        ward.publish(uid)
        found = publishing.verify(ward.context, NAME, ward.publication(uid))
        assert found.equal and found.rows == len(ward.expected(1, uid))
