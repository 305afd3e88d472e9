"""Metrics, spans and lineage events of real task processes, at real receivers; and the watch DAG by the scheduler."""

import json
from typing import Any

import pytest

from devstack.demo.topic_loader import TopicLoader
from tests.e2e.conftest import Stack, Watchers
from tests.e2e.test_scheduler import TRIPS, finished, more, triggered, unpause
from tests.support.openlineage import complaints
from tidemark.context import open_context
from tidemark.model.checkpoint.metrics import METRICS
from tidemark.operations import reads

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.filterwarnings("default"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def watched(stack: Stack) -> Stack:
    """At least one checkpoint was made by a DAG run."""
    if any(reads.list_checkpoints(open_context(stack.settings), "trips")):
        more(stack, TRIPS[:1])
    else:
        TopicLoader(stack.settings.kafka_address, "trips", partitions=2).load(TRIPS)
    unpause(stack)
    assert triggered(stack, "watched", {}) == "success"
    return stack


def newest(stack: Stack) -> Any:
    return reads.get_checkpoint(open_context(stack.settings), "trips")


def test_every_gauge_arrives_at_statsd(watched: Stack, watchers: Watchers) -> None:
    found = watchers.statsd.settled()
    assert {name for name in found if name.startswith("tidemark.trips.")} == {f"tidemark.trips.{n}" for n in METRICS}
    assert found["tidemark.trips.lastCompletedCheckpointId"] == newest(watched).id
    assert found["tidemark.trips.numberOfInProgressCheckpoints"] == 0


def test_every_gauge_goes_through_airflow_to_opentelemetry(watched: Stack, watchers: Watchers) -> None:
    found = watchers.collector.gauges
    assert {name.lower() for name in METRICS} <= {name.removeprefix("airflow.tidemark.trips.") for name in found}
    tags, told = found["airflow.tidemark.trips.lastcompletedcheckpointid"]
    assert (tags["pipeline"], told) == ("trips", newest(watched).id)


def told(span: Any) -> tuple[str, int | None]:
    """Pipeline and id of a checkpoint's span; one that failed has no id."""
    found = {a.key: a.value for a in span.attributes}
    return found["pipeline"].string_value, found["checkpointId"].int_value if "checkpointId" in found else None


def test_an_attempt_is_a_span_below_that_of_its_task(watched: Stack, watchers: Watchers) -> None:
    spans = {span.span_id: span for span in watchers.collector.spans}
    (made,) = (
        span for span in spans.values() if span.name == "Checkpoint" and told(span) == ("trips", newest(watched).id)
    )
    above = [made]
    while above[-1].parent_span_id in spans:
        above.append(spans[above[-1].parent_span_id])
    assert any("fold" in span.name for span in above), [span.name for span in above]
    steps = {span.name for span in spans.values() if span.parent_span_id == made.span_id}
    assert steps == set(newest(watched).sealed.timings_ms)


def test_lineage_events_keep_to_the_specification_and_name_the_dag_run(watched: Stack, watchers: Watchers) -> None:
    events = [json.loads(line) for line in watchers.lineage.read_text().splitlines()]
    assert [c for event in events for c in complaints(event)] == []
    facets = [(e["eventType"], e["run"]["facets"]["tidemark_checkpoint"]) for e in events]
    assert [kind for kind, facet in facets if facet["origin"] == "watched"][-1] == "COMPLETE"


def test_the_watch_finds_the_pipeline_on_time(watched: Stack) -> None:
    watched.api.patch("dags/watch", {"is_paused": False})
    watched.api.post("dags/watch/dagRuns", {"dag_run_id": "look", "logical_date": None})
    assert finished(watched, "watch", "look")["state"] == "success"
    log = "\n".join(watched.api.log_tail("watch", "look", "look", 1, map_index=0))
    assert "late: False" in log
    assert "deadline: 7000 days, 0:00:00" in log
