"""Random folds whose lists and sets of values sometimes exceed their limits; `ttl_cases` contains the model."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.support.ttl_cases import CLOCKS, Batch, Reading, TtlCase, expected, random_batches, random_ttl
from tidemark import Fold, KafkaSource, Pipeline, state

UID = "folded"


def limit_case(seed: int, *, batches: int = 8, most: int = 5) -> TtlCase:
    """A random case with one to three limited fields, and possibly others."""
    chance = random.Random(seed)
    clock = chance.choice(CLOCKS)
    fields: dict[str, Any] = {"seen": state.count()} if chance.random() < 0.5 else {}
    kinds = dict.fromkeys(fields, "count")
    hints: dict[str, Any] = dict.fromkeys(fields, int)
    for number in range(chance.randrange(1, 4)):
        kind, name = chance.choice(["list", "distinct"]), f"f{number}"
        made = state.list if kind == "list" else state.distinct
        limit = chance.choice([1, 2, 3, 4, 6])
        fields[name], kinds[name], hints[name] = made("n", limit=limit, ttl=random_ttl(chance, clock)), kind, list[int]
    if chance.random() < 0.3:
        fields["last"], kinds["last"], hints["last"] = state.latest("n"), "latest", int | None
    kept = type("Kept", (state.Keyed,), {**fields, "__annotations__": hints, "__module__": __name__})
    deletes = chance.random() < 0.4
    pipeline = Pipeline(
        name="cases",
        source=KafkaSource("t", Reading, event_time="at"),
        operators=[Fold(UID, key_by="key", state=kept, deletes=deletes)],
    )
    return TtlCase(pipeline, kinds, tuple(random_batches(chance, batches, most, deletes)))


def outgrown(made: TtlCase, done: Sequence[Batch], batch: Batch) -> set[tuple[str, str]]:
    """(field, key) of each value that exceeds its limit after the batches in `done` and `batch`."""
    after = expected(replace(made, batches=(*done, batch)), len(done) + 1)
    limits = {f.name: f.limit for f in made.schema.fields if f.kind in ("list", "distinct")}
    return {
        (name, key) for (key,), values in after.items() for name, limit in limits.items() if len(values[name]) > limit
    }
