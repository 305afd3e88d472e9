"""Interval joins as declarations: what is refused, and what they are stored as."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.support.interval_join_cases import Arrival, JoinRules, Shipped, joined_pipeline
from tidemark import ConsoleSink, Fold, IntervalJoin, KafkaSource, Pipeline, Process, formats, state
from tidemark.coordinator.retention.downstream_operators import Chained
from tidemark.errors import DeclarationError, UsageError
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.model.state.evolution import compare_schemas
from tidemark.sql.initial_state import refuse_given_rows
from tidemark.testing import replay

PIPELINE = joined_pipeline(JoinRules())
JOIN = PIPELINE.operators[0]
assert isinstance(JOIN, IntervalJoin)
SCHEMA = PIPELINE.schemas()["shipped"]


@dataclass(frozen=True)
class Numbered:
    """With another type, and a field that may not be null."""

    number: str


@dataclass(frozen=True)
class Total:
    """A field that is null for an order alone."""

    parcel: int


@dataclass(frozen=True)
class Changed:
    """A left record with a dict."""

    id: str
    tags: dict[str, int]
    at: datetime


def declared(**changed: Any) -> Pipeline:
    assert isinstance(JOIN, IntervalJoin)
    return replace(PIPELINE, operators=[replace(JOIN, **changed)])


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"right": "orders"}, "name two different inputs"),
        ({"right": "parcels"}, "give the key of each input"),
        ({"how": "outer"}, 'give "inner" or "left"'),
        ({"within": "1h"}, "give two distances"),
        ({"within": ("1h", "0h")}, "the first one is greater"),
        ({"within": ("soon", "1h")}, "is not a duration"),
        ({"closes_by": "never"}, "logical_time"),
        ({"lateness": "-1m"}, "lateness"),
        ({"sink": ConsoleSink("c")}, "ConsoleSink for a join"),
        ({"key_by": {"orders": "id"}}, "give the key of each input"),
        ({"key_by": {"orders": ("id", "number"), "shipments": "order_id"}}, "as many fields of each input"),
        ({"key_by": {"orders": "id", "shipments": "region"}}, "id of orders is STRING, region of shipments BIGINT"),
        ({"key_by": {"orders": "id", "shipments": "nowhere"}}, "shipments has no such field"),
        ({"key_by": {"orders": "customer", "shipments": "order_id"}}, "a struct cannot be a key"),
        ({"select": {"number": "orders.number"}}, "name each field of it once"),
        ({"emits": Numbered, "select": {"number": "orders.number"}}, "declares STRING"),
        ({"emits": Numbered, "select": {"number": "orders.nowhere"}}, "orders has no field 'nowhere'"),
        ({"emits": Numbered, "select": {"number": "upper(id)"}}, "name an input and a field"),
        ({"emits": Total, "select": {"parcel": "shipments.parcel"}}, "'parcel' may be null"),
    ],
)
def test_what_makes_no_sense_is_refused(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(DeclarationError) as error:
        declared(**changed)
    assert why in str(error.value)


def test_a_field_that_only_an_inner_join_fills_may_not_be_null() -> None:
    assert declared(emits=Total, select={"parcel": "shipments.parcel"}, how="inner").outputs["shipped"].emits is Total


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (KafkaSource("orders", Changed, event_time="at"), "contains a dict"),
        (KafkaSource("orders", Changed, event_time="at", format=formats.Debezium()), "changes of rows"),
    ],
)
def test_records_that_a_join_cannot_keep_are_refused(source: KafkaSource, why: str) -> None:
    right = PIPELINE.sources["shipments"]
    join = IntervalJoin(
        "shipped",
        left="orders",
        right="shipments",
        key_by={"orders": "id", "shipments": "order_id"},
        within=("0m", "1m"),
        select={"parcel": "shipments.parcel"},
        emits=Total,
    )
    with pytest.raises(DeclarationError, match=why):
        Pipeline(name="shop", sources={"orders": source, "shipments": right}, operators=[join])


def test_a_join_is_stored_and_read_again() -> None:
    assert OperatorSchema.from_json(SCHEMA.to_json()) == SCHEMA
    assert [key.name for key in SCHEMA.own_keys] == ["id", "region"]
    assert SCHEMA.interval_join is not None
    assert SCHEMA.interval_join.shown == (
        "interval join (left) on id = order_id and customer.region = region within 0 to 10 ms"
    )
    assert PIPELINE.recorded_inputs == {"sizes": "shipped", "ever": "shipped"}
    assert PIPELINE.readers("orders") == PIPELINE.readers("shipments") == ("shipped",)


def test_texts_and_timedeltas_are_the_same_distances() -> None:
    one, two = declared(within=("-1h", "7d")), declared(within=(timedelta(hours=-1), timedelta(days=7)))
    assert one.schemas()["shipped"] == two.schemas()["shipped"]
    assert one.fingerprint != PIPELINE.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        lambda: declared(within=("0ms", "11ms")),
        lambda: declared(how="inner"),
        lambda: declared(key_by={"orders": ("id", "number"), "shipments": ("order_id", "region")}),
    ],
)
def test_another_key_distance_or_kind_needs_another_uid(change: Callable[[], Pipeline]) -> None:
    assert compare_schemas(SCHEMA, change().schemas()["shipped"]).misfits


def test_other_selected_fields_continue_with_the_state() -> None:
    @dataclass(frozen=True)
    class Short:
        parcel: int | None

    changed = declared(select={"parcel": "shipments.parcel"}, emits=Short)
    assert compare_schemas(SCHEMA, changed.schemas()["shipped"]).misfits == ()
    assert changed.fingerprint != declared().fingerprint


def test_refusals_name_the_join() -> None:
    with pytest.raises(UsageError, match=r"shipped is an interval join .*: a patch is not possible, because its rows"):
        refuse_given_rows(SCHEMA, "a patch", "wait.")
    with pytest.raises(UsageError, match="shipped is an IntervalJoin"):
        replay(PIPELINE, [[Arrival("orders", 0, 1, "a", 1, 0).record]]).state("shipped")


def test_operators_behind_a_join_follow_it_in_order() -> None:
    class Totals(state.Keyed):
        n: int = state.count()

    class Kept(state.Keyed):
        n: int = state.value(0)

    def count(key: Any, records: Any, kept: Any) -> Any:
        for _ in records:
            kept.n += 1
            yield Shipped(key, 1, None, None, datetime(2024, 1, 1))  # noqa: DTZ001

    behind = Fold("behind", input="watched", key_by="number", state=Totals)
    watched = Process("watched", input="shipped", key_by="number", state=Kept, function=count, emits=Shipped)
    assert replace(PIPELINE, operators=[behind, watched, JOIN]).uids == ("shipped", "watched", "behind")


def test_an_erasure_reaches_a_join_behind_the_operator() -> None:
    fed = joined_pipeline(JoinRules(is_fed=True))
    reached = Chained.behind(fed, fed.schemas()["parcels"])
    assert "shipped" in {*reached.same, *reached.part, *reached.other}
