"""Power loss (fault 31): every way to lose what was not fsynced, tried on recorded checkpoints, compactions, sweeps.

After the power cut every checkpoint that had been reported reads back as it was, by the product and by any reader of
Delta; whatever else the timeline shows reads back too; and a plain re-run goes on: nothing is lost, nothing doubled.
"""

import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.power_loss.power_loss_bugs import PLANTED, SHOWN_IN
from tests.power_loss.recording import available
from tests.power_loss.recovery_checks import Reported, Violation, judge
from tests.power_loss.scenario import short_logs
from tests.power_loss.states import WAREHOUSE, Recording, State, TreeFolder, found, prepare, states
from tests.support.prerequisites import needs

SEED = 31
PER_CALL = 3
CHUNKS = 40
TRIED = sorted(random.sample(range(CHUNKS), int(os.environ.get("TIDEMARK_TEST_CRASH_CHUNKS", CHUNKS))))
"""The chunks of states that this run tries: `make test-more` tries some, chosen anew each time."""
ENOUGH = 1000
MEMORY = Path("/dev/shm")
"""Where states are built if it is there: each has hundreds of files."""

pytestmark = [
    pytest.mark.slow,
    needs(available(), "no strace here, or it may not trace: sudo apt-get install -y strace"),
]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def prepared(folder: Path) -> Path:
    """A history, on top of which operations are recorded."""
    (folder / "prepared").mkdir()
    prepare(folder / "prepared")
    return folder / "prepared"


@pytest.fixture(scope="module")
def recording(prepared: Path, folder: Path) -> Recording:
    (made,) = Recording.made(prepared, folder / "line")
    return made


@pytest.fixture(scope="module")
def planted(prepared: Path, folder: Path) -> dict[str, Recording]:
    """Of each bug that matters before the power is cut: one process has them all, because its start takes long."""
    names = [name for name in PLANTED if not name.startswith("mend")]
    return dict(zip(names, Recording.made(prepared, folder / "planted", names), strict=True))


@pytest.fixture(scope="module")
def chosen(recording: Recording) -> list[State]:
    return list(states(recording, SEED, PER_CALL))


def judged(shelf: TreeFolder, state: State) -> None:
    try:
        judge(shelf.build(state.tree), Reported.by(state.told.splitlines()))
    except Violation as violation:
        raise Violation(f"seed {SEED}: {state}: {violation}") from violation


def test_the_model_ends_where_the_disk_did(recording: Recording) -> None:
    disk = recording.begun()
    for call in recording.calls:
        if call.paths[0] != recording.told:
            disk.do(call)
    assert disk.tree(disk.pending) == found(recording.folder / WAREHOUSE)
    assert {call.name for call in recording.calls} >= {"open", "write", "link", "rename", "unlink", "mkdir", "fsync"}


def test_there_are_a_thousand_states_to_try(chosen: list[State]) -> None:
    print(f"seed {SEED}: {len(chosen)} crash states, here in chunks {TRIED} of {CHUNKS}")
    assert len(chosen) >= ENOUGH
    assert {"paid", "completed", "sweep", "swept", "erase"} <= {state.last_told for state in chosen}


@pytest.mark.parametrize("chunk", TRIED)
def test_what_was_reported_survives_and_a_re_run_goes_on(chosen: list[State], chunk: int, folder: Path) -> None:
    shelf = TreeFolder(folder / f"chunk {chunk}")
    with short_logs():
        for state in chosen[chunk::CHUNKS]:
            judged(shelf, state)
    assert shelf.untouched()


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, planted: dict[str, Recording], recording: Recording, folder: Path) -> None:
    recording = planted.get(name, recording)
    after_the_cut = name not in planted or name.endswith("nobody compares")
    shown = SHOWN_IN.get(name.partition(":")[0])
    tried = [s for s in states(recording, SEED, 2 * PER_CALL) if shown is None or s.last_told in shown]
    random.Random(SEED).shuffle(tried)
    shelf = TreeFolder(folder / f"planted {list(PLANTED).index(name)}")
    with short_logs(), PLANTED[name]() if after_the_cut else nullcontext():
        for state in tried:
            try:
                judged(shelf, state)
            except Violation as violation:  # nothing else counts as a find
                print(violation)
                return
    pytest.fail(f"{len(tried)} states, and nothing was found")
