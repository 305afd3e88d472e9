"""A fold whose windows close, for tests that kill it: a small batch is folded as it is read, before they are known."""

import os
from dataclasses import dataclass
from datetime import datetime

from tidemark import DeltaSink, Fold, KafkaSource, Pipeline, Tumbling, state


@dataclass(frozen=True)
class Sale:
    """One record."""

    shop: str
    cents: int
    at: datetime


class Sales(state.Keyed):
    """Per shop and ten minutes."""

    n: int = state.count()
    cents: int | None = state.sum("cents")


closings = Pipeline(
    name="closings",
    source=KafkaSource(os.environ.get("SWEEP_TOPIC", "sales"), Sale, event_time="at"),
    operators=[Fold("sold", key_by="shop", state=Sales, window=Tumbling("10m"), sink=DeltaSink("sold"))],
)
