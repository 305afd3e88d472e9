"""Lists and sets of values over several batches: the checkpoint that makes one too large fails, and only that (A3).

`TIDEMARK_TEST_SEED` repeats one run, `TIDEMARK_TEST_SCALE=10` makes ten times as many cases; a failing case prints its
own seed.
"""

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.limit_cases import limit_case, outgrown
from tests.support.scale import SCALE
from tests.support.ttl_cases import Batch, TtlCase, expected, records
from tidemark import Fold, KafkaSource, Pipeline, state
from tidemark.errors import StateOverflowError
from tidemark.model.kinds.base.sql import limited_schema
from tidemark.testing import BARRIER, replay
from tidemark.testing.twin.fold import fold
from tidemark.testing.twin.merge import compact_rows, refuse_overflow, resolve_rows

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
NOON = datetime(2020, 1, 1, 12, tzinfo=UTC)
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Visit:
    """One record."""

    user: str
    at: datetime
    page: int | None = None


class Visits(state.Keyed):
    """What a user has seen."""

    pages: list[int] = state.list("page", limit=3)
    different: list[int] = state.distinct("page", limit=2)
    total: int | None = state.sum("page")


VISITS = Pipeline(
    name="visits",
    source=KafkaSource("visits", Visit, event_time="at"),
    operators=[Fold("users", key_by="user", state=Visits)],
)


def _judge(made: TtlCase, seed: int) -> int:
    """Replays a case with random compactions; a batch that fails is left out. Answers how many did."""
    chance, schema = random.Random(seed), made.schema
    handle: list[Rows] = []
    done: list[Batch] = []
    failed = 0
    for plan, batch in made.plans():
        rows = [row for level in handle for row in level]
        too_large, why = outgrown(made, done, batch), f"case {seed}, checkpoint {batch.number}, {schema.fields}"
        try:
            run = fold(schema, records(batch), plan, batch.now)
            refuse_overflow(schema, run, rows, batch.now)
        except StateOverflowError as error:
            assert any(f"{field} of key ({key}) " in error.what for field, key in too_large), why
            failed += 1
            before = resolve_rows(schema, rows, done[-1].now if done else batch.now)
            assert len(before) == (len(expected(_cut(made, done), len(done))) if done else 0), why
            continue
        assert not too_large, why
        done.append(batch)
        handle.append(run)
        found = resolve_rows(schema, [row for level in handle for row in level], batch.now)
        assert len(found) == len(expected(_cut(made, done), len(done))), why
        if chance.random() < 0.3:
            cut = chance.randrange(len(handle))
            merged = [row for level in handle[cut:] for row in level]
            handle = [*handle[:cut], compact_rows(schema, merged, batch.now, deepest=cut == 0)]
    return failed


def _cut(made: TtlCase, done: Sequence[Batch]) -> TtlCase:
    return TtlCase(made.pipeline, made.kinds, tuple(done))


def test_a_checkpoint_fails_if_and_only_if_a_read_of_it_would() -> None:
    print(f"TIDEMARK_TEST_SEED={SEED} pytest {__file__}")
    cases = 400 * SCALE
    failed = [_judge(limit_case(seed), seed) for seed in range(SEED, SEED + cases)]
    assert cases / 4 < sum(map(bool, failed)) < cases, "both kinds of cases are made"


@pytest.mark.parametrize("field", ["pages", "different"])
def test_the_error_names_operator_field_and_key_and_the_state_before_stays(field: str) -> None:
    batches = [[1, 1, 1], [1]] if field == "pages" else [[1, 2], [3]]
    script = [part for pages in batches for part in ([Visit("a", NOON, page) for page in pages], BARRIER)]
    kept = replay(VISITS, script[:2])
    with pytest.raises(StateOverflowError, match=rf"^state overflow: users: {field} of key \(a\) has ") as raised:
        replay(VISITS, script)
    assert "nothing was published" in str(raised.value)
    assert kept.state("users")["a"].pages == batches[0]


def test_what_a_batch_does_not_touch_is_not_looked_at() -> None:
    full = [Visit("a", NOON, 1)] * 3
    done = replay(VISITS, [full, BARRIER, [Visit("b", NOON, 2), Visit("a", NOON)], BARRIER])
    assert {user: kept.pages for user, kept in done.state("users").items()} == {"a": [1, 1, 1], "b": [2]}


def test_what_other_keys_have_made_expire_in_the_same_batch_does_not_count() -> None:
    class Recent(state.Keyed):
        pages: list[int] = state.list("page", limit=2, ttl=timedelta(minutes=5))
        different: list[int] = state.distinct("page", limit=2, ttl=timedelta(minutes=5))

    pipeline = Pipeline(
        name="visits",
        source=KafkaSource("visits", Visit, event_time="at"),
        operators=[Fold("users", key_by="user", state=Recent)],
    )
    crowd = [Visit("a", NOON, page) for page in range(3)]
    later = [Visit("b", NOON + timedelta(minutes=5), 1)]
    assert replay(pipeline, [[*crowd, *later], BARRIER]).state("users") == {"b": Recent(pages=[1], different=[1])}
    with pytest.raises(StateOverflowError, match=r"users: pages of key \(a\)"):
        replay(pipeline, [crowd, BARRIER])


def test_a_sum_beside_a_list_fails_at_the_checkpoint_too() -> None:
    huge = [Visit("a", NOON, 2**62)]
    with pytest.raises(StateOverflowError, match=r"users: total of key \(a\) does not fit 64 bits"):
        replay(VISITS, [huge, BARRIER, huge, BARRIER])


def test_an_operator_without_limits_looks_nothing_up_and_its_sums_fail_when_they_are_read() -> None:
    class Totals(state.Keyed):
        total: int | None = state.sum("page")

    pipeline = Pipeline(
        name="visits",
        source=KafkaSource("visits", Visit, event_time="at"),
        operators=[Fold("users", key_by="user", state=Totals)],
    )
    assert limited_schema(pipeline.schemas()["users"]) is None
    done = replay(pipeline, [[Visit("a", NOON, 2**62)], BARRIER, [Visit("a", NOON, 2**62)], BARRIER])
    with pytest.raises(StateOverflowError, match=r"total of key \(a\) does not fit 64 bits"):
        done.state("users")
    assert done.state("users", done.checkpoints[0]) == {"a": Totals(total=2**62)}
    looked_at = limited_schema(VISITS.schemas()["users"])
    assert looked_at is not None and [f.name for f in looked_at.fields] == ["pages", "different", "total"]
