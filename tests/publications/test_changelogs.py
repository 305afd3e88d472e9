"""A change log: folded up to any checkpoint, it is the state of that checkpoint."""

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.publications.published_ward import NAME, UIDS, PublishedWard, rows_by
from tidemark import Retention
from tidemark.operations import retention
from tidemark.operations.publications import publishing

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", "20261130"))
Changes = list[dict[str, Any]]


class LoggedWard(PublishedWard):
    """A ward whose changes are published."""

    def target(self, uid: str) -> str:
        """The declaration of an operator's target."""
        return f'DeltaChangelog("{self.mirror(uid)}")'

    def changes(self, uid: str) -> Changes:
        """The rows of the log, as deltalake's query engine reads them."""
        found = QueryBuilder().register("t", DeltaTable(str(self.mirror(uid)))).execute("SELECT * FROM t").read_all()
        return list(pa.table(found).to_pylist(maps_as_pydicts="strict"))

    def published(self, uid: str) -> list[str]:
        """Publishes and compares; returns the checkpoints of the steps."""
        made = publishing.publish(self.context, NAME, f"{uid}-changes")
        for step in made:
            self.compare(uid, int(step.checkpoint.removeprefix("chk-")))
        return [step.checkpoint for step in made]

    def compare(self, uid: str, checkpoint: int) -> None:
        """The log up to a checkpoint of the live timeline has the state of that checkpoint."""
        assert fold(self.changes(uid), checkpoint) == rows_by(self.expected(checkpoint, uid))


def fold(changes: Changes, until: int) -> dict[str, Any]:
    """Applies changes in order of checkpoints; each must fit the state before it."""
    state = dict[str, Any]()
    for change in sorted(changes, key=lambda c: c["_checkpoint"]):
        if change["_checkpoint"] > until:
            break
        key, before, after = change["sensor"], change["before"], change["after"]
        assert change["_op"] == ("delete" if after is None else "update" if before is not None else "insert")
        if before is not None:
            assert state[key] == {"sensor": key, **before}
        state.pop(key, None)
        if after is not None:
            state[key] = {"sensor": key, **after}
    return state


@pytest.fixture
def ward(tmp_path: Path) -> LoggedWard:
    print(f"seed {SEED}; TIDEMARK_TEST_SEED={SEED}")
    made = LoggedWard(tmp_path, random.Random(SEED))
    made.checkpoint()
    return made


@pytest.mark.parametrize("uid", UIDS)
def test_every_checkpoint_is_a_step_and_the_log_folds_to_each(ward: LoggedWard, uid: str) -> None:
    ward.checkpoint()
    assert ward.published(uid) == ["chk-2"], "it begins with all of the state that exists"
    for _ in range(3):
        ward.checkpoint()
    assert ward.published(uid) == ["chk-3", "chk-4", "chk-5"]
    assert {c["_from"] for c in ward.changes(uid)} <= {0, 2, 3, 4}
    for checkpoint in range(2, 6):
        ward.compare(uid, checkpoint)
    assert publishing.verify(ward.context, NAME, f"{uid}-changes").equal


def test_checkpoints_that_were_released_are_passed_over_and_the_log_says_so(ward: LoggedWard) -> None:
    ward.published("kept")
    for _ in range(3):
        ward.checkpoint()
    ward.line.clock.ms += 10**9
    retention.sweep(ward.context, NAME, str(Retention.keep_last(1)), grace_ms=0)
    assert ward.published("kept") == ["chk-4"]
    assert {c["_from"] for c in ward.changes("kept") if c["_checkpoint"] == 4} <= {1}


@pytest.mark.parametrize("step", ["publish.begun", "publish.target", "publish.done"])
def test_a_publisher_that_is_killed_anywhere_is_finished_by_the_next(ward: LoggedWard, step: str) -> None:
    for when in ("before", "after", "before"):
        ward.kill("kept", step, when)
        ward.checkpoint()
        ward.published("kept")
    for checkpoint in range(2, 5):
        ward.compare("kept", checkpoint)


def test_a_restore_is_a_change_too(ward: LoggedWard) -> None:
    for _ in range(3):
        ward.checkpoint()
    for uid in UIDS:
        ward.published(uid)
    ward.restore(2)
    ward.checkpoint()
    assert [ward.published(uid) for uid in UIDS] == [["chk-5"]] * 3


def test_an_erased_key_is_nowhere_in_the_log_but_as_a_delete(ward: LoggedWard) -> None:
    for _ in range(3):
        ward.checkpoint()
        ward.published("sensors")
    gone, *_ = rows_by(ward.expected(4, "sensors"))
    ward.erase(gone, "sensors")
    publishing.publish(ward.context, NAME, "sensors-changes")
    (row,) = [change for change in ward.changes("sensors") if change["sensor"] == gone]
    assert (row["_op"], row["before"], row["after"]) == ("delete", None, None)
    assert publishing.verify(ward.context, NAME, "sensors-changes").equal
    ward.checkpoint()
    ward.published("sensors")
