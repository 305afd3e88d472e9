"""Interval joins: which rows of two inputs are kept, until when, and the record that both inputs become.

An interval join keeps the rows of both inputs in one table of operands, so that whatever reads, merges or compacts the
operands of a fold also works for it (adr/0058). A row has the key, its side and its position as key columns, and the
bounds of its life in event time as a window, which closes by the frontier of the operator like any other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from tidemark.model.core.offsets import Path
from tidemark.model.core.types import FieldType
from tidemark.model.schema.event_windows import Span, StoredWindow, from_ms, to_ms

LEFT, RIGHT = "left", "right"
SIDES = (LEFT, RIGHT)
SIDE, POSITION = "join_side", "join_position"
"""Key columns of a kept row, behind those of the key."""
RECORDS = {LEFT: "left_record", RIGHT: "right_record"}
"""The column that holds the record of each side."""
MATCHED = "has_partner"
"""The column that marks a left row with a partner, because the partner may be gone before it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredJoin(StoredWindow):
    """The life of the rows of an interval join, as its stored schema has it.

    A left row at `t` waits for partners up to `t + max(upper, 0)`, a right one up to `t - lower`. Its window ends one
    millisecond later, so it is closed exactly if that time lies before the frontier.

    Attributes:
        how: `inner`, or `left`: left rows without a partner are emitted, too.
        lower_ms: the least distance of partners, event time of the right one minus that of the left one.
        upper_ms: the greatest distance.
        keys: per key column the field of a left record and that of a right one.
        inputs: the left and the right input; other names are no other join.
    """

    kind: ClassVar[str] = "interval join"
    how: str
    lower_ms: int
    upper_ms: int
    keys: tuple[tuple[str, str], ...]
    inputs: tuple[str, str] = field(compare=False)

    @property
    def shown(self) -> str:
        """The join in words; other words are another key."""
        on = " and ".join(f"{left} = {right}" for left, right in self.keys)
        return f"{self.kind} ({self.how}) on {on} within {self.lower_ms} to {self.upper_ms} ms"

    @property
    def keeps_unmatched(self) -> bool:
        """Whether left rows without a partner are emitted."""
        return self.how == LEFT

    def keeps_ms(self, side: str) -> int:
        """Returns how long after its event time a row may find partners; negative if only before it."""
        return max(self.upper_ms, 0) if side == LEFT else -self.lower_ms

    def columns_of(self, event_time: datetime, fields: Mapping[str, Any]) -> tuple[Any, ...]:
        """See `StoredWindow`: side and position, and the bounds of the row's life."""
        side = fields["side"]
        end = from_ms(to_ms(event_time) + self.keeps_ms(side) + 1)
        return (side, fields["position"], event_time, end)

    def span(self, at: int) -> Span:
        """See `StoredWindow`: the life of the side that is kept longer; `columns_of` has that of a row."""
        return at, at + max(map(self.keeps_ms, SIDES)) + 1

    def span_sql(self, at: str) -> tuple[str, str]:
        """See `StoredWindow`, over a joined record."""
        kept = f"CASE WHEN record.side = '{LEFT}' THEN {self.keeps_ms(LEFT)}L ELSE {self.keeps_ms(RIGHT)}L END"
        return at, f"({at} + {kept} + 1L)"

    def bounds_sql(self, span: tuple[str, str], event_time: str) -> tuple[str, str]:
        """See `StoredWindow`: the start is the event time, in microseconds."""
        return event_time, f"timestamp_millis({span[1]})"

    def is_late(self, event_time: datetime, frontier: int | None) -> bool:
        """See `StoredWindow`: a record before the frontier may have lost partners, whatever its window."""
        return frontier is not None and to_ms(event_time) < frontier

    def late_sql(self, span: tuple[str, str], frontier: str) -> str:
        """See `is_late`."""
        return f"{span[0]} < {frontier}"

    def emitted_before(self, frontier: int) -> int:
        """See `StoredWindow`: a later pair may have the event time of the frontier."""
        return frontier

    def to_json(self) -> dict[str, Any]:
        """Returns the form for manifests."""
        return {
            "kind": self.kind,
            "how": self.how,
            "lower_ms": self.lower_ms,
            "upper_ms": self.upper_ms,
            "keys": [list(pair) for pair in self.keys],
            "inputs": list(self.inputs),
        }


def join_from_json(body: Mapping[str, Any]) -> StoredJoin:
    """The inverse of `StoredJoin.to_json`."""
    left, right = body["inputs"]
    given = {name: value for name, value in body.items() if name != "kind"}
    keys = tuple((of, its) for of, its in body["keys"])
    return StoredJoin(**given | {"keys": keys, "inputs": (left, right)})


def position_text(topic_ids: Mapping[str, str], place: tuple[str, int, int, Path]) -> str:
    """Returns the position of a record as the text that identifies its row.

    Args:
        topic_ids: Kafka's ids of the topics, because a recreated topic has the same offsets again.
        place: topic, partition, offset and path.
    """
    topic, *rest, path = place
    named = f"{topic}@{topic_ids[topic]}" if topic in topic_ids else topic
    return "/".join(map(str, (named, *rest, *path)))


def position_sql(topic_ids: Mapping[str, str]) -> str:
    """Returns the Spark SQL expression of `position_text` over a record."""
    cases = "".join(f" WHEN '{topic}' THEN '{topic}@{number}'" for topic, number in sorted(topic_ids.items()))
    named = f"CASE topic{cases} ELSE topic END" if cases else "topic"
    numbers = ", ".join(f"CAST({name} AS STRING)" for name in ("`partition`", "`offset`"))
    return f"concat_ws('/', {named}, {numbers}, CAST(_path AS ARRAY<STRING>))"


def joined_struct(keys: Mapping[str, FieldType], left: FieldType, right: FieldType) -> FieldType:
    """Returns the struct that records of both inputs become, so that an operator has one type of records.

    Args:
        keys: the type of each key column.
        left: the struct of a left record.
        right: the struct of a right record.
    """
    text = FieldType("str", nullable=True)
    key = FieldType("struct", nullable=True, fields=tuple((name, of.with_null(True)) for name, of in keys.items()))
    records = ((LEFT, left.stored.with_null(True)), (RIGHT, right.stored.with_null(True)))
    mark = FieldType("bool", nullable=True)
    return FieldType("struct", fields=(("side", text), ("position", text), ("key", key), *records, ("matched", mark)))


def at_path(fields: Any, path: str) -> Any:
    """Returns the value at a dotted path of a record, None if a step of it is null."""
    for step in path.split("."):
        fields = None if fields is None else fields[step]
    return fields
