"""What a compaction may throw away: tombstones and what has expired, and only where nothing lies below."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from tidemark import Fold, KafkaSource, Pipeline, state
from tidemark.model.core.ttl import Now
from tidemark.model.schema.operator_schema import OperatorSchema, run_columns
from tidemark.readers.duckdb_session import open_query_runner
from tidemark.sql.resolve import compacted_sql
from tidemark.tables.delta_tables import arrow_schema
from tidemark.testing import BARRIER, Replayed, replay
from tidemark.testing.twin.merge import compact_rows, resolve_rows

DAY = datetime(2020, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
Rows = list[dict[str, Any]]
Compact = Callable[..., Rows]


@dataclass(frozen=True)
class Visit:
    """One record."""

    user: str
    page: int
    at: datetime


def house(*, in_background: bool = True, deletes: bool = False) -> Pipeline:
    """How many visits within three hours of one another."""
    ttl = state.Ttl(ttl=3 * HOUR, clean_up_in_background=in_background)

    class User(state.Keyed):
        visits: int | None = state.count(ttl=ttl)
        pages: list[int] = state.list("page", ttl=ttl)

    fold = Fold("users", key_by="user", state=User, deletes=deletes)
    return Pipeline(name="visits", source=KafkaSource("visits", Visit, event_time="at"), operators=[fold])


def visit(user: str, hour: int) -> Visit:
    return Visit(user, hour, DAY + hour * HOUR)


def stored(done: Replayed, through: int | None = None, above: int = 0) -> Rows:
    """Stored rows of the checkpoints (above, through]."""
    rows: Rows = [dict(row) for row in done._tables.rows(done.checkpoints[-1].handles["users"])]
    return [r for r in rows if above < r["_changed"] <= (through or len(done.checkpoints))]


def by_duckdb(schema: OperatorSchema, rows: Sequence[dict[str, Any]], now: Now, *, deepest: bool) -> Rows:
    """The compaction as SQL, which Spark runs too."""
    held = pa.Table.from_pylist(list(rows), schema=arrow_schema(run_columns(schema)))
    with open_query_runner() as ask:
        found: Rows = ask(compacted_sql(schema, "rows", now, deepest=deepest), rows=held).to_pylist()
        return found


@pytest.fixture(params=[compact_rows, by_duckdb], ids=["memory", "duckdb"])
def compact(request: pytest.FixtureRequest) -> Compact:
    """Each implementation in turn."""
    found: Compact = request.param
    return found


def kinds(rows: Rows) -> dict[str, str]:
    return {r["user"]: r["_kind"] for r in rows}


def _gone_and_live(*, in_background: bool = True) -> tuple[Replayed, OperatorSchema, Now]:
    """Of ann all has expired, of bob one of two visits."""
    pipeline = house(in_background=in_background)
    done = replay(pipeline, [[visit("ann", 0), visit("bob", 0)], BARRIER, [visit("bob", 2), visit("bob", 4)], BARRIER])
    return done, pipeline.schemas()["users"], done.checkpoints[-1].now


def test_the_deepest_level_drops_what_has_expired_and_turns_operands_into_values(compact: Compact) -> None:
    done, schema, now = _gone_and_live()
    made = compact(schema, stored(done), now, deepest=True)
    assert kinds(made) == {"bob": "value"}
    assert [e["value"] for e in made[0]["pages"]] == [2, 4], "elements go one by one"
    assert made[0]["visits"] == 3
    assert resolve_rows(schema, made, now) == resolve_rows(schema, stored(done), now)


def test_above_the_deepest_level_nothing_is_dropped_and_operands_stay(compact: Compact) -> None:
    done, schema, now = _gone_and_live()
    made = compact(schema, stored(done), now, deepest=False)
    assert kinds(made) == {"ann": "operand", "bob": "operand"}
    assert resolve_rows(schema, made, now) == resolve_rows(schema, stored(done), now)


def test_without_background_clean_up_the_deepest_level_keeps_what_has_expired_and_readers_hide_it(
    compact: Compact,
) -> None:
    done, schema, now = _gone_and_live(in_background=False)
    made = compact(schema, stored(done), now, deepest=True)
    assert set(kinds(made)) == {"ann", "bob"}
    assert set(resolve_rows(schema, made, now)) == {("bob",)}


def test_a_compaction_goes_by_the_clock_of_its_checkpoint(compact: Compact) -> None:
    done, schema, _ = _gone_and_live()
    first = done.checkpoints[0]
    assert set(kinds(compact(schema, stored(done, through=1), first.now, deepest=True))) == {"ann", "bob"}


def test_a_tombstone_shadows_what_lies_below_until_the_deepest_level_is_compacted(compact: Compact) -> None:
    pipeline = house(deletes=True)
    schema = pipeline.schemas()["users"]
    gone = ("records", None, "ann")
    done = replay(pipeline, [[visit("ann", 0), visit("bob", 0)], BARRIER, [gone], BARRIER, [visit("bob", 1)], BARRIER])
    now = done.checkpoints[-1].now
    upper = compact(schema, stored(done, above=1), now, deepest=False)
    assert kinds(upper) == {"ann": "tombstone", "bob": "operand"}
    assert set(resolve_rows(schema, [*stored(done, through=1), *upper], now)) == {("bob",)}
    whole = compact(schema, [*stored(done, through=1), *upper], now, deepest=True)
    assert kinds(whole) == {"bob": "value"}
