"""Debezium's deletes on the page of records, and as dead letters: `op` d is a delete although it has a value."""

import json
from pathlib import Path
from typing import Any

from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext, commands_over
from tests.support.row_changes import event
from tidemark.model.checkpoint.codec import body_of
from tidemark.model.core.offsets import TopicPartition
from tidemark.web.source_lookup import RecordQuery, read_records

ITEMS = """
from dataclasses import dataclass

from tidemark import Fold, KafkaSource, Pipeline, Process, formats, kafka, state
from tidemark.formats import debezium


@dataclass(frozen=True)
class Item:
    id: int
    name: str | None
    $column


class Copy(state.Keyed):
    name: str | None = state.latest("name")


class Late(state.Keyed):
    n: int = state.value(0)


def pass_over(id, changes, kept):
    pass


items = Pipeline(
    name="items",
    source=KafkaSource("items", Item, format=formats.$format),
    operators=[
        Fold("copy", key_by="$key", state=Copy, deletes=True),
        Fold("seen", key_by="$key", state=Copy),
        $more
    ],
    max_dead_letters=1.0,
)
"""
ROW = {"id": 1, "name": "x"}
KEY = b'{"id": 1}'
SENT = [
    (KEY, event("c", None, ROW, 5)),
    (KEY, event("d", ROW, None, 5)),
    (KEY, None),
    (b"{}", event("d", ROW, None, 5)),
    (b'{"id": 2}', event("c", None, {"id": 2, "name": "y", "cents": 3}, 5)),
    (None, event("t", None, None, 5)),
    (b"{}", event("c", None, {"id": 3, "name": "z", "cents": 3}, 5)),
]


class Items:
    """The pipeline over twins, and its commands."""

    def __init__(self, home: Path, **declared: str) -> None:
        self.command = Command(home, "127.0.0.1:1", "sc://127.0.0.1:1")
        self.declare(**declared)
        self.line = DiskPipeline(self.command.warehouse, self.command.context.pipeline("items"), "items")
        for n, (key, found) in enumerate(SENT):
            value = None if found is None else json.dumps(found).encode()
            self.line.log.append(TopicPartition("items", 0), value, key=key, timestamp_ms=1_000_000 + n)

    def declare(self, *, column: str = "", format: str = "Debezium()", key: str = "id", more: str = "") -> None:
        self.command.declare(ITEMS, file="items.py", column=column, format=format, key=key, more=more)

    def shown(self, uid: str) -> list[tuple[int, str, str | None]]:
        """The letters of an operator: offset, reason, and what the current declaration says."""
        with commands_over(self.line):
            found = self.command("dead-letters", "show", "items", uid, "--json").ok().json
        return [(letter["offset"], letter["reason"], letter["today"]) for letter in found]

    def records(self, uid: str, *key: str) -> list[tuple[int, bool, dict[str, str]]]:
        """The records that an operator reads: offset, whether it leaves it out, its letters."""
        pages = DiskContext(self.line, self.command.context.settings)
        found: Any = body_of(read_records(pages, "items", 1, RecordQuery(uid=uid, key=key, limit=100)))
        return [(r["offset"], r["filtered"], r["dead_letters"]) for r in found["records"]]


def test_deletes_are_deletes_or_filtered_and_letters_only_without_a_key(tmp_path: Path) -> None:
    items = Items(tmp_path)
    done = items.line.checkpoint()
    assert [(a.uid, a.applied, a.filtered, a.dead_lettered) for a in done.sealed.acks] == [
        ("copy", 4, 0, 3),
        ("seen", 2, 3, 2),
    ]
    truncated = (5, "unsupported_op", "unsupported_op")
    assert items.shown("copy") == [(3, "bad_key", "bad_key"), truncated, (6, "bad_key", "bad_key")]
    assert items.shown("seen") == [truncated, (6, "bad_key", "bad_key")]
    assert [(offset, filtered) for offset, filtered, _ in items.records("seen")] == [
        (0, False), (1, True), (2, True), (3, True), (4, False), (5, False), (6, False),
    ]  # fmt: skip
    assert not any(filtered for _, filtered, _ in items.records("copy"))
    assert [offset for offset, _, _ in items.records("copy", "1")] == [0, 1, 2]
    assert [offset for offset, _, _ in items.records("seen", "1")] == [0, 1, 2]


def test_letters_of_another_format_are_judged_as_changes(tmp_path: Path) -> None:
    items = Items(tmp_path, format="Json()")
    done = items.line.checkpoint()
    assert [(a.uid, a.applied, a.dead_lettered) for a in done.sealed.acks] == [("copy", 0, 7), ("seen", 0, 7)]
    items.declare()
    copy = {offset: today for offset, _, today in items.shown("copy")}
    assert copy == {0: None, 1: None, 2: None, 3: "bad_key", 4: None, 5: "unsupported_op", 6: "bad_key"}
    seen = {offset: today for offset, _, today in items.shown("seen")}
    assert seen == copy | {1: "filtered", 2: "filtered", 3: "filtered"}
    with commands_over(items.line):
        items.command("dead-letters", "redrive", "items", "seen", "--out-of-order", "--execute").ok()
    items.line.pipeline = items.command.context.pipeline("items")
    (again,) = (ack for ack in items.line.checkpoint().sealed.acks if ack.uid == "seen")
    assert (again.redriven, again.applied, again.filtered, again.dead_lettered) == (7, 2, 3, 2)
    items.declare(column="cents: int")
    assert {offset: today for offset, _, today in items.shown("copy")} == copy | {0: "missing_field: cents"}


def test_the_page_knows_conditions_on_fields_that_are_not_in_the_row(tmp_path: Path) -> None:
    taking = """Process("late", key_by="id", state=Late, function=pass_over, where="op = 'c' AND at > 3"),"""
    columns = "op: str = debezium.op()\n    at: int = kafka.offset()"
    items = Items(tmp_path, column=columns, more=taking)
    done = items.line.checkpoint()
    (late,) = (ack for ack in done.sealed.acks if ack.uid == "late")
    assert (late.applied, late.filtered, late.dead_lettered) == (2, 4, 1)
    assert [offset for offset, filtered, _ in items.records("late") if filtered] == [0, 1, 2, 3]
