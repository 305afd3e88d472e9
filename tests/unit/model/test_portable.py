"""The portable subset: what is in it is written out in full, what is not is refused by its name; the page agrees."""

import re
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pytest

from tidemark import Fold, KafkaSource, Pipeline, state
from tidemark.errors import DeclarationError, StateOverflowError, UsageError
from tidemark.model.core.ttl import Now
from tidemark.model.core.types import FieldType, record_type
from tidemark.model.portable_sql.custom_aggregate import MERGES
from tidemark.model.portable_sql.dialects import DUCKDB, SPARK
from tidemark.model.portable_sql.expressions import type_expression
from tidemark.model.portable_sql.syntax import (
    CASTS,
    FUNCTIONS,
    OPERATORS,
    RECORD_CASTS,
    RECORD_FUNCTIONS,
    RECORD_OPERATORS,
    NotPortable,
    parse,
)
from tidemark.model.schema.operator_schema import OperatorSchema, run_columns
from tidemark.readers.state_reader import resolve
from tidemark.sql.resolve import resolving_sql
from tidemark.state import Precision
from tidemark.tables.delta_tables import arrow_schema
from tidemark.testing import BARRIER, replay
from tidemark.testing.twin.merge import resolve_rows

PAGES = Path(__file__).resolve().parents[3] / "docs/how-to"
TYPES = {
    "a": FieldType("int"),
    "f": FieldType("float"),
    "d": FieldType("decimal", digits=10, scale=2),
    "s": FieldType("str"),
    "day": FieldType("date"),
    "date": FieldType("date"),
    "ok": FieldType("bool"),
    "tags": FieldType("list", element=FieldType("str")),
    "p.q": FieldType("int"),
}


def sql(text: str) -> str:
    return type_expression(parse(text), TYPES, lambda name: f'"{name}"').sql


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a + a * a", '("a" + ("a" * "a"))'),
        ("a - a - a", '(("a" - "a") - "a")'),
        ("-a", '(- "a")'),
        ("a * f", '(CAST("a" AS DOUBLE) * "f")'),
        ("f / 2.5", "(\"f\" / CAST('2.5' AS DOUBLE))"),
        ("p.q = a", '("p.q" = "a")'),
        ("d > 0", '("d" > 0)'),
        ("cast(d as double)", 'CAST(CAST("d" AS STRING) AS DOUBLE)'),
        ("NOT ok OR ok AND a > a", '((NOT "ok") OR ("ok" AND ("a" > "a")))'),
        ("s || 'it''s'", "(\"s\" || 'it''s')"),
        ("day >= DATE '2020-01-31'", "(\"day\" >= DATE '2020-01-31')"),
        ("date = day", '("date" = "day")'),
        ("s NOT IN ('a', 'b')", "(NOT (\"s\" IN ('a', 'b')))"),
        ("tags IS NOT NULL", '(NOT ("tags" IS NULL))'),
        ("case when ok then f end", 'CASE WHEN "ok" THEN "f" ELSE CAST(NULL AS DOUBLE) END'),
        ("sqrt(abs(f))", 'sqrt(abs("f"))'),
    ],
)
def test_a_text_is_written_out_in_full(text: str, expected: str) -> None:
    assert sql(text) == expected


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("round(f)", "function 'round'"),
        ("a / a", "division by a possible zero"),
        ("a / 0", "division by a possible zero"),
        ("a / nullif(a, 1)", "division by a possible zero"),
        ("sqrt(f)", "sqrt of a possibly negative value"),
        ("a % 2", "'%' is not in the subset"),
        ("d + 1", "+ of decimal and int"),
        ("d = a", "= of decimal and int"),
        ("a + s", "+ of int and str"),
        ("s < a", "< of int and str, which are not one type"),
        ("a || s", "|| of int and str"),
        ("tags = tags", "= of list"),
        ("CAST(f AS BIGINT)", "CAST of float to BIGINT"),
        ("CAST(a AS STRING)", "CAST to STRING"),
        ("coalesce(NULL, NULL)", "coalesce of nothing but NULL"),
        ("a AND ok", "AND of a value that is not a condition"),
        ("CASE WHEN a THEN a END", "WHEN of a value that is not a condition"),
        ("CASE a WHEN 1 THEN 2 END", "CASE without WHEN"),
        ("nope + 1", "no 'nope' here"),
        ("9223372036854775808", "does not fit 64 bits"),
        ("'\\n'", "engines differ on backslashes"),
        ('s = "x"', "'\"' is not in the subset"),
        ("a; SELECT 1", "';' is not in the subset"),
        ("(SELECT 1)", "found '1'"),
        ("a -- b", "no 'b' here"),
        ("a a", "unexpected 'a'"),
        ("a +", "unexpected 'the end'"),
        ("(a", "expected ')'"),
        ("", "unexpected 'the end'"),
        ("DATE '2020-02-30'", "is not a date"),
        ("greatest(a)", "greatest with 1 arguments"),
        ("a LIKE a", "'LIKE' is not in the subset"),
    ],
)
def test_what_is_not_in_the_subset_is_refused_by_its_name(text: str, named: str) -> None:
    with pytest.raises(NotPortable) as refused:
        sql(text)
    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("page", "part", "listed"),
    [
        ("aggregates", "aggregates", tuple(MERGES)),
        ("aggregates", "functions", FUNCTIONS),
        ("aggregates", "operators", OPERATORS),
        ("aggregates", "casts", CASTS),
        ("filter-and-reshape", "functions", (*FUNCTIONS, *RECORD_FUNCTIONS)),
        ("filter-and-reshape", "operators", (*OPERATORS, *RECORD_OPERATORS)),
        ("filter-and-reshape", "casts", (*CASTS, *RECORD_CASTS)),
    ],
)
def test_the_page_lists_what_the_code_has(page: str, part: str, listed: tuple[str, ...]) -> None:
    lines = (PAGES / f"{page}.md").read_text().splitlines()
    row = next(line for line in lines if line.startswith(f"| {part} |"))
    told = re.findall(r"`([^`]+)`|<code>([^<]+)</code>", row)
    assert [(a or b).replace("&#124;", "|") for a, b in told] == list(listed)


@dataclass(frozen=True)
class Sale:
    """A record."""

    shop: str
    pieces: int
    price: Annotated[Decimal, Precision(10, 2)]
    weight: float


RECORD = record_type(Sale)


def bound(**fields: tuple[object, object]) -> OperatorSchema:
    hints = {name: hint for name, (hint, _) in fields.items()}
    made = {name: value for name, (_, value) in fields.items()}
    kept = type("Kept", (state.Keyed,), {**made, "__annotations__": hints, "__module__": __name__})
    return Fold("shops", key_by="shop", state=kept).bind(RECORD)


def test_the_texts_survive_the_manifest_and_are_part_of_the_fingerprint() -> None:
    one = bound(most=(int | None, state.reduce("max(pieces)")))
    assert OperatorSchema.from_json(one.to_json()) == one
    assert one.fingerprint != bound(most=(int | None, state.reduce("min(pieces)"))).fingerprint
    assert [(name, of.sql) for name, of in one.fields[0].columns] == [("most__value", "BIGINT")]


def test_only_sums_of_floats_make_an_aggregate_inexact() -> None:
    schema = bound(
        most=(float | None, state.reduce("max(weight * 2)")),
        total=(float | None, state.reduce("sum(weight)")),
        pieces=(int | None, state.reduce("sum(pieces)")),
    )
    assert [f.exact for f in schema.fields] == [True, False, True]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"accumulator": {}, "partial": {}, "finish": "1"}, "no accumulator"),
        ({"accumulator": {"n": int}, "partial": {}, "finish": "n"}, "partial of []"),
        (
            {"accumulator": {"n": int}, "partial": {"n": "avg(pieces)"}, "finish": "n"},
            "not a single aggregate function",
        ),
        (
            {"accumulator": {"n": int}, "partial": {"n": "sum(pieces) + 1"}, "finish": "n"},
            "not a single aggregate function",
        ),
        ({"accumulator": {"n": int}, "partial": {"n": "sum(pieces)"}, "finish": "m"}, "unknown accumulator m"),
        (
            {"accumulator": {"n": int}, "partial": {"n": "count(*)"}, "merge": {"n": "max(n)"}, "finish": "n"},
            "merge of n",
        ),
        (
            {"accumulator": {"n": int}, "partial": {"n": "sum(pieces)"}, "finish": "n", "spark_only": True},
            "merge of []",
        ),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(options: dict[str, object], named: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        state.aggregate(**options)  # type: ignore[arg-type]
    assert named in refused.value.what


@pytest.mark.parametrize(
    ("hint", "text", "named"),
    [
        (int, "max(weight)", "max(weight) is DOUBLE, declared BIGINT"),
        (float, "max(nothing)", "no field 'nothing'"),
        (float, "bool_and(weight)", "bool_and of a float"),
        (str, "sum(shop)", "sum of a str"),
    ],
)
def test_types_are_checked_when_the_pipeline_is_bound(hint: type, text: str, named: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        bound(found=(hint | None, state.reduce(text)))
    assert named in refused.value.what


def test_a_field_for_spark_only_is_refused_elsewhere_by_its_name() -> None:
    made = state.aggregate(
        accumulator={"n": int},
        partial={"n": "bit_xor(pieces)"},
        merge={"n": "bit_xor(n)"},
        finish="concat(n, 'n')",
        spark_only=True,
    )
    schema = bound(hashed=(str | None, made))
    text = resolving_sql(schema, "rows", Now(), dialect=SPARK)
    assert "bit_xor(`hashed__n`)" in text and "concat(`hashed__n`, 'n')" in text
    with pytest.raises(UsageError, match="hashed is declared spark_only"):
        resolving_sql(schema, "rows", Now(), dialect=DUCKDB)
    kept = type("Kept", (state.Keyed,), {"hashed": made, "__annotations__": {"hashed": str | None}})
    pipeline = Pipeline(
        name="sales", source=KafkaSource("sales", Sale), operators=[Fold("shops", key_by="shop", state=kept)]
    )
    with pytest.raises(UsageError, match="hashed is declared spark_only"):
        replay(pipeline, [[Sale("s", 1, Decimal("0.10"), 1.0)], BARRIER])


def test_a_finish_that_leaves_64_bits_is_an_overflow_of_state() -> None:
    made = state.aggregate(accumulator={"n": int}, partial={"n": "sum(pieces)"}, finish="n * n")
    schema = bound(square=(int | None, made))
    row = {"shop": "s", "square__n": 2**32, "_last_at": 0, "_kind": "operand", "_changed": 1, "_key_group": 0}
    rows = pa.Table.from_pylist([row], schema=arrow_schema(run_columns(schema)))
    with pytest.raises(StateOverflowError, match="Overflow in multiplication"):
        resolve(schema, Now(), rows)
    with pytest.raises(StateOverflowError, match=r"square of key \(s\) does not fit 64 bits"):
        resolve_rows(schema, [{**row, "_first_at": None}], Now())
