"""Stored texts: what they are called, which parameter they have, in which dialects they exist."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import duckdb

from tidemark import Fold, KafkaSource, Pipeline, state
from tidemark.model.core.ttl import Now
from tidemark.model.portable_sql.dialects import DUCKDB, SPARK
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.sql.resolve import bind_clocks, names_of, stored_texts

NOW = Now(event_time_ms=5_000, logical_time_ms=7_000)


@dataclass(frozen=True)
class Entry:
    """One record."""

    who: str
    n: int
    at: datetime


class Forever(state.Keyed):
    """Never expires."""

    last: int | None = state.latest("n")


class ByLogicalTime(state.Keyed):
    """Expires on the logical clock."""

    last: int | None = state.latest("n", ttl=state.Ttl(ttl=timedelta(seconds=3), clock="logical_time"))


class BySpark(state.Keyed):
    """Only Spark can read it."""

    mixed: int | None = state.aggregate(
        accumulator={"n": int}, partial={"n": "bit_xor(n)"}, merge={"n": "bit_xor(n)"}, finish="n", spark_only=True
    )


def _schema(of: type[state.Keyed]) -> OperatorSchema:
    made = Pipeline(
        name="p",
        source=KafkaSource("t", Entry, event_time="at"),
        operators=[Fold("o", key_by="who", state=of)],
    )
    return made.schemas()["o"]


def test_state_that_never_expires_has_no_parameter() -> None:
    texts = stored_texts(_schema(Forever))
    assert set(texts) == {"duckdb", "spark"}
    assert all("_ms" not in text for text in texts.values())
    assert bind_clocks(texts["duckdb"], "x", NOW, DUCKDB) == bind_clocks(texts["duckdb"], "x", Now(), DUCKDB)


def test_the_clock_that_expires_state_is_the_parameter() -> None:
    texts = stored_texts(_schema(ByLogicalTime))
    assert "$logical_time_ms: body.plan.logical_time_ms" in texts["duckdb"]
    assert "coalesce(7000, " in bind_clocks(texts["duckdb"], "x", NOW, DUCKDB)
    assert "coalesce(7000, " in bind_clocks(texts["spark"], "x", NOW, SPARK)
    assert "coalesce(NULL, " in bind_clocks(texts["spark"], "x", Now(), SPARK)
    assert "logical" not in bind_clocks(texts["spark"], "x", NOW, SPARK)


def test_a_parameter_may_be_bound_and_null_expires_nothing() -> None:
    text = stored_texts(_schema(ByLogicalTime))["duckdb"]
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE VIEW segments AS SELECT who, {'at': NULL, 'topic': 't', 'partition': 0, 'offset': n, 'value': n}"
            " AS last, true AS last__cut, n * 1000 AS _first_at, n * 1000 AS _last_at, 'operand' AS _kind,"
            " 1 AS _changed, 0 AS _key_group FROM (VALUES ('old', 4), ('new', 5)) AS v(who, n)"
        )
        for now, alive in ((7_000, {"new": 5}), (6_999, {"new": 5, "old": 4}), (None, {"new": 5, "old": 4})):
            rows = connection.sql(text, params={"logical_time_ms": now}).fetchall()
            assert {row[0]: row[1] for row in rows} == alive


def test_state_for_spark_alone_has_no_text_for_others() -> None:
    assert set(stored_texts(_schema(BySpark))) == {"spark"}


def test_a_text_is_named_by_its_bytes() -> None:
    one, other = (names_of(stored_texts(_schema(of))) for of in (Forever, ByLogicalTime))
    assert one == names_of(stored_texts(_schema(Forever)))
    assert not set(one.values()) & set(other.values())
