"""Sweeps interleaved with everything that may need a file; the bugs of `retention_bugs` are found (I5, fault 34)."""

import os

import pytest

from tests.retention.races import explore, prepare, repro
from tests.retention.retention_bugs import BUGS
from tests.support.bug_finds import violations

SCHEDULES = int(os.environ.get("TIDEMARK_TEST_RACES", "6000"))
CHUNKS = 8
ENOUGH = 2000
"""Schedules in which every planted bug is found; most take a handful."""


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_sweep_deletes_nothing_that_anybody_beside_it_needs(chunk: int) -> None:
    for seed in range(chunk, SCHEDULES, CHUNKS):
        found = explore(seed).found
        assert not found, "\n".join([repro(seed), *found])


@pytest.mark.parametrize("bug", sorted(BUGS))
def test_a_planted_bug_is_found(bug: str) -> None:
    prepare()
    with BUGS[bug]():
        assert any(violations(explore(seed).found) for seed in range(ENOUGH)), (
            f"{bug} was not found in {ENOUGH} schedules"
        )


def test_schedules_meet_pins_withdrawals_and_deletions() -> None:
    traces = ["\n".join(explore(seed).trace) for seed in range(120)]
    for what in ("delete shelf/", "ConflictError", "ReleasedError", ": killed", ": frozen", "put sweeps/"):
        assert any(what in trace for trace in traces), what
