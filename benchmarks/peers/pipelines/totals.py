"""One pipeline per topic of the comparison: count, sum and maximum per key, with deletes."""

from datetime import datetime

from benchmarks.peers.places import TOPICS, topic_of
from benchmarks.pipelines import Update
from tidemark import Fold, KafkaSource, Pipeline, state


class Changed(state.Keyed):
    """The totals kept per key."""

    updates: int = state.count()
    amount: int = state.sum("amount")
    last_at: datetime | None = state.max("at")


def _pipeline(name: str) -> Pipeline:
    return Pipeline(
        name=name,
        source=KafkaSource(name, Update, event_time="at"),
        operators=[Fold("totals", key_by="key", state=Changed, deletes=True)],
    )


EVERY = [_pipeline(topic_of(n)) for n in range(TOPICS)]
globals().update({f"totals_{n}": pipeline for n, pipeline in enumerate(EVERY)})
