"""The third line of an error is a command to type, with the pipeline's name in it."""

import ast
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.bank import ASK, BankPipeline
from tidemark.context import Context
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.plans.replay_ranges import ReplayProgress, remaining
from tidemark.coordinator.records.states import Refused
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.coordinator.recovery.stop_and_resume import Stopping
from tidemark.errors import TidemarkError
from tidemark.model.retention.savepoint import SavepointChange, SavepointRequest, TombstoneKind
from tidemark.ports import PutOutcome
from tidemark.settings import load_settings
from tidemark.testing.twin.memory import MemoryStore

PACKAGE = Path(__file__).resolve().parents[3] / "include" / "tidemark"


def asked(name: str = "sp", *, checkpoint: int | None = None, drained: bool = False) -> SavepointRequest:
    return SavepointRequest(name=name, owner="ann", origin="o", checkpoint=checkpoint, drained=drained)


def pin_nothing(bank: BankPipeline) -> None:
    empty = BankPipeline()
    empty.savepoints.create(asked())


def overtaken(bank: BankPipeline) -> None:
    bank.savepoints.create(asked())

    class Racing(MemoryStore):
        """Somebody changes the savepoint right before a put."""

        def put_if_absent(self, key: str, body: bytes) -> PutOutcome:
            if key.endswith("sp/000002.json"):
                bank.savepoints.change("sp", SavepointChange(note="mine"))
            return super().put_if_absent(key, body)

    slow = replace(bank.coordinator, store=Racing(bank.store.objects))
    replace(bank.savepoints, coordinator=slow).change("sp", SavepointChange(note="theirs"))


def stop_again(bank: BankPipeline) -> None:
    Stopping(bank.coordinator).stop("maintenance")
    Stopping(bank.coordinator).stop_with_savepoint(asked(), "again", bank.complete)


def resume_drained(bank: BankPipeline) -> None:
    Stopping(bank.coordinator).stop_with_savepoint(asked(drained=True), "the end", bank.complete)
    Stopping(bank.coordinator).resume("after all")


def pin_doomed(bank: BankPipeline) -> None:
    bank.savepoints.tombstones.raise_for(TombstoneKind.CHECKPOINT, "chk-1", "retention")
    bank.savepoints.create(asked(checkpoint=1))


def fenced(bank: BankPipeline) -> None:
    bank.send(1)
    plan = bank.plan()
    first = bank.coordinator.begin(plan)
    bank.coordinator.begin(plan)
    assert isinstance(first, OwnedAttempt)
    first.check()


def repeat_another_line(bank: BankPipeline) -> None:
    bank.recovery.fork(RestoreRequest(checkpoint=2).find_restore_point(bank.coordinator), "later")
    remaining(bank.coordinator.timelines, ReplayProgress.of(bank.coordinator.head("later")), 1)


CASES: list[tuple[Callable[[BankPipeline], object], str]] = [
    (pin_nothing, "tidemark run bank"),
    (overtaken, "tidemark savepoint show bank sp"),
    (stop_again, "tidemark savepoint create bank NAME"),
    (resume_drained, "tidemark resume bank --force"),
    (pin_doomed, "tidemark savepoint list bank "),
    (fenced, "tidemark checkpoint list bank "),
    (repeat_another_line, "tidemark checkpoint list bank "),
    (lambda bank: bank.savepoints.get("nobody"), "tidemark savepoint list bank "),
    (lambda bank: bank.coordinator.checkpoint(99), "tidemark checkpoint list bank "),
    (lambda bank: bank.coordinator.plan_of(99), "tidemark checkpoint list bank "),
    (lambda bank: bank.coordinator.head("nowhere"), "tidemark timeline list bank "),
    (lambda bank: RestoreRequest(as_of_ms=0).find_restore_point(bank.coordinator), "tidemark checkpoint list bank "),
]


@pytest.mark.parametrize(
    ("do", "command"), CASES, ids=lambda given: given if isinstance(given, str) else given.__name__
)
def test_an_error_names_the_pipeline_in_what_to_type(do: Callable[[BankPipeline], object], command: str) -> None:
    bank = BankPipeline()
    for _ in range(2):
        bank.send(1)
        bank.complete()
    with pytest.raises(TidemarkError) as caught:
        do(bank)
    assert command in caught.value.next


def test_a_plan_that_is_refused_because_of_a_stop_says_how_to_resume() -> None:
    bank = BankPipeline()
    Stopping(bank.coordinator).stop("maintenance")
    ended = bank.loop.run_once(ASK).ended
    assert isinstance(ended, Refused)
    assert "tidemark resume bank" in ended.next


def test_the_coordinator_of_a_project_knows_the_name(tmp_path: Path) -> None:
    core = Context(load_settings(root=tmp_path))
    assert core.coordinator("flights").objects.pipeline == "flights"


def test_no_text_tells_to_type_a_placeholder() -> None:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.parent.name in ("cli", "airflow"):  # examples there are for people who choose one
            continue
        texts = (n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant))
        found += [
            f"{path.name}: {t}" for t in texts if isinstance(t, str) and re.search(r"tidemark [a-z ]*PIPELINE", t)
        ]
    assert not found, "write the pipeline's name: " + "; ".join(found)
