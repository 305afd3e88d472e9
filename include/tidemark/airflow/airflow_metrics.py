"""Sends metrics through Airflow's own hooks: to StatsD, Datadog or OpenTelemetry, as Airflow is configured.

Metrics decide nothing, and cannot fail or delay a task (`tidemark.telemetry.bounded`).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow.sdk.configuration import conf

if TYPE_CHECKING:
    from tidemark.context import Context as TidemarkContext
    from tidemark.ports.observing import Metrics

_SWITCHES = ("statsd_on", "statsd_datadog_enabled", "otel_on")


class AirflowMetrics:
    """See `ports.observing.Metrics`: gauges `tidemark.<pipeline>.<name>` with the tag `pipeline`.

    Airflow's `[metrics]` section says where they go. Plain StatsD has no tags, so the name includes the pipeline too.
    """

    def tell(self, pipeline: str, gauges: Mapping[str, float]) -> None:
        """See `ports.observing.Metrics`. The first call in a process connects, as Airflow is configured."""
        from airflow.sdk.observability import stats

        from tidemark.telemetry.statsd import gauge_name

        for name, value in gauges.items():
            stats.gauge(f"tidemark.{gauge_name(pipeline, name)}", value, tags={"pipeline": pipeline})


def observe(opened: "TidemarkContext", pipeline: str) -> None:
    """Sends a pipeline's metrics; every task and callback that changes the pipeline calls it."""
    from tidemark.operations import observability

    observability.report_metrics(opened, pipeline, *airflow_metrics())


def airflow_metrics() -> "list[Metrics]":
    """Returns Airflow's metrics if any of its switches is on; otherwise nothing is measured."""
    on = any(conf.getboolean("metrics", switch, fallback=False) for switch in _SWITCHES)
    return [AirflowMetrics()] if on else []
