"""`tidemark compact` merges the files of sinks and dead letters; every other command works on the result."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import commands_over

PIPELINE = """
from dataclasses import dataclass
from datetime import timedelta
from tidemark import DeltaSink, KafkaSource, Pipeline, Process, state

@dataclass(frozen=True)
class Visit:
    who: str
    place: str

@dataclass(frozen=True)
class Greeting:
    who: str
    times: int

class Seen(state.Keyed):
    times: int = state.value(0)

def greet(who, visits, seen):
    for _ in visits:
        seen.times += 1
        yield Greeting(who, seen.times)

house = Pipeline(
    name="house",
    source=KafkaSource("visits", Visit),
    operators=[
        Process("people", key_by="who", state=Seen, function=greet, emits=Greeting,
                sink=DeltaSink("greetings", keep_for=timedelta(days=900))),
    ],
    max_dead_letters=1.0,
    keep_dead_letters_for=timedelta(days=900),
)
"""
RUNS = 9


def _visits(n: int) -> list[tuple[int, bytes, int]]:
    bodies: list[dict[str, object]] = [{"who": "ann", "place": "hall"}, {"who": "bob"}, {"who": "bob", "place": "hall"}]
    return [(0, json.dumps(body).encode(), n) for body in bodies]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[tuple[Command, DiskPipeline]]:
    """Nine checkpoints, each with a letter of bob; the runs of the state are merged, those of the rows are not."""
    tidemark = Command(tmp_path, "127.0.0.1:1", "sc://127.0.0.1:1")
    tidemark.declare(PIPELINE, file="house.py")
    line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("house"), "visits")
    for n in range(RUNS):
        line.send(_visits(n))
        line.checkpoint()
        if n == RUNS - 3:
            assert line.compact("people", full=True)
    with commands_over(line):
        yield tidemark, line


def test_a_compaction_is_listed_adopted_read_and_verified(house: tuple[Command, DiskPipeline]) -> None:
    tidemark, line = house
    before = tidemark("sink", "show", "house", "greetings", "--json").ok().json
    told = tidemark("compact", "house", "--json").ok().json
    assert [(row["uid"], row["table"]) for row in told] == [("people", "dead letters"), ("greetings", "sink")]
    assert all((row["files_before"], row["files_after"], row.get("amplification")) == (RUNS, 1, None) for row in told)
    assert tidemark("compact", "house", "people", "--json").ok().json, "the next plan adopts it: until then it is due"
    line.send(_visits(RUNS))
    line.checkpoint()
    assert tidemark("compact", "house", "--json").ok().json == []
    after = tidemark("sink", "show", "house", "greetings", "--json").ok().json
    assert after[:-2] == before and len(after) == 2 * (RUNS + 1)
    shown = tidemark("checkpoint", "show", "house", f"chk-{RUNS + 1}", "--json").ok().json
    (ack,) = shown["sealed"]["acks"]
    assert [s["path"].rpartition("/")[2] for s in ack["dead_letters"]["segments"]] == ["t1~v2~base", "t1~v2"]
    assert set(shown["plan"]["adopted"]) == {"people~dead_letters", "greetings~sinks"}
    origin = tidemark("sink", "source", "house", "greetings", "--checkpoint", "chk-2", "--json").ok().json
    assert len(origin["rows"]) == 2
    tidemark("verify", "house", "--content").ok()
    tidemark("retention", "apply", "house", "--keep", "keep_last(1)", "--grace", "0", "--execute").ok()
    tidemark("verify", "house", "--content").ok()
    assert tidemark("sink", "show", "house", "greetings", "--json").ok().json == after
    tables = tidemark("storage", "house", "--json").ok().json["tables"]
    assert {(t["kind"], t["owner"], t["timeline"]) for t in tables} >= {
        ("sinks", "greetings", "t1"),
        ("dead_letters", "people", "t1"),
    }


def test_an_erasure_reaches_compacted_rows_and_says_what_it_leaves(house: tuple[Command, DiskPipeline]) -> None:
    tidemark, line = house
    tidemark("compact", "house").ok()
    line.send(_visits(RUNS))
    line.checkpoint()
    told = tidemark("erase", "house", "people", "--key", "bob", "--json").ok().json
    folders = {file["file"].rpartition("/")[0].rpartition("/")[0] for file in told["files"]}
    assert folders >= {"house/sinks/greetings/t1~v2~base", "house/dead_letters/people/t1~v2~base"}
    assert told["dead_letters"] == told["sinks"] == {}
    tidemark("erase", "house", "people", "--key", "bob", "--now", "--execute").ok()
    rows = tidemark("sink", "show", "house", "greetings", "--json").ok().json
    assert [row["times"] for row in rows] == list(range(1, RUNS + 2)) and {row["who"] for row in rows} == {"ann"}
    tidemark("verify", "house", "--content").ok()
    text = b"".join(p.read_bytes() for p in (tidemark.warehouse / "house").rglob("*.json") if "_delta_log" in str(p))
    assert b'"bob"' not in text
