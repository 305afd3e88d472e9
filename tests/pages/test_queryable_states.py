"""The states that the forms of transforms and patches offer are those that the planner of a transform takes."""

import json
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import pytest

from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext
from tests.support.trips import settings_of
from tidemark import Broadcast, Fold, KafkaSource, Pipeline, Sliding, Tumbling, Watermark, state
from tidemark.answers.timeline_facts import QueryableState, QueryableStates
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.errors import NotFoundError, UsageError
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import savepoints
from tidemark.operations.savepoint_states import transform as transforms
from tidemark.operations.savepoint_states.transform import Transformed, TransformRequest
from tidemark.web import previews

FIRST = RestoreRequest(checkpoint=1)


@dataclass(frozen=True)
class Sale:
    """A record."""

    shop: str
    cents: int
    at: datetime


@dataclass(frozen=True)
class Shop:
    """A row to look up."""

    shop: str
    city: str


class Sold(state.Keyed):
    """The state of one key; a mean alone does not say how to continue."""

    n: int = state.count()
    cents: int | None = state.sum("cents")
    usual: float | None = state.mean("cents")
    last: datetime | None = state.latest("at")


TOWNS = Fold("towns", join={"places": "shop"}, key_by="places.city", state=Sold)
SHOPS = Fold("shops", key_by="shop", state=Sold)
HOURS = Fold("hours", key_by="shop", state=Sold, window=Tumbling("1h"))
SLIDING = Fold("sliding", key_by="shop", state=Sold, window=Sliding("2h", every="1h"))
SALES = Pipeline(
    name="sales",
    source=KafkaSource("sales", Sale, event_time="at", watermark=Watermark(delay="1h")),
    operators=[TOWNS, SHOPS, HOURS, SLIDING],
    broadcast=[Broadcast("places", KafkaSource("places", Shop), key_by="shop")],
)


class SalesContext(DiskContext):
    """Finds the declaration in the pipeline on disk."""

    def pipeline(self, name: str) -> Pipeline:
        return self.line.pipeline


@pytest.fixture
def context(tmp_path: Path) -> SalesContext:
    """chk-1 has two shops in one town; it is pinned as `kept`."""
    line = DiskPipeline(tmp_path / "warehouse", SALES, "sales", partitions=1)
    line.log.create("places", 1)
    for shop in "ab":
        place = json.dumps({"shop": shop, "city": "Ulm"}).encode()
        line.log.append(TopicPartition("places", 0), place, timestamp_ms=0)
    sales = [{"shop": shop, "cents": 5, "at": "2024-05-01T10:00:00Z"} for shop in "aab"]
    line.send([(0, json.dumps(sale).encode(), 1) for sale in sales])
    made = SalesContext(line, settings_of(tmp_path))
    line.checkpoint()
    request = SavepointRequest(name="kept", owner="me", origin="test", checkpoint=1, note="")
    savepoints.open_savepoints(made, "sales").create(request)
    return made


def listed(context: SalesContext, request: RestoreRequest = FIRST) -> QueryableStates:
    return previews.list_queryable_states(context, "sales", request)


def state_of(context: SalesContext, uid: str) -> QueryableState:
    return next(found for found in listed(context).states if found.uid == uid)


def plan(context: SalesContext, **queries: str) -> Transformed:
    return transforms.plan_transform(
        context, TransformRequest(pipeline="sales", source=FIRST, fork="trial", queries=queries)
    )


def test_the_columns_are_those_that_a_query_reads_and_must_return(context: SalesContext) -> None:
    found = listed(context)
    assert (found.checkpoint, found.timeline, found.newest, found.savepoint) == ("chk-1", "t1", "chk-1", None)
    assert {s.uid for s in found.states} == {"towns", "shops", "hours", "sliding", "places"}
    writable = [s for s in found.states if s.refused is None]
    assert {s.uid for s in writable} == {"towns", "shops", "hours"}
    for one in writable:
        names = [column.name for column in one.returns]
        typed = " AND ".join(f'typeof("{c.name}") = typeof(CAST(NULL AS {c.type}))' for c in (*one.reads, *one.returns))
        same = plan(context, **{one.uid: f"SELECT {', '.join(names)} FROM {one.uid} WHERE {typed}"}).states[one.uid]
        assert (same.before, same.unchanged, same.key_groups) == (same.after, same.after, one.key_groups)
        assert same.before > 0 and one.rows >= same.before and one.bytes > 0
        assert set(one.keys) < set(names) and one.is_declared
        for name in names:
            rest = ", ".join(other for other in names if other != name)
            with pytest.raises(UsageError, match=f"{name} .* is missing"):
                plan(context, **{one.uid: f"SELECT {rest} FROM {one.uid}"})
    assert "usual" in {c.name for c in state_of(context, "shops").reads}
    assert "usual" not in {c.name for c in state_of(context, "shops").returns}


def test_the_planner_refuses_the_states_that_are_listed_as_such(context: SalesContext) -> None:
    refused = {s.uid: s.refused for s in listed(context).states if s.refused is not None}
    assert "broadcast state" in refused.pop("places")
    assert "a row of such a window is stored in parts" in refused["sliding"]
    for uid in ("places", "sliding"):
        with pytest.raises(UsageError):
            plan(context, **{uid: f"FROM {uid}"})
        assert state_of(context, uid).reads, "a query may read it"


def test_operators_that_were_added_or_are_gone_are_listed_too(context: SalesContext) -> None:
    names = Fold("names", key_by={"name": "lower(shop)"}, state=Sold)
    context.line.pipeline = replace(SALES, operators=[TOWNS, HOURS, SLIDING, names])
    assert "names" not in {s.uid for s in listed(context).states}, "no plan has it yet"
    query = "SELECT lower(shop) AS name, * EXCLUDE (shop) FROM shops"
    wanted = TransformRequest(pipeline="sales", source=FIRST, fork="named", queries={"names": query})
    assert transforms.transform(context, wanted).checkpoint is not None
    added, gone = state_of(context, "names"), state_of(context, "shops")
    assert (added.reads, added.rows, added.is_declared, added.keys) == ([], 0, True, ["name"])
    assert {c.name for c in added.returns} == {c.name for c in gone.returns} - {"shop"} | {"name"}
    assert (gone.is_declared, bool(gone.reads)) == (False, True)


def test_a_savepoint_a_time_and_nothing_are_restore_points_as_everywhere(context: SalesContext) -> None:
    pinned = listed(context, RestoreRequest(savepoint="kept"))
    assert (pinned.checkpoint, pinned.savepoint, pinned.drained) == ("chk-1", "kept", False)
    assert listed(context, RestoreRequest(as_of_ms=2**45)).checkpoint == "chk-1"
    for wrong in (RestoreRequest(checkpoint=9), RestoreRequest(savepoint="gone")):
        with pytest.raises(NotFoundError):
            listed(context, wrong)
