"""Random conditions and key expressions over random records: Spark, DuckDB and the twin give equal values.

Extreme times, whole numbers of 64 bits, letters outside ASCII: whatever a record may hold, no expression fails on it.
"""

import os
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.support.portable_texts import ARROW_SCHEMA, TYPES, Writer, by_spark, same_value
from tests.support.scale import cases
from tidemark.errors import DeclarationError
from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.sql import quote
from tidemark.model.portable_sql.dialects import SPARK
from tidemark.model.portable_sql.record_expression import DATE_UNITS, TIME_UNITS, RecordExpression, bind_expression
from tidemark.model.portable_sql.syntax import TIME_PARTS
from tidemark.readers.expression_values import evaluate

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
TEXTS = cases(200)
RECORD = FieldType("struct", fields=tuple((name, of.with_null(True)) for name, of in TYPES.items()))
KINDS = ["int", "float", "str", "bool", "date", "timestamp"]
WORDS = ["", "a", "Zürich", "ΑΣ", "İI", "ß", "é", "\U0001f926\U0001f3fc‍♂️", "a%_\\", "x\ny", "\0B", "ABC abc"]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMES = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    EPOCH - timedelta(microseconds=1),
    datetime(1582, 10, 10, 1, 2, 3, tzinfo=UTC),
    datetime(2013, 3, 31, 1, 59, 59, 500000, tzinfo=UTC),
]


class RecordWriter(Writer):
    """Writes what only expressions over a record may have, besides what aggregates may."""

    def _int(self, kind: str, depth: int) -> str:
        if self._chance.random() < 0.5:
            return super()._int(kind, depth)
        of = self._chance.choice(["date", "timestamp"])
        part = self._chance.choice(TIME_PARTS)
        taken = self.text("timestamp" if part in ("hour", "minute", "second") else of, depth)
        return self._chance.choice(
            [f"length({self.text('str', depth)})", f"{part}({taken})", f"extract({part} FROM {taken})"]
            + [f"{self.text('int', depth)} % 7"]
        )

    def _str(self, kind: str, depth: int) -> str:
        of = self.text("str", depth)
        forms = [f"lower({of})", f"upper({of})", f"substr({of}, 2)", f"substr({of}, 1, 2)", f"substr({of}, 3, 0)"]
        cast = self.text(self._chance.choice(["int", "bool", "date", "str"]), depth)
        return self._chance.choice([*forms, f"CAST({cast} AS STRING)", super()._str(kind, depth)])

    def _timestamp(self, kind: str, depth: int) -> str:
        unit = self._chance.choice([*DATE_UNITS, *TIME_UNITS])
        literal = "TIMESTAMP '1969-12-31T23:59:59.5Z'"
        forms = [f"date_trunc('{unit}', {self.text('timestamp', depth)})", literal, self._same(kind, depth)]
        return self._chance.choice(forms)

    def _date(self, kind: str, depth: int) -> str:
        unit = self._chance.choice(DATE_UNITS)
        forms = [f"date_trunc('{unit}', {self.text('date', depth)})", self._same(kind, depth)]
        return self._chance.choice([*forms, f"CAST({self.text('timestamp', depth)} AS DATE)"])

    def _bool(self, kind: str, depth: int) -> str:
        like = self._chance.choice(["'a%'", "'%_'", "'_'", "''", "'%ß%'", "'%'"])
        forms = [f"({self.text('str', depth)} LIKE {like})", f"({self.text('str', depth)} NOT LIKE {like})"]
        return self._chance.choice([*forms, "(d >= 0.05)", "(d BETWEEN -1.5 AND 2)", *[super()._bool(kind, depth)] * 4])


def _record(chance: random.Random) -> dict[str, Any]:
    whole = [None, 0, 1, -1, 2**63 - 1, -(2**63), chance.randrange(-(10**6), 10**6)]
    floats = [None, 0.0, -0.0, 0.1, -2.5, float("inf"), float("-inf"), float("nan"), 1e300, chance.uniform(-9, 9)]
    days = [None, date(1, 1, 1), date(9999, 12, 31), date(1969, 12, 31), date(2020, 2, 29)]
    return {
        "i": chance.choice(whole),
        "j": chance.choice([*whole, 2, 7]),
        "f": chance.choice(floats),
        "g": chance.choice(floats),
        "d": chance.choice([None, Decimal("0.00"), Decimal("-0.05"), Decimal("9999999999.99"), Decimal("0.05")]),
        "s": chance.choice([None, *WORDS, "".join(chance.choices([chr(n) for n in range(0x20, 0x250)], k=4))]),
        "b": chance.choice([None, True, False]),
        "day": chance.choice([*days, date(1, 1, 1) + timedelta(days=chance.randrange(3_652_000))]),
        "at": chance.choice([None, *TIMES, EPOCH + timedelta(microseconds=chance.randrange(-(10**16), 10**16))]),
    }


def _bound(chance: random.Random) -> list[RecordExpression]:
    writer, found = RecordWriter(chance), list[RecordExpression]()
    while len(found) < TEXTS:
        try:
            found.append(bind_expression("x", writer.text(chance.choice(KINDS)), RECORD))
        except DeclarationError:
            continue
    return found


def test_spark_and_the_twin_agree_on_every_expression_over_every_record(spark: SparkSession) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED} pytest {__file__}")
    chance = random.Random(SEED)
    rows = [_record(chance) for _ in range(60)]
    table = pa.Table.from_pylist(rows, schema=ARROW_SCHEMA)
    made = _bound(chance)
    for start in range(0, TEXTS, 50):
        part = made[start : start + 50]
        ours = by_spark(spark, [e.sql(quote, SPARK) for e in part], table)
        theirs = list(zip(*evaluate(part, rows), strict=True))
        for e, mine, other in zip(part, ours, theirs, strict=True):
            wrong = [n for n, (a, b) in enumerate(zip(mine, other, strict=True)) if not same_value(a, b)]
            shown = {path: rows[wrong[0]][path] for path in e.paths} if wrong else {}
            assert not wrong, f"{e.text}: Spark {mine[wrong[0]]!r}, twin {other[wrong[0]]!r} of {shown}, seed {SEED}"


@pytest.mark.parametrize(
    "text, result", [("(7 + i) + j", 6 - 2**63), ("(i + j) + 7", None), ("(7 + j) + i", 6 - 2**63)]
)
def test_a_sum_is_added_up_in_its_own_order(spark: SparkSession, text: str, result: int | None) -> None:
    record = _record(random.Random(SEED)) | {"i": -(2**63), "j": -1}
    made = [bind_expression("x", text, RECORD)]
    ours = by_spark(spark, [made[0].sql(quote, SPARK)], pa.Table.from_pylist([record], ARROW_SCHEMA))
    assert ours == [[result]] and [*evaluate(made, [record])] == [(result,)]


def test_the_types_are_those_of_both_engines(spark: SparkSession) -> None:
    chance = random.Random(SEED)
    made = _bound(chance)
    frame = spark.createDataFrame(pa.Table.from_pylist([_record(chance)], schema=ARROW_SCHEMA))
    texts = (f"{e.sql(lambda name: f'`{name}`', SPARK)} AS c{n}" for n, e in enumerate(made))
    found = [field.dataType.simpleString().upper() for field in frame.selectExpr(*texts).schema]
    assert found == [e.type.sql for e in made], f"seed {SEED}"
