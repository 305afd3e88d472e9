"""A change log: folded up to any checkpoint, it is the state of that checkpoint."""

import os
import random
from pathlib import Path

import pytest

from tests.publications.changelog_ward import ChangelogWard
from tests.publications.published_ward import NAME, UIDS, rows_by
from tidemark import Retention
from tidemark.operations import retention
from tidemark.operations.publications import publishing

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", "20261130"))


@pytest.fixture
def ward(tmp_path: Path) -> ChangelogWard:
    print(f"seed {SEED}; TIDEMARK_TEST_SEED={SEED}")
    made = ChangelogWard(tmp_path, random.Random(SEED))
    made.checkpoint()
    return made


@pytest.mark.parametrize("uid", UIDS)
def test_every_checkpoint_is_a_step_and_the_log_folds_to_each(ward: ChangelogWard, uid: str) -> None:
    ward.checkpoint()
    assert [step.checkpoint for step in ward.publish(uid)] == ["chk-2"], "it begins with all of the state that exists"
    for _ in range(3):
        ward.checkpoint()
    assert [step.checkpoint for step in ward.publish(uid)] == ["chk-3", "chk-4", "chk-5"]
    assert {c["_from"] for c in ward.changes(uid)} <= {0, 2, 3, 4}
    for checkpoint in range(2, 6):
        ward.compare_until(uid, checkpoint)
    assert publishing.verify(ward.context, NAME, f"{uid}-changes").equal


def test_checkpoints_that_were_released_are_passed_over_and_the_log_says_so(ward: ChangelogWard) -> None:
    ward.published("kept")
    for _ in range(3):
        ward.checkpoint()
    ward.line.clock.ms += 10**9
    retention.sweep(ward.context, NAME, str(Retention.keep_last(1)), grace_ms=0)
    assert [step.checkpoint for step in ward.publish("kept")] == ["chk-4"]
    assert {c["_from"] for c in ward.changes("kept") if c["_checkpoint"] == 4} <= {1}


def test_a_restore_is_a_change_too(ward: ChangelogWard) -> None:
    for _ in range(3):
        ward.checkpoint()
    for uid in UIDS:
        ward.published(uid)
    ward.restore(2)
    ward.checkpoint()
    assert [[step.checkpoint for step in ward.publish(uid)] for uid in UIDS] == [["chk-5"]] * 3


def test_an_erased_key_is_nowhere_in_the_log_but_as_a_delete(ward: ChangelogWard) -> None:
    for _ in range(3):
        ward.checkpoint()
        ward.published("sensors")
    gone, *_ = rows_by(ward.expected(4, "sensors"))
    ward.erase(gone, "sensors")
    ward.publish("sensors")
    (row,) = [change for change in ward.changes("sensors") if change["sensor"] == gone]
    assert (row["_op"], row["before"], row["after"]) == ("delete", None, None)
    assert publishing.verify(ward.context, NAME, "sensors-changes").equal
    ward.checkpoint()
    ward.published("sensors")
