"""The types of docs/how-to/types.md with values: as Python has them, as JSON says them, as tables store them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal
from uuid import UUID

from tidemark.state import Precision


class Card(Enum):
    """An Enum of texts."""

    DEBIT = "debit"
    CREDIT = 'it\'s \\ "credit"'


class Level(IntEnum):
    """An Enum of integers."""

    LOW = 1
    HIGH = -7


@dataclass(frozen=True)
class Spot:
    """A dataclass inside records and state."""

    card: Card
    ids: list[UUID]
    level: Level | None = None


@dataclass(frozen=True)
class TypedValue:
    """A type of the page and two of its values: as Python has them, in JSON, and as they are stored."""

    annotation: Any
    python: tuple[Any, Any]
    json: tuple[Any, Any]
    stored: tuple[Any, Any]


ONE, TWO = UUID("12345678-90ab-cdef-1234-567890abcdef"), UUID(int=2)


def _same(annotation: Any, one: Any, two: Any) -> TypedValue:
    return TypedValue(annotation, (one, two), (one, two), (one, two))


TYPES: Mapping[str, TypedValue] = {
    "`bool`": _same(bool, True, False),
    "`int`": _same(int, 2**63 - 1, -5),
    "`float`": _same(float, 0.1, -1e300),
    "`Decimal`": TypedValue(
        Decimal,
        (Decimal("0.000000000000000001"), Decimal("-12.500000000000000000")),
        ("0.000000000000000001", "-12.5"),
        (Decimal("0.000000000000000001"), Decimal("-12.500000000000000000")),
    ),
    "`Annotated[Decimal, Precision(10, 2)]`": TypedValue(
        Annotated[Decimal, Precision(10, 2)],
        (Decimal("0.00"), Decimal("1.50")),
        ("-0.0", 1.5),
        (Decimal("0.00"), Decimal("1.50")),
    ),
    "`str`": _same(str, 'q"\\é\U0001f600', ""),
    "`bytes`": TypedValue(bytes, (b"hi", b""), ("aGk=", ""), (b"hi", b"")),
    "`date`": TypedValue(
        date, (date(2020, 2, 29), date.min), ("2020-02-29", "0001-01-01"), (date(2020, 2, 29), date.min)
    ),
    "`time`": TypedValue(
        time, (time(9, 30), time(0, 0, 0, 5000)), ("09:30", "00:00:00.005"), ("09:30:00", "00:00:00.005000")
    ),
    "`datetime`": TypedValue(
        datetime,
        (datetime(2020, 1, 1, 12, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
        ("2020-01-01T14:00:00+02:00", "1969-12-31T23:59:59.999999Z"),
        (datetime(2020, 1, 1, 12, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ),
    "`UUID`": TypedValue(UUID, (ONE, TWO), (str(ONE).upper(), str(TWO)), (str(ONE), str(TWO))),
    "`Enum` of texts": TypedValue(
        Card, (Card.DEBIT, Card.CREDIT), ("debit", 'it\'s \\ "credit"'), ("debit", 'it\'s \\ "credit"')
    ),
    "`Enum` of integers": TypedValue(Level, (Level.LOW, Level.HIGH), (1, -7), (1, -7)),
    '`Literal["a", "b"]`': _same(Literal["a", "b"], "a", "b"),
    "`list[int]`": _same(list[int], [3, 1], []),
    "dataclass": TypedValue(
        Spot,
        (Spot(Card.CREDIT, [ONE, TWO], Level.HIGH), Spot(Card.DEBIT, [])),
        (
            {"card": Card.CREDIT.value, "ids": [str(ONE), str(TWO)], "level": -7},
            {"card": "debit", "ids": []},
        ),
        (
            {"card": Card.CREDIT.value, "ids": [str(ONE), str(TWO)], "level": -7},
            {"card": "debit", "ids": [], "level": None},
        ),
    ),
    "`dict[str, int]`": _same(dict[str, int], {"a": 1}, {}),
}
