"""The pipelines that `benchmarks.airflow_latency` times: one fold, without a gate and with one."""

from typing import Any

from benchmarks.pipelines import Totals, Update
from tidemark import Fold, KafkaSource, Pipeline


def expectations() -> dict[str, Any]:
    """Expectations like those of the flights pipeline: two on the records and one on the changed state."""
    import great_expectations.expectations as gxe

    return {
        "records": [
            gxe.ExpectColumnValuesToBeBetween(column="amount", min_value=0),
            gxe.ExpectColumnValuesToNotBeNull(column="key"),
        ],
        "changes": {"totals": [gxe.ExpectColumnValuesToNotBeNull(column="key")]},
    }


timed = Pipeline(
    name="timed",
    source=KafkaSource("timed", Update, event_time="at"),
    operators=[Fold("totals", key_by="key", state=Totals)],
)
gated = Pipeline(
    name="gated",
    source=KafkaSource("gated", Update, event_time="at"),
    operators=[Fold("totals", key_by="key", state=Totals)],
    gate=expectations,
)
