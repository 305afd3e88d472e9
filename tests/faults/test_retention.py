"""SIGKILL of `tidemark retention apply` at step boundaries: what is kept reads back, a re-run comes to the same end."""

import os
import shutil
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.cli import Command
from tests.support.sales_pipeline import DECLARATION, SalesPipeline
from tidemark.operations import reads

pytestmark = [pytest.mark.slow]
CHECKPOINTS, PINNED, KEPT = 32, 26, (31, 32)
APPLY = ("retention", "apply", "till", "--keep", f"keep_last({len(KEPT)})", "--grace", "0", "--execute", "--json")
STEPS = ["tombstones", "decisions", "record", "files", "logs", "end"]
PLACES = [f"sweep.{step}:{moment}" for step in STEPS for moment in ("before", "after")]
if os.environ.get("TIDEMARK_TEST_SWEEP") != "full":
    # Half of the tombstones; decided; written down, nothing deleted; files gone; logs gone.
    PLACES = [
        "sweep.tombstones:after",
        "sweep.decisions:after",
        "sweep.record:after",
        "sweep.files:after",
        "sweep.logs:after",
    ]


@dataclass(frozen=True)
class Warehouse:
    """A till's warehouse, and what its restore points hold by plain Python."""

    tidemark: Command
    accounts: dict[int, dict[str, int]]

    def copy(self, home: Path) -> "Warehouse":
        """The same, elsewhere."""
        copied = Command(home, self.tidemark.broker, self.tidemark.spark)
        copied.declare(DECLARATION, topic="sales")
        shutil.copytree(self.tidemark.warehouse, copied.warehouse)
        return Warehouse(copied, self.accounts)

    def check(self, numbers: Iterable[int]) -> None:
        """Restore points read back, and are whole."""
        for number in numbers:
            shown = self.tidemark(
                "state", "show", "till", "accounts", "--checkpoint", str(number), "--limit", "1000", "--json"
            )
            assert {row["account"]: row["sales"] for row in shown.ok().json} == self.accounts[number], number
        self.tidemark("verify", "till", "--content").ok()

    @property
    def files(self) -> set[str]:
        """Files of tables, logs included; what a sweep numbers and dates is not among them."""
        root = self.tidemark.warehouse / "till"
        folders = ("state", "dead_letters", "sinks")
        return {str(p.relative_to(root)) for f in folders for p in (root / f).rglob("*") if p.is_file()}

    @property
    def released(self) -> set[str]:
        """Names of what was let go."""
        return set(reads.list_released(self.tidemark.context, "till"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Enough commits for a log that can be trimmed, a compaction, and a savepoint."""
    made = SalesPipeline.opened(tmp_path_factory.mktemp("whole"))
    made.checkpoints(CHECKPOINTS, compact_every=8)
    made.tidemark("savepoint", "create", "till", "march", "--checkpoint", str(PINNED)).ok()
    return Warehouse(made.tidemark, {number: made.accounts(number) for number in (PINNED, *KEPT)})


@pytest.fixture(scope="module")
def swept(whole: Warehouse, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """What a sweep comes to that nobody kills."""
    made = whole.copy(tmp_path_factory.mktemp("swept"))
    told = made.tidemark(*APPLY).ok().json
    assert told["deleted_files"] > 0
    assert told["deleted_log_files"] > 0
    return made


@pytest.fixture
def killed(whole: Warehouse, tmp_path: Path) -> Callable[[str], Warehouse]:
    """A warehouse whose sweep died at a place."""

    def die(place: str) -> Warehouse:
        made = whole.copy(tmp_path / "killed")
        done = made.tidemark.process(*APPLY, TIDEMARK_CRASH_AT=place, TIDEMARK_TEST_FAULTS="1")
        assert done.code == -signal.SIGKILL, f"{place} was not reached: {done.err}"
        return made

    return die


@pytest.mark.parametrize("place", PLACES)
def test_a_killed_sweep_breaks_nothing_and_a_re_run_comes_to_the_same_end(
    swept: Warehouse, killed: Callable[[str], Warehouse], place: str
) -> None:
    made = killed(place)
    made.check((PINNED, *KEPT))
    made.tidemark(*APPLY).ok()
    assert made.released == swept.released
    assert made.files == swept.files
    made.check((PINNED, *KEPT))
    assert made.tidemark(*APPLY).ok().json["deleted_files"] == 0
