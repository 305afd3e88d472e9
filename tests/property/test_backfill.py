"""Any history, any savepoint: a backfill with the same code comes to the same state at every checkpoint.

With other code it comes to what that code makes of the records since; killed anywhere, a repeated call goes on.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.backfill_cases import BATCHES, SHOPS, Batch, ShopPipeline, Wider, as_rated, shops
from tests.support.crashes import Killed
from tests.support.scale import cases
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.records.states import Promoted
from tidemark.coordinator.recovery.backfill import Backfill
from tidemark.model.checkpoint.manifest import Checkpoint, Sealed

T = TypeVar("T")
HISTORIES = st.lists(BATCHES, min_size=1, max_size=6)


def execute(world: ShopPipeline, backfill: Backfill) -> Callable[[OwnedAttempt], Sealed]:
    return lambda attempt: world.executed(backfill.pipeline, attempt)


def repeated(world: ShopPipeline, backfill: Backfill) -> list[Checkpoint]:
    backfill.begin()
    return list(backfill.repeat(execute(world, backfill)))


@settings(max_examples=cases(40), deadline=None)
@given(HISTORIES, st.data())
def test_the_same_code_comes_to_the_same_state_at_every_checkpoint(history: list[Batch], data: st.DataObject) -> None:
    world = ShopPipeline()
    made = world.history(history)
    at = data.draw(st.integers(0, len(made) - 1))
    # Whatever the world has come to since: later clocks, another version of the table.
    world.clock.advance(10**9)
    world.rate(9)
    fork = repeated(world, world.backfill(made[at], shops()))
    assert [c.plan.replays for c in fork] == [(c.id,) for c in made[at + 1 :]]
    for again, recorded in zip(fork, made[at + 1 :], strict=True):
        assert world.all_rows(again) == world.all_rows(recorded)
        assert world.told(again) == world.told(recorded)
        assert again.plan.logical_time_ms == recorded.plan.logical_time_ms
        assert again.plan.ranges == recorded.plan.ranges
        assert again.sealed.facts == recorded.sealed.facts
        assert (again.covered_until_ms, again.plan.broadcast_versions) == (
            recorded.covered_until_ms,
            recorded.plan.broadcast_versions,
        )


def oracle(history: Sequence[Batch], at: int, rates: Sequence[int]) -> dict[str, tuple[int, int, int, int | None]]:
    """Per shop: number, sum, takings, and the most that one sale was since the savepoint."""
    found: dict[str, tuple[int, int, int, int | None]] = defaultdict(lambda: (0, 0, 0, None))
    for n, batch in enumerate(history):
        for _, sale in batch.sales:
            if sale.shop is not None:
                count, total, taken, most = found[sale.shop]
                rate = 1 if n <= at else rates[n] if sale.shop in SHOPS[:2] else 0
                largest = most if n <= at else max(sale.amount, sale.amount if most is None else most)
                found[sale.shop] = (count + 1, total + sale.amount, taken + sale.amount * rate, largest)
    return dict(found)


def rates(history: Sequence[Batch]) -> list[int]:
    """The rate that is known at each checkpoint."""
    known, found = 1, []
    for batch in history:
        known = batch.rate if batch.rate is not None else known
        found.append(known)
    return found


def known(world: ShopPipeline, checkpoint: Checkpoint) -> dict[str, tuple[int, int, int, int | None]]:
    """The same four numbers, as a checkpoint has them."""
    folded, taken = world.rows(checkpoint, "shops"), world.rows(checkpoint, "takings")
    return {key[0]: (row["n"], row["total"], taken[key]["total"], row.get("most")) for key, row in folded.items()}


@settings(max_examples=cases(40), deadline=None)
@given(HISTORIES, st.none() | st.integers(1, 12), st.lists(BATCHES, max_size=2), st.data())
def test_other_code_comes_to_what_it_makes_of_the_records_since_and_becomes_live(
    history: list[Batch], max_records: int | None, late: list[Batch], data: st.DataObject
) -> None:
    world, fixed = ShopPipeline(), shops(as_rated, Wider)
    made = world.history(history)
    at, before = data.draw(st.integers(0, len(made) - 1)), [world.all_rows(c) for c in made]
    backfill = world.backfill(made[at], fixed, max_records=max_records)
    fork = repeated(world, backfill)
    assert [world.all_rows(c) for c in made] == before, "the recorded line stays as it was"
    assert [n for c in fork for n in c.plan.replays] == [c.id for c in made[at + 1 :]]
    if fork:
        assert known(world, fork[-1]) == oracle(history, at, rates(history))
    # Live checkpoints that win the slot of the promote: each is repeated, then the next slot is tried.
    world.closing = list(late[::-1])
    done = backfill.promote(lambda: list(backfill.repeat(execute(world, backfill))))
    assert isinstance(done, Promoted)
    assert not done.left
    won = late[: len(late) - len(world.closing)]
    world.closing = []
    after = Batch(sales=(), wait_ms=0, rate=None)
    newest = world.live(after, fixed)
    assert newest.plan.slot.timeline == backfill.fork
    whole = [*history, *won, after]
    wanted = oracle(whole, at, rates(whole))
    assert known(world, newest) == wanted
    assert isinstance(backfill.promote(lambda: list(backfill.repeat(execute(world, backfill)))), Promoted), (
        "a repeated call finds it done"
    )


@settings(max_examples=cases(60), deadline=None)
@given(HISTORIES, st.lists(st.integers(1, 60), max_size=6), st.none() | st.integers(1, 12), st.data())
def test_killed_anywhere_a_repeated_call_goes_on(
    history: list[Batch], kills: list[int], max_records: int | None, data: st.DataObject
) -> None:
    world, fixed = ShopPipeline(), shops(as_rated, Wider)
    made = world.history(history)
    at = data.draw(st.integers(0, len(made) - 1))

    def whole() -> None:
        backfill = world.backfill(made[at], fixed, max_records=max_records)
        backfill.begin()
        assert isinstance(backfill.promote(lambda: list(backfill.repeat(execute(world, backfill)))), Promoted)

    for kill in kills:
        world.kill_at = kill
        try:
            whole()
        except Killed:
            continue
        finally:
            world.kill_at = 0
    whole()
    fork = world.backfill(made[at], fixed, max_records=max_records)
    line = [c for c in world.coordinator.checkpoints() if c.plan.slot.timeline == fork.fork][::-1]
    assert [n for c in line for n in c.plan.replays] == [c.id for c in made[at + 1 :]], "each once, in order"
    if line:
        assert known(world, line[-1]) == oracle(history, at, rates(history))
