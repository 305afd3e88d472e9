"""In memory: any records, any cut, any crash, any ttl give what one plain dict per key gives."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import duckdb
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.process.value_model import TTL, Model, Rules
from tidemark import DeltaSink, KafkaSource, Pipeline, Process, state
from tidemark.model.portable_sql.dialects import DUCKDB_MACROS
from tidemark.model.schema.operator_schema import run_columns
from tidemark.sql.resolve import compacted_sql, resolving_sql
from tidemark.tables.delta_tables import arrow_schema
from tidemark.testing import BARRIER, CRASH, replay
from tidemark.testing.twin.merge import compact_rows, resolve_rows

DAY = datetime(2020, 1, 1, tzinfo=UTC)
UIDS = ["process.p", "fold.p", "runs.p", "emitted.p", "outputs.p", "commit.outputs.p", "seal", "publish", "gate"]


@dataclass(frozen=True)
class Act:
    """One record: what to do with the key's state."""

    key: str
    act: str
    x: int
    at: datetime


@dataclass(frozen=True)
class Said:
    """What the function observed."""

    what: str


def pipeline(rules: Rules) -> Pipeline:
    """The author's side of the model."""
    update: Literal["on_read_and_write", "on_create_and_write"] = (
        "on_read_and_write" if rules.renews else "on_create_and_write"
    )
    visibility: Literal["never_return_expired", "return_expired_if_not_cleaned_up"] = (
        "never_return_expired" if rules.hides else "return_expired_if_not_cleaned_up"
    )
    ttl = state.Ttl(ttl=timedelta(milliseconds=TTL), update=update, visibility=visibility)

    class Kept(state.Keyed):
        value: int | None = state.value(None, ttl=ttl)
        kept: int | None = state.value(None)
        items: list[int] = state.list(ttl=ttl)
        entries: dict[str, int] = state.map(ttl=ttl)

    def function(key: str, acts: Iterator[Act], kept: Kept) -> Iterator[Said]:
        for one in acts:
            if (said := DOES[one.act](kept, one)) is not None:
                yield Said(repr(said))

    source = KafkaSource("acts", Act, event_time="at")
    process = Process("p", key_by="key", state=Kept, function=function, emits=Said, sink=DeltaSink("said"))
    return Pipeline(name="model", source=source, operators=[process])


def _get(kept: Any, one: Act) -> object:
    value, rest = kept.value, kept.kept
    return ("get", -1 if value is None else value, -1 if rest is None else rest)


def _set(kept: Any, one: Act) -> None:
    kept.value = kept.kept = one.x


def _drop(kept: Any, one: Act) -> None:
    items = kept.items
    if items:
        del items[0]


def _put(kept: Any, one: Act) -> None:
    kept.entries[str(one.x % 3)] = one.x


def _forget(kept: Any, one: Act) -> None:
    kept.entries.pop(str(one.x % 3), None)


DOES: dict[str, Callable[[Any, Act], object]] = {
    "set": _set,
    "get": _get,
    "add": lambda kept, one: kept.items.append(one.x),
    "show": lambda kept, one: ("show", list(kept.items)),
    "drop": _drop,
    "put": _put,
    "look": lambda kept, one: ("look", kept.entries.get(str(one.x % 3), -1)),
    "forget": _forget,
    "all": lambda kept, one: ("all", dict(sorted(kept.entries.items()))),
    "clear": lambda kept, one: kept.clear(),
}


ACT = st.builds(
    Act,
    key=st.sampled_from(["a", "b"]),
    act=st.sampled_from(sorted(DOES)),
    x=st.integers(0, 5),
    at=st.integers(0, 40).map(lambda n: DAY + timedelta(minutes=n * 15)),
)
CRASHES = st.none() | st.builds(CRASH.at, st.just("seal"), st.sampled_from(["before", "after"]))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.lists(ACT, max_size=8), CRASHES), min_size=1, max_size=5),
    st.builds(Rules, renews=st.booleans(), hides=st.booleans()),
)
def test_state_is_that_of_one_dict_per_key_however_it_is_cut(parts: Any, rules: Rules) -> None:
    script: list[Any] = []
    for acts, crash in parts:
        script += [acts, *([crash] if crash else []), BARRIER]
    done = replay(pipeline(rules), script)
    model, watermark = Model(rules), -(2**62)
    for (acts, _), checkpoint in zip(parts, done.checkpoints, strict=True):
        clocks: dict[str, int] = {}
        said: list[str] = []
        for one in acts:
            # A key's clock never goes back, and no key's is behind the watermark that the batch began with.
            at = max(_ms(one.at), watermark, clocks.get(one.key, watermark))
            clocks[one.key] = at
            model.said.clear()
            model.step(one.key, at, one.act, one.x)
            said += [repr((s[0], dict(sorted(s[1].items())))) if s[0] == "all" else repr(s) for s in model.said]
        watermark = max([watermark, *(_ms(a.at) for a in acts)])
        emitted = done.emitted("p", checkpoint)
        assert [r["what"] for r in emitted[len(emitted) - len(said) :]] == said
        found = {k: {n: v for n, v in vars(s).items()} for k, s in done.state("p", checkpoint).items()}
        assert found == model.seen(watermark)


def _ms(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


@settings(max_examples=30, deadline=None)
@given(st.lists(ACT, min_size=1, max_size=6), st.sampled_from(UIDS), st.sampled_from(["before", "after"]))
def test_a_crash_at_any_step_neither_loses_nor_doubles_a_row_of_the_sink(acts: Any, step: str, moment: str) -> None:
    acts = [*acts, Act("a", "set", 1, DAY), Act("a", "show", 1, DAY)]
    rules = Rules(renews=False, hides=True)
    plain = replay(pipeline(rules), [acts, BARRIER, acts, BARRIER])
    crash = CRASH.at(step, moment)
    crashed = replay(pipeline(rules), [acts, crash, BARRIER, acts, crash, BARRIER])
    assert crashed.crashes == 2
    assert crashed.emitted("p") == plain.emitted("p")
    assert crashed.rows("p") == plain.rows("p")


@settings(max_examples=120, deadline=None)
@given(
    st.lists(st.lists(ACT, max_size=6), min_size=2, max_size=6),
    st.builds(Rules, renews=st.booleans(), hides=st.booleans()),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6), st.booleans()), max_size=4),
)
def test_no_answer_depends_on_what_was_compacted(parts: Any, rules: Rules, schedule: Any) -> None:
    done = replay(pipeline(rules), [step for acts in parts for step in (acts, BARRIER)])
    (ack,), newest = done.checkpoints[-1].sealed.acks, done.checkpoints[-1]
    schema = newest.plan.schemas["p"]
    rows = [dict(r) for r in done._tables.rows(ack.handle)]
    groups = [[r for r in rows if r["_changed"] == c.id] for c in done.checkpoints]
    nows = [c.now for c in done.checkpoints]
    wanted = resolve_rows(schema, rows, newest.now)
    for start, length, by_sql in schedule:
        low = min(start, len(groups) - 1)
        high = min(low + length, len(groups))
        merged = [r for g in groups[low:high] for r in g]
        made = _compacted(schema, merged, nows[high - 1], deepest=low == 0, by_sql=by_sql)
        groups[low:high], nows[low:high] = [made], [nows[high - 1]]
    left = [r for g in groups for r in g]
    assert resolve_rows(schema, left, newest.now) == wanted
    assert _resolved_by_sql(schema, left, newest.now) == list(map(wanted.get, sorted(wanted)))


def _compacted(schema: Any, rows: Any, now: Any, *, deepest: bool, by_sql: bool) -> list[dict[str, Any]]:
    if not by_sql or not rows:
        return compact_rows(schema, rows, now, deepest=deepest)
    return _asked(compacted_sql(schema, "rows", now, deepest=deepest), schema, rows)


def _resolved_by_sql(schema: Any, rows: Any, now: Any) -> list[dict[str, Any]]:
    return _asked(resolving_sql(schema, "rows", now) + " ORDER BY key", schema, rows) if rows else []


def _asked(sql: str, schema: Any, rows: Any) -> list[dict[str, Any]]:
    with duckdb.connect() as connection:
        connection.execute(DUCKDB_MACROS)
        connection.register("rows", pa.Table.from_pylist(rows, schema=arrow_schema(run_columns(schema))))
        return list(connection.sql(sql).to_arrow_table().to_pylist(maps_as_pydicts="strict"))
