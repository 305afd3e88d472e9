"""What `tidemark erase` does with dead letters: it deletes those of the erased operator, and counts those of others."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import commands_over
from tidemark.operations import retention

PIPELINE = """
from dataclasses import dataclass
from tidemark import Fold, KafkaSource, Pipeline, state

@dataclass(frozen=True)
class Visit:
    who: str
    place: str
    paid: int

class Seen(state.Keyed):
    times: int = state.count()

house = Pipeline(
    name="house",
    source=KafkaSource("visits", Visit),
    operators=[Fold("people", key_by="who", state=Seen), Fold("places", key_by="place", state=Seen)],
    max_dead_letters=1.0,
)
"""
LETTERS = "house/dead_letters/people/t1~v2"
OTHERS = "house/dead_letters/places/t1~v2"
PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/erase.md"


def _visit(who: str, n: int, paid: object = 1) -> tuple[int, bytes, int]:
    return 0, json.dumps({"who": who, "place": "hall", "paid": paid}).encode(), n


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Command]:
    """Two checkpoints; in the first a record of bob cannot be decoded, so it is a dead letter of both folds."""
    tidemark = Command(tmp_path, "127.0.0.1:1", "sc://127.0.0.1:1")
    tidemark.declare(PIPELINE, file="house.py")
    line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("house"), "visits")
    line.send([_visit("ann", 0), _visit("bob", 1), _visit("bob", 2, paid="much")])
    line.checkpoint()
    line.send([_visit("bob", 3)])
    line.checkpoint()
    with commands_over(line):
        yield tidemark


def _holding(tidemark: Command, uid: str, text: bytes) -> list[Path]:
    """Dead-letter files of an operator whose rows hold a text."""
    import pyarrow.parquet as pq

    files = (tidemark.warehouse / "house/dead_letters" / uid).glob("*/[!_]*/*.parquet")
    return [p for p in files if any(text in v for v in pq.read_table(p, partitioning=None)["value"].to_pylist() if v)]


def test_an_erasure_takes_the_dead_letters_of_its_operator_and_counts_those_of_others(house: Command) -> None:
    told = house("erase", "house", "people", "--key", "bob", "--json").ok().json
    assert told["dead_letters"] == {OTHERS: 1}, "every operator has a letter of a record that cannot be decoded"
    assert any(f["file"].startswith(f"{LETTERS}/") and f["rows"] == 1 for f in told["files"])
    assert _holding(house, "people", b'"bob"'), "a dry run writes nothing"
    house("erase", "house", "people", "--key", "bob", "--now", "--execute").ok()
    house("state", "show", "house", "people", "--key", "bob").failed(3)
    assert not _holding(house, "people", b'"bob"')
    assert len(_holding(house, "places", b'"bob"')) == 1
    assert house("erase", "house", "people", "--key", "bob", "--json").ok().json["dead_letters"] == {OTHERS: 1}
    house("verify", "house", "--content").ok()


def test_letters_of_other_keys_stay(house: Command) -> None:
    house("erase", "house", "people", "--key", "ann", "--now", "--execute").ok()
    assert len(_holding(house, "people", b'"bob"')) == 1
    house("erase", "house", "places", "--key", "hall", "--now", "--execute").ok()
    assert not _holding(house, "places", b'"bob"'), "a letter of bob, by the key of `places`"
    assert len(_holding(house, "people", b'"bob"')) == 1


def test_dead_letters_do_not_go_with_their_checkpoint(house: Command) -> None:
    swept = retention.sweep(house.context, "house", "keep_last(1)", grace_ms=0)
    assert swept is not None
    retention.sweep(house.context, "house", "keep_last(1)", grace_ms=0)
    house("state", "show", "house", "people", "--checkpoint", "1").failed(3)
    assert len(_holding(house, "people", b'"bob"')) == 1


def test_the_page_says_so() -> None:
    page = " ".join(PAGE.read_text().split())
    assert "An erasure deletes those that belong to the key" in page
    assert "Only tables of the operators that are erased are changed." in page
