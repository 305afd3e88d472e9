"""Random walks over everything that decides which line sends a record; a failure prints its seed."""

import os

import pytest

from tests.deliveries.delivery_bugs import BUGS
from tests.deliveries.delivery_walk import DeliveryWalk
from tests.unit.coordinator import test_sent
from tidemark.errors import StoreError

WALKS = int(os.environ.get("TIDEMARK_TEST_DELIVERY_WALKS", "120"))
STEPS = 60
CHUNKS = 8
FOUND_WITHIN = 100
"""Walks in which a planted bug shows itself; most do within twenty."""
RARE = {
    "forget-rows-of-a-sink-that-is-removed-twice": test_sent.test_rows_of_a_sink_that_is_taken_out_twice_are_sent,
    "forget-sinks-without-a-table": test_sent.test_what_a_sink_sent_that_nobody_declares_is_known_two_timelines_later,
    "wait-for-rows-that-are-gone": test_sent.test_rows_that_were_let_go_are_told_of_and_hold_up_nothing,
    "go-back-by-offset": test_sent.test_what_cannot_be_read_again_still_counts_as_sent_where_sinks_go_back,
    "withhold-up-to-the-end": test_sent.test_a_promote_withholds_what_the_fork_read_before_the_topic_was_recreated,
}
"""Bugs that take walks hundreds of seeds, with the test of the one case that they break."""


def walked(seed: int) -> DeliveryWalk:
    """A walk, which its oracle judges after every step."""
    walk = DeliveryWalk(seed)
    try:
        return walk.steps(STEPS)
    except BaseException:
        print(f"seed {seed}", *walk.trace[-60:], sep="\n")
        raise


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_each_record_is_sent_by_one_line_or_the_dry_run_said_otherwise(chunk: int) -> None:
    walks = [walked(seed) for seed in range(chunk * WALKS // CHUNKS, (chunk + 1) * WALKS // CHUNKS)]
    assert sum(walk.counts["restore"] for walk in walks) > len(walks)
    assert sum(len(walk.oracle.arrived) for walk in walks) > 5 * len(walks)


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug not in RARE])
def test_a_walk_finds_a_planted_bug(bug: str) -> None:
    with pytest.raises((AssertionError, StoreError)), BUGS[bug]():
        for seed in range(FOUND_WITHIN):
            DeliveryWalk(seed).steps(STEPS)


@pytest.mark.parametrize("bug", RARE)
def test_a_rare_planted_bug_fails_the_test_of_its_case(bug: str) -> None:
    RARE[bug]()
    with pytest.raises((AssertionError, StoreError)), BUGS[bug]():
        RARE[bug]()
