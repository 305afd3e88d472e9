"""A state whose keys have every type that a key may have, on disk, with values that engines may compare differently."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from tests.support.disk import DiskPipeline
from tidemark import Fold, KafkaSource, Pipeline, state
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.state import Precision
from tidemark.storage.s3_folder import S3Folder

UID = "parts"
NAMES = ["", "a", "A", "ab", "a%", "a_", "b ", "é", "e\u0301", "\U0001f600", "\uffee", "'; --", "a\0b"]
AMOUNTS = [Decimal("-0.50"), Decimal("0.00"), Decimal("0.01"), Decimal("7.10"), Decimal("99999999.99")]
NUMBERS = [-(2**63), -1, 0, 1, 2**53 + 1, 2**63 - 1]
DAYS = [date(1, 1, 1), date(1582, 10, 4), date(1970, 1, 1), date(2024, 2, 29), date(9999, 12, 31)]
MOMENTS = [
    datetime(1900, 1, 1, 0, 0, 0, 1, UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2024, 3, 31, 1, 30, tzinfo=UTC),
    datetime(2024, 3, 31, 1, 30, 0, 1, UTC),
]


@dataclass(frozen=True)
class Part:
    """One record; all fields but the last one are its key."""

    name: str
    number: int
    amount: Annotated[Decimal, Precision(10, 2)]
    day: date
    moment: datetime
    good: bool
    count: int


class Counted(state.Keyed):
    """The state of a key."""

    count: int = state.sum("count")


KEYS = ("name", "number", "amount", "day", "moment", "good")
PIPELINE = Pipeline(
    name="typed",
    source=KafkaSource("parts", Part),
    operators=[Fold(UID, key_by=KEYS, state=Counted)],
)


def key_rows() -> Iterator[dict[str, Any]]:
    """Every value of a column at least twice, with several others."""
    longest = 2 * len(NAMES)
    for n, good in product(range(longest), (True, False)):
        yield {
            "name": NAMES[n % len(NAMES)],
            "number": NUMBERS[n % len(NUMBERS)],
            "amount": AMOUNTS[n % len(AMOUNTS)],
            "day": DAYS[(n // 2) % len(DAYS)],
            "moment": MOMENTS[(n // 3) % len(MOMENTS)],
            "good": good,
        }


def typed_keys(root: Path, bucket: S3Folder | None = None) -> Checkpoint:
    """Two checkpoints over a folder or a bucket; the second one changes every fifth key."""
    line = DiskPipeline(root, PIPELINE, "parts", partitions=1, bucket=bucket)
    rows = list(key_rows())
    line.send([(0, _json(row, n), 0) for n, row in enumerate(rows)])
    line.checkpoint()
    line.send([(0, _json(row, 1000), 0) for row in rows[::5]])
    return line.checkpoint()


def _json(row: dict[str, Any], count: int) -> bytes:
    shown = {name: value if isinstance(value, str | int) else str(value) for name, value in row.items()}
    return json.dumps(shown | {"moment": row["moment"].isoformat(), "count": count}).encode()
