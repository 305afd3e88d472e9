"""Dead letters of the live timeline: totals by reason, pages of them, and the results of redrives."""

import json
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext
from tests.support.trips import settings_of
from tidemark import Fold, KafkaSource, Pipeline, state
from tidemark.answers.dead_letter_facts import LiveLetterPage, RedriveStatus
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.errors import NotFoundError
from tidemark.model.state.row_compaction import RowPolicy
from tidemark.operations import timelines
from tidemark.operations.dead_letters import redriving
from tidemark.operations.dead_letters.redriving import LetterFilter, RedriveRequest
from tidemark.web import overview
from tidemark.web.source_lookup import LetterQuery, read_live_letters


@dataclass(frozen=True)
class Strict:
    """A payment as the first release declares it."""

    account: str
    kind: str


@dataclass(frozen=True)
class Lenient:
    """The same, after a correction."""

    account: str
    kind: str = "none"


class Sums(state.Keyed):
    """Per account."""

    n: int = state.count()


def declared(record: type) -> Pipeline:
    """The pipeline; a second operator rejects the same records, and reads no others."""
    folds = [Fold(uid, key_by="account", state=Sums) for uid in ("sums", "again")]
    return Pipeline(name="sums", source=KafkaSource("payments", record), operators=folds, max_dead_letters=1.0)


class Payments(DiskContext):
    """Finds the declaration in the pipeline on disk."""

    def pipeline(self, name: str) -> Pipeline:
        return self.line.pipeline


@dataclass
class Sent:
    """A record that was sent: its place, and the reason why the first release rejects it."""

    checkpoint: str
    partition: int
    offset: int
    reason: str | None


BODIES: dict[str | None, dict[str, Any] | None] = {
    None: {"account": "a", "kind": "x"},
    "missing_field: kind": {"account": "a"},
    "missing_field: account": {"kind": "x"},
    "malformed_json": None,
}
FIXED = "missing_field: kind"


class RejectedPayments:
    """The pipeline with its records."""

    def __init__(self, path: Path) -> None:
        self.line = DiskPipeline(path / "warehouse", declared(Strict), "payments", partitions=2)
        self.context = Payments(self.line, settings_of(path))
        self.sent: list[Sent] = []
        self.ends = [0, 0]

    def checkpoint(self, *reasons: str | None) -> str:
        """Sends records that are rejected for these reasons, None for a good one, and completes a checkpoint."""
        number, here = next((c.id for c in self.line.coordinator.checkpoints()), 0) + 1, list[Sent]()
        for n, reason in enumerate(reasons):
            body = BODIES[reason]
            self.line.send([(n % 2, b"{" if body is None else json.dumps(body).encode(), 1)])
            here.append(Sent(f"chk-{number}", n % 2, self.ends[n % 2], reason))
            self.ends[n % 2] += 1
        made = self.line.checkpoint().plan.name
        self.sent += [Sent(made, x.partition, x.offset, x.reason) for x in here]
        return made

    def letters(self, reason: str | None = None) -> list[tuple[str, str, int]]:
        """Checkpoint and place of each rejected record, newest checkpoint first."""
        rejected = [x for x in self.sent if x.reason is not None and reason in (None, x.reason)]
        return [
            (x.checkpoint, f"payments-{x.partition}", x.offset)
            for x in sorted(rejected, key=lambda x: (-int(x.checkpoint[4:]), x.partition, x.offset))
        ]

    def page(self, reason: str | None = None, limit: int = 100, offset: int = 0) -> LiveLetterPage:
        """A page of the letters of `sums`."""
        query = LetterQuery(uid="sums", reason=reason, limit=limit, offset=offset)
        return read_live_letters(self.context, "sums", query)

    def redrive(self, **wanted: Any) -> None:
        """Asks to redrive letters of `sums`."""
        request = RedriveRequest(uid="sums", letters=LetterFilter(**wanted))
        redriving.redrive(self.context, "sums", request, "me")

    def requests(self) -> list[RedriveStatus]:
        """The requests, oldest first."""
        return list(reversed(overview.list_dead_letters(self.context, "sums").requests))


@pytest.fixture
def world(tmp_path: Path) -> RejectedPayments:
    return RejectedPayments(tmp_path)


def places(found: LiveLetterPage) -> list[tuple[str, str, int]]:
    return [(row.checkpoint, row.partition, row.offset) for row in found.rows]


def test_totals_and_pages_are_those_of_the_records_that_were_sent(world: RejectedPayments) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(5):
        world.checkpoint(*(chance.choice(list(BODIES)) for _ in range(chance.randrange(1, 12))))
        if chance.random() < 0.4:
            world.line.compact_rows(RowPolicy.everything())
    found = overview.list_dead_letters(world.context, "sums")
    expected = Counter(x.reason for x in world.sent if x.reason is not None)
    for uid in ("sums", "again"):
        totals = {t.reason: t for t in found.letters if t.uid == uid}
        assert {reason: t.letters for reason, t in totals.items()} == expected
        assert all(t.read == len(world.sent) and t.redriven == 0 for t in totals.values())
        for reason, total in totals.items():
            made = [int(x.checkpoint[4:]) for x in world.sent if x.reason == reason]
            assert (total.first, total.last) == (f"chk-{min(made)}", f"chk-{max(made)}")
    assert places(world.page()) == world.letters()
    for reason, count in expected.items():
        all_of_it = world.letters(reason)
        for size in (1, 3):
            pages = [world.page(reason, size, at) for at in range(0, count + size, size)]
            assert [place for page in pages for place in places(page)] == all_of_it
            assert {page.matching for page in pages} == {count}
            assert {row.reason for page in pages for row in page.rows} <= {reason}


def test_values_are_shown_as_text(world: RejectedPayments) -> None:
    world.checkpoint(FIXED, "malformed_json")
    texts = {row.reason: row.value and row.value.text for row in world.page().rows}
    assert texts == {FIXED: '{"account": "a"}', "malformed_json": "{"}


def test_a_redrive_shows_how_many_were_rejected_again(world: RejectedPayments) -> None:
    world.checkpoint(FIXED, FIXED, "missing_field: account", None, FIXED)
    world.redrive(reason="missing_field")
    (waiting,) = world.requests()
    assert (waiting.state, waiting.letters, waiting.redriven, waiting.rejected) == ("waiting", 4, 0, 0)
    world.line.pipeline = declared(Lenient)
    made = world.checkpoint(None, "malformed_json")
    (done,) = world.requests()
    assert (done.state, done.checkpoint, done.redriven, done.rejected) == ("redriven", made, 4, 1)
    totals = {t.reason: t for t in overview.list_dead_letters(world.context, "sums").letters if t.uid == "sums"}
    assert (totals[FIXED].letters, totals[FIXED].redriven) == (0, 3)
    assert (totals["missing_field: account"].letters, totals["missing_field: account"].redriven) == (1, 1)
    # The record of which the redrive failed is a letter of the new checkpoint, and the old row is gone.
    assert [p for p in places(world.page("missing_field: account"))] == [(made, "payments-0", 1)]
    assert world.page(FIXED).matching == 0 and world.page().matching == 2
    world.redrive(reason="missing_field")
    last = world.checkpoint()
    first, second = world.requests()
    assert (first.redriven, first.rejected) == (4, 1), "it stays, although its letter was redriven again"
    assert (second.checkpoint, second.redriven, second.rejected) == (last, 1, 1)


def test_an_answer_that_is_remembered_follows_requests_and_withdrawals(world: RejectedPayments) -> None:
    world.checkpoint(FIXED, None)
    first = overview.list_dead_letters(world.context, "sums")
    assert overview.list_dead_letters(world.context, "sums") is first
    assert list(first.requests) == []
    world.redrive(reason="missing_field")
    assert [r.state for r in world.requests()] == ["waiting"]
    redriving.withdraw(world.context, "sums", 1, "me")
    assert [r.state for r in world.requests()] == ["withdrawn"]
    world.checkpoint(FIXED)
    assert [t.letters for t in overview.list_dead_letters(world.context, "sums").letters] == [2, 2]


def test_letters_of_checkpoints_that_left_the_live_timeline_are_not_shown(world: RejectedPayments) -> None:
    first = world.checkpoint(FIXED)
    world.checkpoint(FIXED, "malformed_json")
    timelines.restore(world.context, "sums", RestoreRequest(checkpoint=1, request="back"))
    assert [row.checkpoint for row in world.page().rows] == [first]
    (total,) = [t for t in overview.list_dead_letters(world.context, "sums").letters if t.uid == "sums"]
    assert (total.reason, total.letters, total.read) == (FIXED, 1, 1)


def test_an_unknown_operator_is_refused(world: RejectedPayments) -> None:
    world.checkpoint(None)
    with pytest.raises(NotFoundError, match="no operator 'nothing'"):
        read_live_letters(world.context, "sums", LetterQuery(uid="nothing"))
    assert world.page().rows == []
