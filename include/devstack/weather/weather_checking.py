"""Compares every row of the weather demo's checkpoints with the oracle, which imports nothing from Tidemark."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from devstack.demo.oracle import differences
from devstack.weather.weather_oracle import KEYS, WeatherOracle, by_key
from tidemark.context import Context
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.operations import reads, sinks

PIPELINE, SINK = "weather", "cancellations"


@dataclass(kw_only=True)
class WeatherChecker:
    """Compares checkpoints with the data set.

    Attributes:
        context: the context for reading the state.
        say: called with a line per table.
        oracle: recomputes the tables.
    """

    context: Context
    say: Callable[[str], None]
    oracle: WeatherOracle = field(default_factory=WeatherOracle)

    def check(self, checkpoint: Checkpoint, cut: datetime) -> list[str]:
        """Compares all rows of one checkpoint: the state of every fold, and the sink. Returns the differences.

        Args:
            checkpoint: a checkpoint that is not released.
            cut: the end of its interval; the flights before it count.
        """
        name, wrong = checkpoint.plan.name, list[str]()
        for table in KEYS:
            expected = by_key(table, self.oracle.expected(table, cut))
            differing = differences(expected, by_key(table, self._rows(table, checkpoint)))
            verdict = f"{len(differing)} differences" if differing else f"all {len(expected):,} rows agree"
            self.say(f"{name} (flights before {cut:%Y-%m-%d %H:%M} UTC), {table}: {verdict}")
            wrong += [f"{name} {table} {line}" for line in differing]
        return wrong

    def _rows(self, table: str, checkpoint: Checkpoint) -> list[dict[str, Any]]:
        if table == SINK:
            return list(sinks.read_sink(self.context, PIPELINE, SINK, checkpoint=checkpoint.id).to_pylist())
        return list(reads.read_state(self.context, PIPELINE, table, checkpoint=checkpoint.id).to_pylist())
