"""What an action reports beside what it does: aggregates over rows that pass by (Spark's `observe`), under a name."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql.connect.dataframe import DataFrame as ConnectDataFrame


class Observed:
    """What one action reports.

    A task that runs twice may report twice, and a Connect server of Spark 4.1 waits 100 ms for what was observed, then
    answers without it (SPARK-54279): whoever asks has another way, or a check.
    """

    def __init__(self) -> None:
        self._observations: dict[str, Observation] = {}
        self._told: dict[str, Mapping[str, Any]] = {}

    def on(self, rows: DataFrame, name: str, *aggregates: Column) -> DataFrame:
        """The same rows, which tell the aggregates when they pass by.

        Args:
            rows: any frame.
            name: of these aggregates; once per action.
            aggregates: with aliases.
        """
        if isinstance(rows, ConnectDataFrame):
            # An `Observation` would ask the server whether this is a stream: all of the plan, analysed once more.
            told: DataFrame = rows.observe(name, *aggregates)
            return told
        self._observations[name] = Observation(name)
        return rows.observe(self._observations[name], *aggregates)

    def over(self, done: DataFrame) -> None:
        """The action on this frame is over, which has to be asked for before `of`."""
        if isinstance(done, ConnectDataFrame):
            info = done.executionInfo
            self._told = {} if info is None else dict(info.flows)
        else:
            self._told = {name: observation.get for name, observation in self._observations.items()}

    def of(self, name: str) -> Mapping[str, Any]:
        """Values by alias; empty where nothing was reported."""
        # A server that gave up waiting may still give the name, with nothing under it.
        return self._told.get(name, {})
