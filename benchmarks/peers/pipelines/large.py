"""Pipelines of `benchmarks.large_batches` over one topic: a fold, and three folds and a process."""

from benchmarks.pipelines import Remembered, Totals, Update, remember
from tidemark import Fold, KafkaSource, Pipeline, Process, state


class Extremes(state.Keyed):
    """The least and the greatest amount of a second."""

    least: int | None = state.min("amount")
    greatest: int | None = state.max("amount")


class Means(state.Keyed):
    """The mean amount of a first letter."""

    mean: float | None = state.mean("amount")


SOURCE = KafkaSource("large", Update, event_time="at")
fold = Pipeline(name="large-fold", source=SOURCE, operators=[Fold("totals", key_by="key", state=Totals)])
many = Pipeline(
    name="large-many",
    source=SOURCE,
    operators=[
        Fold("totals", key_by="key", state=Totals),
        Fold("extremes", key_by="at", state=Extremes),
        Fold("means", key_by={"prefix": "substr(key, 1, 2)"}, state=Means),
        Process("remembered", key_by="key", state=Remembered, function=remember),
    ],
)
