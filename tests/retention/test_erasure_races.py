"""Erasures interleaved with everything that may bring a key back; and that planted bugs are found (Q9, ADR 0015)."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest.mock import patch

import pytest

from tests.retention.erasure_races import explore
from tests.support.bug_finds import violations
from tidemark.coordinator.checkpoints import coordinator
from tidemark.coordinator.recovery import restore as recovery

SCHEDULES = int(os.environ.get("TIDEMARK_TEST_ERASURE_RACES", "150"))
ENOUGH = 3000
"""Schedules in which every planted bug is found."""
BUGS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "old-plans-take-attempts": lambda: patch.multiple(
        coordinator, is_outdated=lambda *given: False, is_behind=lambda *given: False
    ),
    "old-manifests-are-forked": lambda: patch.object(recovery, "refuse_stillborn", lambda *given: None),
}
"""Each switches off how one who read an old revision finds out."""


def test_a_key_never_comes_back_whatever_happens_beside_its_erasure() -> None:
    for seed in range(SCHEDULES):
        found = explore(seed).found
        assert not found, "\n".join([f"python -m tests.retention.erasure_races --seed {seed}", *found])


@pytest.mark.parametrize("bug", sorted(BUGS))
def test_a_planted_bug_is_found(bug: str) -> None:
    with BUGS[bug]():
        assert any(violations(explore(seed).found) for seed in range(ENOUGH)), (
            f"{bug} was not found in {ENOUGH} schedules"
        )


def test_schedules_meet_losers_and_the_dead() -> None:
    traces = ["\n".join(explore(seed).trace) for seed in range(100)]
    for what in (".r1.json", ".abort.json", "erased Erased(", ": killed", ": frozen", "ConflictError"):
        assert any(what in trace for trace in traces), what
