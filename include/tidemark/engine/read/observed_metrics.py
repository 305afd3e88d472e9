"""Metrics of an action: aggregates over passing rows (Spark's `observe`), under a name."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql.connect.dataframe import DataFrame as ConnectDataFrame


class Observed:
    """The metrics of one action.

    A task that runs twice may report twice, and a Connect server of Spark 4.1 waits 100 ms for observed metrics, then
    answers without them (SPARK-54279). Callers need a fallback or a check.
    """

    def __init__(self) -> None:
        self._observations: dict[str, Observation] = {}
        self._told: dict[str, Mapping[str, Any]] = {}

    def on(self, rows: DataFrame, name: str, *aggregates: Column) -> DataFrame:
        """Returns the same rows, which report the aggregates as they pass by.

        Args:
            rows: any frame.
            name: name of these aggregates; once per action.
            aggregates: with aliases.
        """
        if isinstance(rows, ConnectDataFrame):
            # An `Observation` would ask the server whether this is a stream, which analyses the whole plan once more.
            told: DataFrame = rows.observe(name, *aggregates)
            return told
        self._observations[name] = Observation(name)
        return rows.observe(self._observations[name], *aggregates)

    def over(self, done: DataFrame) -> None:
        """Marks the action on this frame as complete; call it before `of`."""
        if isinstance(done, ConnectDataFrame):
            info = done.executionInfo
            self._told = {} if info is None else dict(info.flows)
        else:
            self._told = {name: observation.get for name, observation in self._observations.items()}

    def of(self, name: str) -> Mapping[str, Any]:
        """Returns values by alias; empty if none were reported."""
        # A server that stopped waiting may still return the name without values.
        return self._told.get(name, {})
