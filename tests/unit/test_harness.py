"""Scripts of a replay: time, intervals, places of records, crashes, restores and redeclared pipelines."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidemark import Broadcast, DeltaSink, Fold, KafkaSource, Pipeline, Process, state
from tidemark.errors import ConflictError, DeadLettersExceededError, IncompatibleStateError, NotFoundError, UsageError
from tidemark.testing import BARRIER, CRASH, Barrier, Harness, Record, Restore, Script, replay


def hour(n: float) -> datetime:
    """A time on the first day of 2020."""
    return datetime(2020, 1, 1, tzinfo=UTC) + timedelta(hours=n)


@dataclass(frozen=True)
class Sale:
    """One record."""

    shop: str
    cents: int
    at: datetime


@dataclass(frozen=True)
class Big:
    """An emitted record."""

    shop: str
    cents: int


class Shop(state.Keyed):
    """The state of the fold."""

    cents: int | None = state.sum("cents")


class Seen(state.Keyed):
    """The state of the process."""

    sales: int = state.value(0)


def find_big(shop: str, sales: Iterator[Sale], seen: Seen) -> Iterator[Big]:
    """Emits every sale."""
    for sale in sales:
        seen.sales += 1
        yield Big(shop, sale.cents)


SHOPS = Fold("shops", key_by="shop", state=Shop)
BIG = Process("big", key_by="shop", state=Seen, function=find_big, emits=Big, sink=DeltaSink("big"))
SOURCE = KafkaSource("sales", Sale, event_time="at")
SALES = Pipeline(name="sales", source=SOURCE, operators=[SHOPS, BIG])


def expiring(clock: Any) -> Pipeline:
    """A fold whose state lives for two hours on a clock."""

    class Brief(state.Keyed):
        cents: int | None = state.sum("cents", ttl=state.Ttl(ttl=timedelta(hours=2), clock=clock))

    return Pipeline(name="brief", source=SOURCE, operators=[Fold("shops", key_by="shop", state=Brief)])


def test_the_simplest_call_is_one_line() -> None:
    assert replay(SALES, [[Sale("a", 5, hour(0))]]).state("shops")["a"].cents == 5


def test_records_after_the_last_barrier_belong_to_a_last_checkpoint() -> None:
    done = replay(SALES, [[Sale("a", 5, hour(0))], BARRIER, [Sale("a", 1, hour(0))], CRASH])
    assert [done.counts("shops", c).applied for c in done.checkpoints] == [1, 1]
    assert (done.crashes, done.state("shops")["a"].cents) == (1, 6)
    assert len(replay(SALES, [[Sale("a", 5, hour(0))], BARRIER, []]).checkpoints) == 1


def test_state_expires_on_logical_time_where_no_record_comes() -> None:
    times = [Barrier(logical_time=hour(n)) for n in (1, 2, 3)]
    script: Script = [[Sale("a", 5, hour(0))], times[0], times[1], times[2]]
    done = replay(expiring("logical_time"), script)
    assert [sorted(done.state("shops", c)) for c in done.checkpoints] == [["a"], ["a"], []]
    done = replay(expiring("event_time"), script)
    assert [sorted(done.state("shops", c)) for c in done.checkpoints] == [["a"], ["a"], ["a"]]
    done = replay(expiring("event_time"), [*script, [Sale("b", 1, hour(2))]])
    assert sorted(done.state("shops")) == ["b"]


def test_a_barrier_without_a_time_has_that_of_the_barrier_before() -> None:
    done = replay(SALES, [Barrier(logical_time=hour(5)), BARRIER])
    assert [c.plan.logical_time_ms for c in done.checkpoints] == [int(hour(5).timestamp() * 1000)] * 2


def test_a_record_ahead_of_logical_time_is_a_dead_letter_as_in_production() -> None:
    lenient = replace(SALES, max_dead_letters=1.0)
    done = replay(lenient, [[Sale("a", 5, hour(30))], Barrier(logical_time=hour(1))])
    assert [letter["reason"] for letter in done.dead_letters("shops")] == ["in_the_future"]


def test_until_cuts_before_the_first_record_of_the_next_interval_per_partition() -> None:
    sales = [Sale("a", 1, hour(0.5)), Sale("a", 2, hour(1)), Sale("a", 4, hour(0.9)), Sale("b", 8, hour(0.9))]
    one = replay(SALES, [sales, Barrier(until=hour(1)), Barrier(until=hour(2))])
    assert [one.counts("shops", c).read for c in one.checkpoints] == [1, 3]
    two = replay(SALES, [sales, Barrier(until=hour(1)), Barrier(until=hour(2))], partitions=2)
    assert [two.counts("shops", c).read for c in two.checkpoints] == [2, 2]
    assert one.state("shops") == two.state("shops")
    first = one.checkpoints[0].plan
    assert first.interval is not None
    assert first.logical_time_ms == first.interval.end_ms == int(hour(1).timestamp() * 1000)


def test_until_goes_by_kafkas_timestamp_not_by_event_time() -> None:
    late = Record(value=Sale("a", 1, hour(0.5)), timestamp=hour(1.5))
    done = replay(SALES, [[late], Barrier(until=hour(1)), Barrier(until=hour(2))])
    assert [done.counts("shops", c).read for c in done.checkpoints] == [0, 1]


def test_a_record_without_any_time_belongs_to_the_interval_of_its_barrier() -> None:
    raw = {"shop": "a", "cents": 1, "at": hour(0).isoformat()}
    done = replay(SALES, [[raw], Barrier(until=hour(1)), [raw, raw], Barrier(until=hour(2))])
    assert [done.counts("shops", c).read for c in done.checkpoints] == [1, 2]


def test_a_record_lies_where_the_script_puts_it() -> None:
    body = b"{"
    records = [Record(value=body, partition=1, key="k", timestamp=hour(3)), Record(value=body, partition=0), body]
    done = replay(replace(SALES, max_dead_letters=1.0), [records], partitions=2)
    found = [(x["partition"], x["offset"], x["key"]) for x in done.dead_letters("shops")]
    assert found == [(0, 0, None), (0, 1, None), (1, 0, b"k")]
    assert done.dead_letters("shops")[-1]["timestamp"] == hour(3)


def test_a_record_names_its_source() -> None:
    other = KafkaSource("refunds", Sale, event_time="at")
    folds = [replace(SHOPS, input="sales"), Fold("back", key_by="shop", state=Shop, input="refunds")]
    both = Pipeline(name="both", sources={"sales": SOURCE, "refunds": other}, operators=folds)
    sale = Sale("a", 5, hour(0))
    done = replay(both, [[Record(value=sale, source="refunds"), ("sales", sale), Record(value=sale, source="sales")]])
    assert (done.state("shops")["a"].cents, done.state("back")["a"].cents) == (10, 5)
    with pytest.raises(UsageError, match=r"which input does Sale\(.*\) belong to: sales, refunds"):
        replay(both, [[sale]])


def test_every_crash_point_of_a_checkpoint_is_listed_and_repaired() -> None:
    records = [Sale("a", 5, hour(0)), Sale("b", 1, hour(0)), b"{", *[Sale("b", 2, hour(0))] * 30]
    whole = replay(SALES, [records])
    points = whole.crash_points()
    assert {"plan", "read", "fold.shops", "process.big", "outputs.big", "seal", "publish"} <= {p.step for p in points}
    for point in points:
        again = replay(SALES, [records, point, BARRIER])
        assert again.crashes == 1
        for uid in ("shops", "big"):
            assert again.state(uid) == whole.state(uid)
            assert again.dead_letters(uid) == whole.dead_letters(uid)
        assert again.emitted_records("big") == whole.emitted_records("big")


def test_a_restore_reads_the_records_after_its_checkpoint_again_and_keeps_or_takes_back_sinks() -> None:
    script: Script = [[Sale("a", 1, hour(0))], Barrier(savepoint="one"), [Sale("a", 2, hour(0))], BARRIER]
    for to in ("one", "chk-1"):
        kept = replay(SALES, [*script, Restore(to=to), BARRIER])
        assert [c.plan.slot.timeline for c in kept.checkpoints] == ["t1", "t1", "t2"]
        assert kept.counts("shops").read == 1
        assert kept.state("shops")["a"].cents == 3
        assert kept.emitted_records("big") == [Big("a", 1), Big("a", 2)]
        assert kept.state("shops", kept.checkpoints[0])["a"].cents == 1


def test_a_restore_with_corrected_code_keeps_the_rows_of_a_sink_or_writes_them_again() -> None:
    def find_cheap(shop: str, sales: Iterator[Sale], seen: Seen) -> Iterator[Big]:
        for sale in sales:
            seen.sales += 1
            yield Big(shop, -sale.cents)

    fixed = replace(SALES, operators=[SHOPS, replace(BIG, function=find_cheap)])
    script: Script = [[Sale("a", 1, hour(0))], BARRIER, [Sale("a", 2, hour(0))], BARRIER]
    kept = replay(SALES, [*script, Restore(to="chk-1", pipeline=fixed), [Sale("a", 4, hour(0))]])
    assert [big.cents for big in kept.emitted_records("big")] == [1, 2, -4]
    back = replay(SALES, [*script, Restore(to="chk-1", pipeline=fixed, restore_sinks=True), [Sale("a", 4, hour(0))]])
    assert [big.cents for big in back.emitted_records("big")] == [1, -2, -4]
    assert kept.state("big") == back.state("big")


def test_state_evolves_with_the_declaration() -> None:
    class Wider(state.Keyed):
        cents: int | None = state.sum("cents")
        largest: int | None = state.max("cents")

    wider = replace(SALES, operators=[Fold("stores", key_by="shop", state=Wider, was="shops"), BIG])
    done = replay(SALES, [[Sale("a", 5, hour(0))], BARRIER, wider, [Sale("a", 3, hour(0))]])
    assert vars(done.state("stores")["a"]) == {"cents": 8, "largest": 3}
    assert vars(done.state("shops", done.checkpoints[0])["a"]) == {"cents": 5}
    renamed = replace(SALES, operators=[Fold("stores", key_by="shop", state=Wider), BIG])
    restore = Restore(to="chk-1", pipeline=renamed, renamed={"shops": "stores"})
    done = replay(SALES, [[Sale("a", 5, hour(0))], BARRIER, [Sale("a", 3, hour(0))], BARRIER, restore, BARRIER])
    assert vars(done.state("stores")["a"]) == {"cents": 8, "largest": 3}


def test_state_without_an_operator_is_refused_unless_it_may_be_left_behind() -> None:
    less = replace(SALES, operators=[BIG])
    script: Script = [[Sale("a", 5, hour(0))], BARRIER, less]
    with pytest.raises(IncompatibleStateError, match="shops"):
        replay(SALES, [*script, BARRIER])
    done = replay(SALES, [*script, Barrier(allow_non_restored_state=True)])
    assert list(done.checkpoints[-1].handles) == ["big"]


def test_records_that_wait_go_to_the_sources_that_were_declared_when_they_were_sent() -> None:
    moved = replace(SALES, source=KafkaSource("trades", Sale, event_time="at"), sources={})
    done = replay(SALES, [BARRIER, [Sale("a", 1, hour(0))], moved, [Sale("a", 4, hour(0))]])
    assert done.state("shops")["a"].cents == 4


def test_a_test_may_go_on_after_an_error() -> None:
    harness = Harness(SALES)
    harness.send(b"{")
    with pytest.raises(DeadLettersExceededError):
        harness.checkpoint()
    harness.send(*[Sale("a", 1, hour(0))] * 50)
    harness.checkpoint()
    assert harness.results.counts("shops").dead_lettered == 1
    assert len(harness.results.checkpoints) == 1


def test_a_minimum_pause_does_not_hold_barriers_up() -> None:
    done = replay(replace(SALES, min_pause=timedelta(hours=1)), [BARRIER, BARRIER])
    assert [c.id for c in done.checkpoints] == [1, 2]


def test_results_before_any_checkpoint_are_empty_or_refused() -> None:
    done = Harness(SALES).results
    assert (done.state("shops"), done.rows("shops"), done.emitted("big"), done.emitted_records("big")) == (
        {},
        {},
        [],
        [],
    )
    assert (done.dead_letters("shops"), done.crash_points()) == ([], ())
    with pytest.raises(UsageError, match="no checkpoint yet"):
        done.counts("shops")
    with pytest.raises(UsageError, match="no checkpoint yet"):
        done.operator_state("big")
    with pytest.raises(UsageError, match="chk-1 has no operator 'nope'"):
        replay(SALES, [BARRIER]).counts("nope")
    with pytest.raises(UsageError, match="'shops' emits nothing"):
        replay(SALES, [BARRIER]).emitted_records("shops")


AHEAD = Record(value=b"{", partition=3)


@pytest.mark.parametrize(
    ("script", "error", "message"),
    [
        ([BARRIER, Barrier(logical_time=hour(1))], UsageError, r"goes back: chk-1 has 2100-01-01.*the default"),
        (
            [Barrier(logical_time=hour(2)), Barrier(until=hour(1))],
            UsageError,
            r"chk-1 has 2020-01-01T02:00:00\+00:00\n",
        ),
        ([Barrier(until=hour(1)), Barrier(until=hour(1))], UsageError, r"until=2020.* is covered by chk-1 already"),
        ([Barrier(until=hour(1), logical_time=hour(2))], UsageError, "logical time is the end of the interval"),
        ([Barrier(until=datetime(2020, 1, 1))], UsageError, r"until=.* has no time zone"),  # noqa: DTZ001
        ([Barrier(logical_time=datetime(2020, 1, 1))], UsageError, r"logical_time=.* has no time zone"),  # noqa: DTZ001
        ([[Record(value=None, timestamp=datetime(2020, 1, 1))]], UsageError, r"timestamp=.* no time zone"),  # noqa: DTZ001
        ([[AHEAD]], UsageError, "partition 3 of input records, which has sales-0"),
        ([[Record(value=None, source="nope")]], UsageError, "no input 'nope'"),
        ([Restore(to="chk-7")], NotFoundError, "no completed checkpoint chk-7"),
        ([Barrier(savepoint="one"), Restore(to="two")], NotFoundError, "no savepoint 'two'"),
        ([Barrier(savepoint="one"), Barrier(savepoint="one")], ConflictError, "savepoint one pins chk-1"),
        ([CRASH], UsageError, "CRASH follows the last BARRIER"),
        ([replace(SALES, name="other")], UsageError, "pipeline 'other' after 'sales'"),
    ],
)
def test_what_makes_no_sense_is_refused(script: Script, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        replay(SALES, script)


def test_a_restore_that_names_nothing_lists_what_there_is() -> None:
    with pytest.raises(NotFoundError) as caught:
        replay(SALES, [Barrier(savepoint="one"), Restore(to="two")])
    assert caught.value.next == "name one of: chk-1, one."


def test_broadcast_topics_take_records_with_a_place_as_well() -> None:
    @dataclass(frozen=True)
    class Limit:
        shop: str
        cents: int

    limits = Broadcast("limits", source=KafkaSource("limits", Limit), key_by="shop")
    done = replay(replace(SALES, broadcast=[limits]), [[Record(value=Limit("a", 9), key="a"), Sale("a", 1, hour(0))]])
    assert done.state("limits") == {"a": Limit("a", 9)}
