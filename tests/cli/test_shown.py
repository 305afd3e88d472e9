"""`checkpoint show` of a pipeline that emits: what was emitted, and where it lies."""

import json
from pathlib import Path

import pytest

from tests.support.cli import Command
from tests.support.disk import DiskPipeline

DECLARATION = '''
"""Ticks of keys; every second one is told."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from tidemark import DeltaSink, Fold, KafkaSource, Pipeline, Process, state


@dataclass(frozen=True)
class Tick:
    """One record."""

    who: str
    n: int
    at: datetime


@dataclass(frozen=True)
class Even:
    """Emitted."""

    who: str
    n: int


class Last(state.Keyed):
    """How often the key was seen."""

    times: int = state.value(0)


class Count(state.Keyed):
    """The same, folded."""

    times: int = state.count()


def tell(who: str, ticks: Iterator[Tick], last: Last) -> Iterator[Even]:
    """Tells of even numbers."""
    for tick in ticks:
        last.times += 1
        if tick.n % 2 == 0:
            yield Even(who, tick.n)


ticks = Pipeline(
    name="ticks",
    source=KafkaSource("ticks", Tick, event_time="at"),
    operators=[
        Process("seen", key_by="who", state=Last, function=tell, emits=Even, sink=DeltaSink("evens")),
        Fold("counts", key_by="who", state=Count),
    ],
)
'''


UNREAD = (
    "asyncio", "openlineage", "pandas", "psutil", "pydantic_settings", "tidemark.answers",
    "tidemark.coordinator.checkpoints", "tidemark.coordinator.plans.planner",
    "tidemark.coordinator.publications", "tidemark.coordinator.recovery", "tidemark.coordinator.retention",
    "tidemark.engine", "tidemark.kafka", "tidemark.transfer", "tidemark.web",
)  # fmt: skip
"""Modules and packages that `state show` of a checkpoint has no use for."""
MOST = 150
"""Modules of Tidemark that `state show` may import; each takes about a millisecond."""


@pytest.fixture
def ticks(tmp_path: Path) -> Command:
    """Two checkpoints: numbers 0 to 4, then 5 to 7."""
    command = Command(tmp_path, "127.0.0.1:1", "sc://127.0.0.1:1")
    command.declare(DECLARATION)
    line = DiskPipeline(command.warehouse, command.context.pipeline("ticks"), "ticks")
    for batch in (range(5), range(5, 8)):
        values = [{"who": "ab"[n % 2], "n": n, "at": f"2024-05-01T00:00:{n:02}Z"} for n in batch]
        line.send([(0, json.dumps(v).encode(), n) for n, v in zip(batch, values, strict=True)])
        line.checkpoint()
    return command


def test_what_was_emitted_is_told_with_the_table_of_its_sink(ticks: Command) -> None:
    for n, emitted, rows in ((1, 3, 3), (2, 1, 4)):
        whole = ticks("checkpoint", "show", "ticks", str(n), "--json").ok().json
        acks = {a["uid"]: a for a in whole["sealed"]["acks"]}
        assert acks["seen"]["emitted"] == emitted
        assert sum(s["rows"] for s in acks["seen"]["sink"]["segments"]) == rows
        told = ticks("checkpoint", "show", "ticks", str(n)).ok()
        assert f"sink evens  of seen, which emitted {emitted} records" in told.err
        assert f"sink evens  ticks/sinks/evens/t1~v2@{n - 1}  (0, {n}]  {rows} rows" in told.err
        assert "sink counts" not in told.err
    facts = ticks("checkpoint", "list", "ticks", "--json").ok().json
    assert [f["emitted"] for f in facts] == [{"seen": 1}, {"seen": 3}]
    assert [f["sinks"] for f in facts][1] == {
        "evens": [{"path": "ticks/sinks/evens/t1~v2", "version": 0, "after": 0, "through": 1}]
    }
    assert [r["n"] for r in ticks("sink", "show", "ticks", "evens", "--json").ok().json] == [0, 2, 4, 6]


def test_state_show_imports_what_it_reads_with_and_no_more(ticks: Command) -> None:
    shown = ticks.process("state", "show", "ticks", "counts", "--key", "a", PYTHONPROFILEIMPORTTIME="1").ok()
    assert shown.out.splitlines()[1].split()[:2] == ["a", "4"]
    imported = {line.rpartition("|")[2].strip() for line in shown.err.splitlines() if line.startswith("import time:")}
    assert {"duckdb", "tidemark.context", "tidemark.readers.checkpoint_reader"} <= imported
    assert [name for name in sorted(imported) if any(f"{name}.".startswith(f"{unread}.") for unread in UNREAD)] == []
    assert len([name for name in imported if name.startswith("tidemark")]) <= MOST
