"""Random texts of the portable subset, rows for them, and the two engines that evaluate both."""

import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
from pyspark.sql import SparkSession

from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.sql import spark as in_backticks

TYPES = {
    "i": FieldType("int"),
    "j": FieldType("int"),
    "f": FieldType("float"),
    "g": FieldType("float"),
    "d": FieldType("decimal", digits=12, scale=2),
    "s": FieldType("str"),
    "b": FieldType("bool"),
    "day": FieldType("date"),
    "at": FieldType("timestamp"),
}
ARROW_SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("j", pa.int64()),
        ("f", pa.float64()),
        ("g", pa.float64()),
        ("d", pa.decimal128(12, 2)),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
LITERALS = {
    "int": ["0", "1", "7", "-3", "1000000007"],
    "float": ["0.5", "-1.25", "1e3", "0.1", "3.3333333333333335"],
    "str": ["'a'", "''", "'it''s'", "'\u00fc'"],
    "bool": ["TRUE", "FALSE"],
    "date": ["DATE '2020-02-29'", "DATE '1969-12-31'"],
}


def random_rows(chance: random.Random, count: int) -> pa.Table:
    """Rows with nulls, ties, negatives and decimals of many digits."""
    noon = datetime(2020, 1, 1, 12, tzinfo=UTC)
    made = [
        {
            "i": chance.choice([None, 0, 1, -1, chance.randrange(-(10**6), 10**6)]),
            "j": chance.choice([None, 0, 2, chance.randrange(-9, 9)]),
            "f": chance.choice([None, 0.0, 0.1, -2.5, chance.uniform(-1e6, 1e6), 1e-300, 1e300]),
            "g": chance.choice([None, 1.0, chance.gauss(0, 1)]),
            "d": chance.choice(
                [None, Decimal("0.00"), Decimal("9999999999.99"), Decimal(chance.randrange(9999)) / 100]
            ),
            "s": chance.choice([None, "", "a", "it's", "\u00fc", "\U0001f600z"]),
            "b": chance.choice([None, True, False]),
            "day": chance.choice([None, date(2020, 2, 29), date(1969, 12, 31)]),
            "at": chance.choice([None, noon, noon + timedelta(microseconds=1)]),
        }
        for _ in range(count)
    ]
    return pa.Table.from_pylist(made, schema=ARROW_SCHEMA)


class Writer:
    """Writes random texts of a type; some turn out not to be portable and are left out."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def text(self, kind: str, depth: int = 3) -> str:
        names = [name for name, of in TYPES.items() if of.kind == kind]
        if depth == 0 or self._chance.random() < 0.15:
            return self._chance.choice(names + LITERALS.get(kind, []))
        forms = getattr(self, f"_{kind}", self._same)
        return str(forms(kind, depth - 1))

    def _same(self, kind: str, depth: int) -> str:
        def of() -> str:
            return self.text(kind, depth)

        condition = self.text("bool", depth)
        return self._chance.choice(
            [
                f"coalesce({of()}, {of()})",
                f"nullif({of()}, {of()})",
                f"greatest({of()}, {of()}, {of()})",
                f"least({of()}, {of()})",
                f"CASE WHEN {condition} THEN {of()} ELSE {of()} END",
                f"CASE WHEN {condition} THEN {of()} END",
            ]
        )

    def _int(self, kind: str, depth: int) -> str:
        a, b = self.text("int", depth), self.text("int", depth)
        return self._chance.choice(
            [f"({a} + {b})", f"({a} - {b})", f"{a} * {b}", f"abs({a})", f"-({a})", self._same(kind, depth)]
        )

    def _float(self, kind: str, depth: int) -> str:
        a, b = self.text(self._chance.choice(["int", "float"]), depth), self.text("float", depth)
        forms = [f"({a} + {b})", f"({a} - {b})", f"{a} * {b}", f"{a} / nullif({b}, 0)", f"{a} / 7", f"sqrt(abs({a}))"]
        forms += [f"sqrt(greatest({b}, 0))", "CAST(d AS DOUBLE)", f"CAST({self.text('int', depth)} AS DOUBLE)"]
        return self._chance.choice([*forms, f"-({b})", self._same(kind, depth)])

    def _str(self, kind: str, depth: int) -> str:
        return self._chance.choice([f"{self.text(kind, depth)} || {self.text(kind, depth)}", self._same(kind, depth)])

    def _bool(self, kind: str, depth: int) -> str:
        of = self._chance.choice(["int", "float", "decimal", "str", "date", "timestamp", "bool"])
        a, b, c = (self.text(of, depth) for _ in range(3))
        sign = self._chance.choice(["=", "<>", "<", "<=", ">", ">="])
        forms = [f"({a} {sign} {b})", f"({a} IS NULL)", f"({a} IS NOT NULL)", f"({a} BETWEEN {b} AND {c})"]
        forms += [f"({a} NOT IN ({b}, {c}))", f"({a} IN ({b}))", f"NOT {self.text('bool', depth)}", "(d > 1)"]
        logic = [f"({self.text('bool', depth)} {op} {self.text('bool', depth)})" for op in ("AND", "OR")]
        return self._chance.choice(forms + logic)


def same_value(a: Any, b: Any) -> bool:
    """Whether two engines gave one value: equal and of one type; NaN is equal to NaN."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    return bool(a == b) and type(a) is type(b)


def by_duckdb(made: list[str], table: pa.Table) -> list[list[Any]]:
    """The columns of some texts, as DuckDB computes them."""
    oracle = duckdb.connect()
    oracle.execute("SET TimeZone = 'UTC'")
    oracle.register("rows", table)
    found = oracle.sql(f"SELECT {', '.join(f'{sql} AS c{n}' for n, sql in enumerate(made))} FROM rows").to_arrow_table()
    return [column.to_pylist() for column in found.columns]


def by_spark(session: SparkSession, made: list[str], table: pa.Table) -> list[list[Any]]:
    """The columns of some texts, as Spark computes them."""
    frame = session.createDataFrame(table).coalesce(1)
    found = frame.selectExpr(*(f"{in_backticks(sql)} AS c{n}" for n, sql in enumerate(made))).toArrow()
    return [column.to_pylist() for column in found.columns]
