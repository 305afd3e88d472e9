"""From rows to records: what was read is found again, what is gone is told, and nobody reads anything else."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext, commands_over
from tests.support.trips import TripsPipeline
from tidemark import Fold
from tidemark.answers.shown_bytes import LONGEST_TEXT, text_of
from tidemark.errors import BusyError, NotFoundError, UsageError
from tidemark.model.checkpoint.codec import body_of
from tidemark.model.core.offsets import OffsetRange, TopicPartition
from tidemark.web import details, sink_rows
from tidemark.web import source_lookup as records
from tidemark.web.source_lookup import LetterQuery, RecordQuery

HERE = Path(__file__).parent
WALK = HERE.parent / "process" / "pipelines" / "walk.py"
FIRST, SECOND = TopicPartition("trips", 0), TopicPartition("trips", 1)


def places(told: Any) -> list[tuple[str, int]]:
    return [(r["partition"], r["offset"]) for r in told["records"]]


def ask(world: TripsPipeline, checkpoint: int, **query: Any) -> Any:
    return body_of(records.read_records(world.pages, "trips", checkpoint, RecordQuery(**query)))


def test_the_records_of_a_key_are_those_that_were_sent_for_it(world: TripsPipeline) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    sent: dict[int, list[tuple[str | None, int, int]]] = {}
    ends = [0, 0]
    for _ in range(4):
        here = []
        for _ in range(chance.randrange(1, 12)):
            bus, partition = chance.choice(["a", "b", "c", None]), chance.randrange(2)
            world.drive(bus, partition=partition)
            here.append((bus, partition, ends[partition]))
            ends[partition] += 1
        sent[world.checkpoint()] = here
    for number, rows in sent.items():
        for bus in "abc":
            told = ask(world, number, uid="buses", key=(bus,), limit=100)
            assert places(told) == sorted((f"trips-{p}", o) for b, p, o in rows if b == bus)
            assert all(json.loads(r["value"]["text"])["bus"] == bus for r in told["records"])
            assert (told["by_key"], told["looked_at"], told["next"]) == (True, len(rows), None)
        whole = ask(world, number, limit=100)
        assert places(whole) == sorted((f"trips-{p}", o) for _, p, o in rows)
        letters = {(f"trips-{p}", o) for b, p, o in rows if b is None}
        assert {place for place, r in zip(places(whole), whole["records"], strict=True) if r["dead_letters"]} == letters
        found = body_of(records.read_dead_letters(world.pages, "trips", number, LetterQuery(uid="buses", limit=100)))
        assert {(r["partition"], r["offset"]) for r in found["rows"]} == letters
        assert found["matching"] == len(letters) and {r["reason"] for r in found["rows"]} <= {"null_key"}


def test_records_of_a_computed_key_are_found_and_those_that_were_filtered_are_marked(world: TripsPipeline) -> None:
    plain = world.line.pipeline
    (buses,) = plain.operators
    assert isinstance(buses, Fold)
    folded = replace(buses, key_by={"bus": "lower(bus)"}, where="miles > 0 AND bus <> 'a'")
    world.line.pipeline = replace(plain, operators=[folded])
    number = world.checkpoint("A", "a", "b", None)
    told = ask(world, number, uid="buses", key=("a",), limit=100)
    assert [(r["offset"], r["filtered"]) for r in told["records"]] == [(0, False), (1, True)]
    assert (told["by_key"], told["looked_at"]) == (True, 4)
    whole = ask(world, number, uid="buses", limit=100)
    assert [r["filtered"] for r in whole["records"]] == [False, True, False, True], "of a null the condition is null"
    assert not any(r["filtered"] for r in ask(world, number, limit=100)["records"]), "no operator was asked for"


def test_pages_of_records_go_on_where_the_last_one_ended_and_miss_nothing(world: TripsPipeline) -> None:
    for n in range(7):
        world.drive("a", partition=n % 2)
    number = world.checkpoint()
    found, after = [], None
    while True:
        told = ask(world, number, limit=2, after=after)
        found += places(told)
        after = told["next"]
        if after is None:
            break
        assert told["stopped_by"] == "matches"
    assert found == [("trips-0", n) for n in range(4)] + [("trips-1", n) for n in range(3)]
    assert places(ask(world, number, partition="trips-1", start=1, end=2)) == [("trips-1", 1)]


def test_what_kafka_has_trimmed_is_told_and_dead_letters_are_still_there(world: TripsPipeline) -> None:
    number = world.checkpoint("a", None, "a", "b")
    world.line.log.trim(FIRST, 3)
    told = ask(world, number)
    (only,) = told["ranges"]
    assert (only["start"], only["end"], only["kept_start"], only["kept_end"]) == (0, 4, 3, 4)
    assert only["why"] == "Kafka has deleted the rest"
    assert places(told) == [("trips-0", 3)]
    (letter,) = body_of(records.read_dead_letters(world.pages, "trips", number, LetterQuery(uid="buses")))["rows"]
    assert letter["offset"] == 1 and json.loads(letter["value"]["text"])["bus"] is None
    world.line.log.trim(FIRST, 9)
    told = ask(world, number)
    assert told["records"] == [] and told["ranges"][0]["kept_start"] == told["ranges"][0]["kept_end"] == 4


def test_dead_letters_are_counted_by_reason_and_a_record_of_two_operators_once(world: TripsPipeline) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    (buses,) = world.line.pipeline.operators
    assert isinstance(buses, Fold)
    both = [
        buses,
        replace(buses, uid="lengths", key_by={"far": "miles"}),
        replace(buses, uid="quiet", where="miles < 0"),
    ]
    world.line.pipeline = replace(world.line.pipeline, operators=both, max_dead_letters=1.0)
    world.checkpoint("before", None)
    nulls, broken = set[int](), set[int]()
    for offset in range(2, 32):
        kind = chance.choice(["a", "b", None, "broken"])
        if kind == "broken":
            world.line.send([(0, b"{", 0)])
            broken.add(offset)
        else:
            world.drive(kind)
            nulls |= {offset} if kind is None else set()
    number = world.checkpoint()
    told = body_of(details.count_rejections(world.pages, "trips", number))
    assert (told["checkpoint"], told["records"]) == (f"chk-{number}", len(nulls | broken))
    counts = {
        o["uid"]: (o["read"], o["letters"], {r["reason"]: r["letters"] for r in o["reasons"]})
        for o in told["operators"]
    }
    found = {"null_key": len(nulls), "malformed_json": len(broken)}
    expected = {
        "buses": (30, len(nulls | broken), {reason: n for reason, n in found.items() if n}),
        "lengths": (30, len(broken), {"malformed_json": len(broken)}),
        "quiet": (30, len(broken), {"malformed_json": len(broken)}),
    }
    assert counts == {uid: of for uid, of in expected.items() if of[1]}
    for reason, offsets in (("null_key", nulls), ("malformed_json", broken), ("late", set[int]())):
        rows = []
        for offset in range(0, 32, 4):
            query = LetterQuery(uid="buses", reason=reason, limit=4, offset=offset)
            page = body_of(records.read_dead_letters(world.pages, "trips", number, query))
            assert page["matching"] == len(offsets)
            rows += page["rows"]
        assert [r["offset"] for r in rows] == sorted(offsets) and {r["reason"] for r in rows} <= {reason}
    with pytest.raises(NotFoundError):
        details.count_rejections(world.pages, "trips", 9)


def test_other_records_at_the_same_offsets_are_not_shown(world: TripsPipeline) -> None:
    number = world.checkpoint("a", "b")
    world.line.log.create("trips", 2)
    world.drive("z", "z", "z")
    told = ask(world, number)
    assert told["records"] == [] and "created again" in told["ranges"][0]["why"]
    world.line.log.delete("trips")
    assert ask(world, number)["ranges"][0]["why"] == "the topic is gone"


def test_nothing_but_the_offsets_of_the_checkpoint_is_read(world: TripsPipeline) -> None:
    first = world.checkpoint("a", "b")
    world.checkpoint("c")
    world.line.log.create("secrets")
    world.line.log.append(TopicPartition("secrets", 0), b"{}")
    for wrong, kind in (
        ({"partition": "secrets-0"}, NotFoundError),
        ({"partition": "trips-1"}, NotFoundError),
        ({"partition": "trips-0", "start": 0, "end": 3}, UsageError),
        ({"partition": "trips-0", "start": 2, "end": 1}, UsageError),
        ({"partition": "nothing"}, UsageError),
        ({"uid": "nothing"}, NotFoundError),
        ({"uid": "buses", "key": ("a", "b")}, UsageError),
        ({"after": "trips-0"}, UsageError),
    ):
        with pytest.raises(kind):
            ask(world, first, **wrong)
    for malformed in ({"key": ("a",)}, {"start": 1}):
        with pytest.raises(UsageError):
            RecordQuery(**malformed)
    with pytest.raises(NotFoundError):
        ask(world, 9)
    assert places(ask(world, first, after="trips-0:1")) == [("trips-0", 1)]
    assert places(ask(world, first, after="trips-0:0")) == [("trips-0", 0), ("trips-0", 1)], "no further than its own"
    assert places(ask(world, first, after="secrets-0:0")) == [("trips-0", 0), ("trips-0", 1)]


def test_a_checkpoint_that_failed_tells_the_records_that_it_was_to_read(world: TripsPipeline) -> None:
    world.drive("a")
    world.line.send([(0, b"\xff\x00 poison", 0)])
    number = world.fail()
    _, poison = ask(world, number)["records"]
    assert (poison["value"]["encoding"], poison["value"]["text"]) == ("hex", b"\xff\x00 poison".hex())


def test_a_third_reader_is_told_to_ask_again(world: TripsPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    from threading import BoundedSemaphore

    turns = BoundedSemaphore(1)
    monkeypatch.setattr("tidemark.web.source_lookup._TURNS", turns)
    number = world.checkpoint("a")
    with turns, pytest.raises(BusyError, match="being read for others"):
        ask(world, number)
    assert places(ask(world, number)) == [("trips-0", 0)]


@pytest.mark.parametrize(
    ("raw", "text", "encoding", "cut"),
    [
        (b"plain", "plain", "utf-8", False),
        ("<b>\u202e\x1b[31m\n".encode(), "<b>\\u202e\\u001b[31m\n", "utf-8", False),
        (b"\xff", "ff", "hex", False),
        (b"x" * (LONGEST_TEXT - 1) + "é".encode() + b"y", "x" * (LONGEST_TEXT - 1), "utf-8", True),
        (b"x" * (LONGEST_TEXT - 1) + "é".encode()[:1], (b"x" * (LONGEST_TEXT - 1) + b"\xc3").hex(), "hex", False),
    ],
)
def test_bytes_become_text_that_does_nothing(raw: bytes, text: str, encoding: str, cut: bool) -> None:
    assert body_of(text_of(raw)) == {"text": text, "encoding": encoding, "cut": cut, "size": len(raw)}


@pytest.fixture
def walk(tmp_path: Path) -> tuple[Command, DiskPipeline]:
    """Steps of two walkers, in two checkpoints; whoever goes far is emitted to a sink."""
    tidemark = Command(tmp_path, "127.0.0.1:1", "sc://127.0.0.1:1")
    tidemark.declare(WALK, topic="steps")
    line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("walk"), "steps")
    for portion in ([("ann", 5), ("bob", 1), ("bob", 9)], [("ann", 1), ("ann", 7), ("bob", 8)]):
        line.send([(0, json.dumps({"who": who, "n": n}).encode(), 0) for who, n in portion])
        line.checkpoint()
    return tidemark, line


def test_a_row_of_a_sink_leads_to_its_very_record(walk: tuple[Command, DiskPipeline]) -> None:
    tidemark, line = walk
    pages = DiskContext(line, tidemark.settings)
    told = body_of(sink_rows.find_sink_origin(pages, "walk", "far", 2, {"who": "ann"}))
    (row,) = told["rows"]
    assert (row["row"]["total"], row["partition"], row["offset"]) == (13, "steps-0", 4)
    assert (told["changed"]["name"], told["uid"], told["more"]) == ("chk-2", "walkers", False)
    assert [(r["start"], r["end"]) for r in told["changed"]["ranges"]] == [(3, 6)]
    query = RecordQuery(partition="steps-0", start=4, end=5)
    (record,) = body_of(records.read_records(pages, "walk", 2, query))["records"]
    assert json.loads(record["value"]["text"]) == {"who": "ann", "n": 7}
    both = body_of(sink_rows.find_sink_origin(pages, "walk", "far", 1, {}, limit=1))
    assert (len(both["rows"]), both["more"]) == (1, True)
    assert [
        r["row"]["who"] for r in body_of(sink_rows.find_sink_origin(pages, "walk", "far", 1, {"_offset": "2"}))["rows"]
    ] == ["bob"]
    for wrong, kind in (
        (("far", 2, {"who": "eve"}), NotFoundError),
        (("far", 9, {}), NotFoundError),
        (("near", 1, {}), NotFoundError),
        (("far", 1, {"nothing": "x"}), UsageError),
        (("far", 1, {"total": "many"}), UsageError),
        (("far", 1, {"last": "x"}), UsageError),
    ):
        with pytest.raises(kind):
            body_of(sink_rows.find_sink_origin(pages, "walk", *wrong))


def test_the_commands_tell_the_same(walk: tuple[Command, DiskPipeline]) -> None:
    tidemark, line = walk
    with commands_over(line):
        told = tidemark("state", "lineage", "walk", "walkers", "--key", "ann", "--records", "5", "--json").ok().json
        assert told["changed"]["name"] == "chk-2"
        assert [(r["offset"], json.loads(r["value"]["text"])["n"]) for r in told["records"]["records"]] == [
            (3, 1), (4, 7),
        ]  # fmt: skip
        plain = tidemark("state", "lineage", "walk", "walkers", "--key", "ann", "--records", "1").ok()
        assert "steps-0 [3, 6)" in plain.out and '"n": 1' in plain.out
        assert "--checkpoint chk-1" in plain.err and "stopped by: matches" in plain.err
        emitted = ("sink", "source", "walk", "far", "--checkpoint", "chk-1", "--where", "who=bob", "--records", "1")
        told = tidemark(*emitted, "--json").ok().json
        assert [json.loads(r["value"]["text"])["n"] for r in told["records"][0]["records"]] == [9]
        assert "steps-0 2" in tidemark(*emitted).ok().out
        tidemark("state", "lineage", "walk", "walkers", "--key", "eve").failed(3, "eve")
        tidemark("sink", "source", "walk", "far", "--checkpoint", "chk-1", "--where", "who").failed(2, "COLUMN=VALUE")
        line.log.trim(TopicPartition("steps", 0), 6)
        gone = tidemark("state", "lineage", "walk", "walkers", "--key", "ann", "--records", "1").ok()
        assert "steps-0 [3, 6): nothing is left. Kafka has deleted these records." in gone.err


def test_the_part_of_a_range_that_is_kept_is_never_outside_it() -> None:
    from tidemark.ports import PartitionLog
    from tidemark.web.source_lookup import _kept

    within = OffsetRange(5, 10)
    for earliest in range(14):
        for end in range(earliest, 15):
            kept = _kept(within, PartitionLog(earliest=earliest, end=end))
            there = [n for n in range(5, 10) if earliest <= n < end]
            assert list(range(kept.start, kept.end)) == there
            assert within.start <= kept.start <= kept.end <= within.end
    assert _kept(within, None).is_empty
