"""Workloads of the comparison with other systems: a seed determines which keys change, are new, or are deleted.

The module also has their oracle: the state after any number of batches, computed in numpy without project code.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from benchmarks.generator import START_MS, Updates, first, key_text

Choice = Literal["uniform", "zipf", "sliding"]
ZIPF = 1.1
WINDOW = 10
"""A sliding range covers a tenth of the keys, and moves by a tenth of its width per batch."""
_SPREAD = 2_654_435_761
"""A prime that scatters the most frequent keys of a Zipf choice over the key numbers."""
STEPS = 1_000_003
"""The seed of a batch is the seed of the workload times this, plus the number of the batch."""


@dataclass(frozen=True)
class Workload:
    """Batches of updates over a number of keys, each batch a function of the seed and of its number.

    Attributes:
        keys: the number of keys in the first load.
        updates: records per batch.
        seed: the seed of all random choices.
        choice: how existing keys are chosen.
        new: the share of records whose key was never seen before.
        deleted: the share of records that are tombstones.
    """

    keys: int
    updates: int
    seed: int
    choice: Choice = "uniform"
    new: float = 0.05
    deleted: float = 0.01

    def load(self) -> Updates:
        """The first load: one record for every key."""
        every = first(self.keys)
        return Updates(every.keys, every.amounts, np.zeros(self.keys, bool))

    @property
    def fresh(self) -> int:
        """The number of new keys in a batch."""
        return round(self.updates * self.new)

    def batch(self, n: int, above: int) -> Updates:
        """The n-th batch, from 0.

        Args:
            n: the number of the batch, which determines its seed and the position of a sliding range.
            above: the first new key number; every key of an earlier batch is smaller.
        """
        chance = np.random.default_rng(self.seed * STEPS + n)
        chosen = self._old(chance, n)
        places = chance.choice(self.updates, self.fresh, replace=False)
        chosen[places] = above + np.arange(self.fresh)
        deletes = chance.random(self.updates) < self.deleted
        return Updates(chosen, chance.integers(0, 1000, self.updates), deletes)

    def _old(self, chance: np.random.Generator, n: int) -> np.ndarray:
        if self.choice == "uniform":
            return chance.integers(0, self.keys, self.updates)
        if self.choice == "sliding":
            width = max(1, self.keys // WINDOW)
            return (n * max(1, width // WINDOW) + chance.integers(0, width, self.updates)) % self.keys
        ranks = np.minimum(np.searchsorted(self._cumulated, chance.random(self.updates)), self.keys - 1)
        return ranks.astype(np.int64) * _SPREAD % self.keys

    @cached_property
    def _cumulated(self) -> np.ndarray:
        weights = np.arange(1, self.keys + 1, dtype=np.float64) ** -ZIPF
        cumulated: np.ndarray = np.cumsum(weights) / weights.sum()
        return cumulated


@dataclass(frozen=True)
class State:
    """The expected values of every live key, ordered by key.

    Attributes:
        keys: the keys as text.
        updates: the number of records since the last delete.
        amounts: the sum of their amounts.
        last_at: their latest event time, in microseconds since 1970.
    """

    keys: np.ndarray
    updates: np.ndarray
    amounts: np.ndarray
    last_at: np.ndarray


@dataclass
class Totals:
    """The state of every key number, kept in numpy batch by batch; the project's code has no part in it.

    Attributes:
        counts: the number of records since the last delete; 0 = the key is not alive.
        sums: the sum of their amounts.
        last: their latest second.
    """

    counts: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    sums: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    last: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def apply(self, batch: Updates) -> None:
        """Applies a batch: a delete discards the values of its key; a later update starts at zero."""
        size = max(len(self.counts), int(batch.keys.max(initial=-1)) + 1)
        counts, sums, last = (np.pad(a, (0, size - len(a))) for a in (self.counts, self.sums, self.last))
        deletes = np.zeros(len(batch.keys), bool) if batch.deletes is None else batch.deletes
        places = np.arange(len(batch.keys))
        cut = np.full(size, -1)
        np.maximum.at(cut, batch.keys[deletes], places[deletes])
        for values in (counts, sums, last):
            values[cut >= 0] = 0
        counted = ~deletes & (places > cut[batch.keys])
        keys, amounts = batch.keys[counted], batch.amounts[counted]
        np.add.at(counts, keys, 1)
        np.add.at(sums, keys, amounts)
        seconds = amounts if batch.deletes is not None else np.zeros_like(amounts)
        np.maximum.at(last, keys, seconds)
        self.counts, self.sums, self.last = counts, sums, last

    def state(self, numbers: np.ndarray | None = None) -> State:
        """Returns the live ones of some keys, or of all keys, ordered by key."""
        numbers = np.arange(len(self.counts)) if numbers is None else numbers
        numbers = numbers[self.counts[numbers] > 0]
        texts = np.array([key_text(n) for n in numbers.tolist()])
        order = np.argsort(texts)
        numbers = numbers[order]
        at = (START_MS + self.last[numbers] * 1000) * 1000
        return State(texts[order], self.counts[numbers], self.sums[numbers], at)


def expected_state(batches: Iterable[Updates]) -> State:
    """The state after all batches, in order."""
    totals = Totals()
    for batch in batches:
        totals.apply(batch)
    return totals.state()
