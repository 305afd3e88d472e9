"""Where rows come from: the checkpoint, its offsets, and the records themselves."""

from typing import Any

from pydantic import BaseModel


class OriginRange(BaseModel):
    """Offsets `[start, end)` that a row came from."""

    partition: str
    start: int
    end: int


class Change(BaseModel):
    """The checkpoint that changed a row; not `known` where its manifest is gone."""

    checkpoint: int
    name: str
    known: bool
    run: str | None = None
    timeline: str | None = None
    parent: int | None = None
    logical_time: str | None = None
    ranges: list[OriginRange] = []


class Origin(BaseModel):
    """A row of state and its origin."""

    uid: str
    key: list[str]
    as_of: str
    row: dict[str, Any]
    changed: Change


class SinkRow(BaseModel):
    """A row of a sink, and the record that it was emitted for; `number` counts the rows of one record."""

    row: dict[str, Any]
    uid: str
    partition: str
    offset: int
    number: int


class SinkOrigin(BaseModel):
    """Rows of a sink that one checkpoint emitted; `more` where there are others."""

    sink: str
    uid: str
    more: bool
    changed: Change
    rows: list[SinkRow]


class Text(BaseModel):
    """Bytes as text; `size` of all of them, of which a part is shown where it was `cut`."""

    text: str
    encoding: str
    size: int
    cut: bool


class Record(BaseModel):
    """A record of a topic; `dead_letters` says by operator why it could not be applied."""

    partition: str
    offset: int
    timestamp: str | None
    key: Text | None
    value: Text | None
    dead_letters: dict[str, str]


class HeldRange(BaseModel):
    """A range that was asked for, the part of it that Kafka still has, and why that is not all."""

    partition: str
    start: int
    end: int
    kept_start: int
    kept_end: int
    why: str | None


class Records(BaseModel):
    """A bounded read; `next`, given as `after`, goes on with it."""

    checkpoint: str
    by_key: bool
    ranges: list[HeldRange]
    records: list[Record]
    looked_at: int
    stopped_by: str
    next: str | None


class DeadLetter(BaseModel):
    """A record that an operator could not apply."""

    partition: str
    offset: int
    timestamp: str
    reason: str
    key: Text | None
    value: Text | None


class DeadLetters(BaseModel):
    """Those of one operator in one checkpoint; `matching` counts all of them."""

    checkpoint: str
    uid: str
    matching: int
    rows: list[DeadLetter]
