"""The second part of the weather demo: windows, timers and a join of event time over the four quarters of a year."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from devstack.demo.checking import MismatchError, interval_of
from devstack.demo.dag_runs import Dag
from devstack.demo.native import Backfill
from devstack.demo.summary import lines_of
from devstack.weather.punctuality_oracle import PunctualityOracle
from devstack.weather.weather_story import QUARTERS
from tidemark.cli.airflow_api import AirflowApi
from tidemark.cli.output import note
from tidemark.context import Context
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.operations import sinks

PIPELINE = "punctuality"
SINKS = ("hourly_departures", "missing_aircraft", "flights_in_weather")


@dataclass(kw_only=True)
class PunctualityStory:
    """Four DAG runs, and the rows of three sinks after each.

    Attributes:
        api: a session of Airflow's REST API.
        context: the context for reading the store.
        dead: returns a service that has ended, or None.
    """

    api: AirflowApi
    context: Context
    dead: Callable[[], str | None]

    def run(self) -> None:
        """Makes the checkpoints that are missing.

        Raises:
            TidemarkError: a DAG run failed.
        """
        Dag(api=self.api, id=PIPELINE).pause(False)
        runs = len(QUARTERS)
        native = Backfill(
            api=self.api, dag=PIPELINE, first=QUARTERS[0], last=QUARTERS[-1], runs=runs, dead=self.dead, said=set()
        )
        if native.done(native.dag_runs()) == native.runs:
            note(f"all {runs} DAG runs have already succeeded")
        else:
            native.wait(native.start())

    def check(self) -> None:
        """Compares all rows of the checkpoints.

        Raises:
            MismatchError: rows differ; the message lists some.
        """
        checker, wrong = PunctualityChecker(context=self.context, say=note), list[str]()
        for checkpoint in lines_of(self.context, PIPELINE)[-1].checkpoints:
            wrong += checker.check(checkpoint, interval_of(checkpoint)[1])
        if wrong:
            raise MismatchError(
                "\n".join([*wrong, "the sinks differ from the data set"]),
                safe="the comparison changed nothing.",
                next="this is a bug in Tidemark: report it, with the rows above.",
            )


@dataclass(kw_only=True)
class PunctualityChecker:
    """Compares checkpoints with the data set.

    Attributes:
        context: the context for reading the sinks.
        say: called with a line per sink.
        oracle: recomputes the rows.
    """

    context: Context
    say: Callable[[str], None]
    oracle: PunctualityOracle = field(default_factory=PunctualityOracle)

    def check(self, checkpoint: Checkpoint, cut: datetime) -> list[str]:
        """Compares all rows of one checkpoint. Returns the differences.

        Args:
            checkpoint: a checkpoint that is not released.
            cut: the end of its interval.
        """
        wrong = list[str]()
        for sink in SINKS:
            expected = self.oracle.expected(sink, cut)
            names = sorted(expected[0]) if expected else []
            rows = sinks.read_sink(self.context, PIPELINE, sink, checkpoint=checkpoint.id).to_pylist()
            wanted, found = (Counter(_text(row, names) for row in of) for of in (expected, rows))
            missing, more = wanted - found, found - wanted
            differing = [f"missing {text}" for text in missing] + [f"should not be there: {text}" for text in more]
            verdict = f"{len(differing)} differences" if differing else f"all {len(expected):,} rows agree"
            self.say(f"{checkpoint.plan.name} (before {cut:%Y-%m-%d %H:%M} UTC), {sink}: {verdict}")
            wrong += [f"{checkpoint.plan.name} {sink} {line}" for line in differing[:10]]
        return wrong


def _text(row: Mapping[str, Any], names: list[str]) -> str:
    return ", ".join(f"{name} {row[name]}" for name in names)
