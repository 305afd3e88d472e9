"""`tidemark backfill`: which options go together, and what is told of operators that cannot be compared; no Spark."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import commands_over
from tests.support.sales import Sales

DECLARATION = Path(__file__).parent / "pipelines" / "till.py"
SEED = 20241123
COMMAND = ("backfill", "till", "--from-checkpoint", "chk-1")


@pytest.fixture
def tidemark(tmp_path: Path) -> Iterator[Command]:
    """The commands over three checkpoints of a till."""
    made = Command(tmp_path, "127.0.0.1:1", "sc://127.0.0.1:1")
    made.declare(DECLARATION, topic="sales")
    line, sales = DiskPipeline(made.warehouse, made.context.pipeline("till"), "sales"), Sales(SEED)
    for _ in range(3):
        line.send(sales.more(12))
        line.checkpoint()
    with commands_over(line):
        yield made


@pytest.mark.parametrize("mode", ["promote", "approve"])
@pytest.mark.parametrize("options", [(), ("--execute",), ("--execute", "--yes")])
def test_what_may_become_live_has_no_end_and_that_is_said_before_anything_is_repeated(
    tidemark: Command, mode: str, options: tuple[str, ...]
) -> None:
    before = tidemark.objects("till")
    tidemark(*COMMAND, "--to", "chk-2", "--mode", mode, *options).failed(2, "chk-2 cannot become live", "omit the end")
    assert tidemark.objects("till") == before
    told = tidemark(*COMMAND, "--to", "chk-2", "--json").ok().json
    assert (told["to"], told["left"]) == ("chk-2", [["chk-2"]]), "to compare it is allowed"


@pytest.mark.parametrize("options", [(), ("--from-savepoint", "june")])
def test_a_backfill_begins_in_one_place(tidemark: Command, options: tuple[str, ...]) -> None:
    command = COMMAND if options else COMMAND[:2]
    tidemark(*command, *options).failed(2, "name one restore point")


def test_operators_that_cannot_be_compared_are_named(tidemark: Command) -> None:
    tidemark.declare(DECLARATION.read_text().replace('Fold("accounts"', 'Fold("people"'), topic="sales")
    answer = tidemark(*COMMAND, "--allow-non-restored-state", "--execute", "--json").ok()
    assert [row["uid"] for row in answer.json["differences"]] == ["tills"]
    assert answer.json["not_compared"] == ["accounts", "people"]
    assert "not compared, because one side lacks them or their keys differ: accounts, people" in answer.err
    assert answer.json["promoted"] is False
