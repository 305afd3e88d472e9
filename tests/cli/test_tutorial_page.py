"""`docs/tutorial.md` over the memory twins of Kafka and Spark: its pipeline, and its commands in their order.

`tests/e2e/test_tutorial.py` follows the same page with real services and runs its DAG.
"""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import commands_over

PAGE = Path(__file__).resolve().parents[2] / "docs/tutorial.md"
LINES = 100
"""A tutorial that is longer is not read to its end."""
STEP = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def _sent(text: str) -> list[tuple[str, int]]:
    """The orders that a line `python send_orders.py anna:30 …` sends."""
    orders = (word.split(":") for word in shlex.split(text)[2:])
    return [(customer, int(amount)) for customer, amount in orders]


def _totals(orders: list[tuple[str, int]]) -> dict[str, tuple[int, int]]:
    spent: dict[str, list[int]] = {}
    for customer, amount in orders:
        spent.setdefault(customer, []).append(amount)
    return {customer: (len(amounts), sum(amounts)) for customer, amounts in spent.items()}


def _shown(rows: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    return {row["customer"]: (row["orders"], row["spent"]) for row in rows}


def test_the_tutorial_is_short() -> None:
    assert len(PAGE.read_text().splitlines()) <= LINES


def test_the_commands_of_the_tutorial_come_to_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = STEP.findall(PAGE.read_text())
    (declared,) = (text for language, text in steps if language == "python" and "Pipeline(" in text)
    tidemark = Command(tmp_path, "127.0.0.1:1", "sc://127.0.0.1:1")
    tidemark.declare(declared, file="orders.py")
    line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("orders"), "orders")
    monkeypatch.chdir(tmp_path)
    sent: list[tuple[str, int]] = []
    shown = []
    for language, text in steps:
        if "checkpoint_dag(" in text:
            with commands_over(line):
                tidemark("run", "orders").ok()  # as the DAG does
        for typed in text.splitlines() if language == "bash" else ():
            if typed.startswith("python "):
                for customer, amount in _sent(typed):
                    value = json.dumps({"customer": customer, "amount": amount}).encode()
                    line.send([(len(customer) % 2, value, len(sent))])
                    sent.append((customer, amount))
            elif typed != "tidemark up":
                asked = shlex.split(typed)[1:]
                with commands_over(line):
                    answer = tidemark(*asked, *(["--json"] if asked[:2] == ["state", "show"] else [])).ok()
                if asked[:2] == ["state", "show"]:
                    shown.append(_shown(answer.json))
    assert shown[0] == {"anna": (2, 35), "bert": (1, 12)}, "as the page says"
    assert shown[1] == shown[2] == _totals(sent), "before the restore, and behind it"
