"""Metrics and spans of real DAG runs, at real receivers: StatsD over UDP, OpenTelemetry over HTTP."""

import atexit
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.conftest import load_dag
from tests.airflow.test_dag_runs import broken, states
from tests.observing.conftest import statsd  # noqa: F401  (a fixture)
from tests.support.airflow import AirflowPipeline
from tests.support.openlineage import complaints
from tests.support.opentelemetry import Collector
from tests.support.statsd import Statsd
from tidemark.errors import EngineError, GateFailedError, TidemarkError
from tidemark.model.checkpoint.manifest import Verdict
from tidemark.model.checkpoint.metrics import METRICS
from tidemark.operations import checkpoints
from tidemark.ports import PlanRequest

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]
DagRun = Callable[..., Any]
REQUEST = PlanRequest(origin="test")


def of_trips(found: dict[str, float]) -> dict[str, float]:
    return {name.removeprefix("tidemark.trips."): value for name, value in found.items()}


def test_a_dag_run_tells_statsd_what_it_came_to(
    world: AirflowPipeline,
    dag_run: DagRun,
    statsd: Statsd,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIDEMARK_STATSD", statsd.address)
    world.drive("a", 3)
    world.drive(None, 3)
    assert dag_run(day=1).state == "success"
    found = of_trips(statsd.settled())
    assert set(found) == set(METRICS)
    (made,) = world.checkpoints()
    assert found["lastCompletedCheckpointId"] == made.id
    assert found["numberOfCompletedCheckpoints"] == found["totalNumberOfCheckpoints"] == 1
    assert (found["lastCheckpointRecords"], found["lastCheckpointDeadLetters"]) == (2, 1)
    assert "tidemark.trips.numberOfInProgressCheckpoints:1|g" in statsd.lines, "told when it was planned"
    assert found["numberOfInProgressCheckpoints"] == 0, "and when it was completed"


def test_failures_and_restarts_are_told_by_the_callback_of_the_task(
    world: AirflowPipeline,
    dag_run: DagRun,
    statsd: Statsd,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIDEMARK_STATSD", statsd.address)
    world.drive("a", 3)
    world.accidents = [("read", broken(EngineError)) for _ in range(3)]
    assert dag_run(day=1).state == "failed"
    found = of_trips(statsd.settled())
    assert (found["numberOfFailedCheckpoints"], found["numRestarts"], found["failuresInRow"]) == (1, 2, 1)
    assert found["lastCompletedCheckpointId"] == -1


def test_a_restore_is_told_by_its_task(
    world: AirflowPipeline,
    statsd: Statsd,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for _ in range(2):
        world.drive("a", 3)
        checkpoints.run_once(world.open_context(), "trips", PlanRequest(origin="test"))
    monkeypatch.setenv("TIDEMARK_STATSD", statsd.address)
    run = load_dag("restore").test(run_conf={"pipeline": "trips", "checkpoint": "chk-1", "execute": True})
    assert run.state == "success"
    told = of_trips(statsd.settled())
    assert told["lastCheckpointRestoreTimestamp"] > 1_600_000_000_000
    assert (told["lastCompletedCheckpointId"], told["numberOfCompletedCheckpoints"]) == (1, 2)


def test_a_server_that_is_not_there_changes_nothing(
    world: AirflowPipeline, dag_run: DagRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_STATSD", "nowhere.invalid:8125")
    monkeypatch.setenv("TIDEMARK_OPENLINEAGE", "http://127.0.0.1:1")
    world.drive("a", 3)
    run = dag_run(day=1)
    assert states(run) == dict.fromkeys(("plan", "fold", "validate", "complete"), "success")


def test_a_dag_run_announces_its_attempts(
    world: AirflowPipeline, dag_run: DagRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_OPENLINEAGE", f"file:{tmp_path}/lineage.jsonl")
    world.drive("a", 3)
    world.accidents = [("read", broken(EngineError))]
    run = dag_run(day=1)
    assert run.state == "success"
    events = [json.loads(line) for line in (tmp_path / "lineage.jsonl").read_text().splitlines()]
    assert [e["eventType"] for e in events] == ["START", "FAIL", "START", "COMPLETE"]
    assert [c for e in events for c in complaints(e)] == []
    assert {e["run"]["facets"]["tidemark_checkpoint"]["origin"] for e in events} == {run.run_id}
    assert {"nominalStartTime", "nominalEndTime"} <= events[-1]["run"]["facets"]["nominalTime"].keys()


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector of OpenTelemetry."""
    made = Collector()
    yield made
    made.close()


def test_gauges_go_through_airflows_metrics_to_opentelemetry(
    world: AirflowPipeline, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a task process does it: Airflow's own set-up of its metrics, then the operator's call."""
    monkeypatch.setenv("AIRFLOW__METRICS__OTEL_ON", "True")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.port}")
    from airflow.sdk._shared.observability.metrics.otel_logger import flush_otel_metrics
    from airflow.sdk.observability import stats
    from airflow.sdk.observability.metrics import stats_utils
    from opentelemetry import metrics

    from tidemark.airflow.airflow_metrics import observe

    stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=False)
    world.drive("a", 3)
    opened = world.open_context()
    checkpoints.run_once(opened, "trips", PlanRequest(origin="test"))
    observe(opened, "trips")
    metrics.get_meter_provider().force_flush()  # type: ignore[attr-defined]
    metrics.get_meter_provider().shutdown()  # type: ignore[attr-defined]
    atexit.unregister(flush_otel_metrics)
    monkeypatch.delenv("AIRFLOW__METRICS__OTEL_ON")
    stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=False)
    found = {name.removeprefix("airflow.tidemark.trips."): told for name, told in collector.gauges.items()}
    assert set(found) == {name.lower() for name in METRICS}, "OpenTelemetry's names have no upper case"
    assert found["lastcompletedcheckpointid"] == ({"pipeline": "trips"}, 1.0)
    assert found["lastcheckpointrestoretimestamp"] == ({"pipeline": "trips"}, -1.0)


def test_nothing_is_measured_where_airflow_has_no_metrics(world: AirflowPipeline) -> None:
    from tidemark.airflow.airflow_metrics import airflow_metrics

    assert airflow_metrics() == []


def attributes(span: Any) -> dict[str, Any]:
    return {a.key: a.value.string_value or a.value.int_value for a in span.attributes}


@pytest.fixture
def spans(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Any]]:
    """Traces are on; called, it gives the spans that have arrived, in the order in which they ended."""
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    provider = TracerProvider()
    exporter = OTLPSpanExporter(endpoint=f"http://127.0.0.1:{collector.port}/v1/traces")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    monkeypatch.setenv("AIRFLOW__TRACES__OTEL_ON", "True")

    def arrived() -> list[Any]:
        provider.shutdown()
        return collector.spans

    return arrived


def test_an_attempt_leaves_a_span_with_its_steps(world: AirflowPipeline, spans: Callable[[], list[Any]]) -> None:
    from tidemark.airflow.spans import attempts_traced

    world.drive("a", 3)
    opened = world.open_context()
    slot = checkpoints.plan(opened, "trips", REQUEST).slot
    assert slot is not None
    with attempts_traced(opened, "trips", slot) as sealed:
        sealed.append(checkpoints.fold(opened, "trips", slot, REQUEST).id)
    made = checkpoints.complete(opened, "trips", slot)
    (span,) = (span for span in spans() if span.name == "Checkpoint")
    told = attributes(span)
    assert (told["checkpointId"], told["checkpointStatus"]) == (made.id, "COMPLETED")
    assert told["externalPath"] == "trips/timelines/t1/000000000001.json"
    steps = [step for step in spans() if step.parent_span_id == span.span_id]
    assert {s.name for s in steps} == set(made.sealed.timings_ms)
    assert min(steps, key=lambda s: s.start_time_unix_nano).name == "read"
    assert min(s.start_time_unix_nano for s in steps) == span.start_time_unix_nano
    assert max(s.end_time_unix_nano for s in steps) == span.end_time_unix_nano
    for step in steps:
        assert step.end_time_unix_nano - step.start_time_unix_nano == made.sealed.timings_ms[step.name] * 1_000_000


def test_a_failed_attempt_leaves_a_span_with_its_checkpoint_its_number_and_its_reason(
    world: AirflowPipeline, spans: Callable[[], list[Any]]
) -> None:
    """Two tries of a plan that stays open, one that the gate ends, and one that another process has overtaken."""
    from tidemark.airflow.spans import attempts_traced

    opened = world.open_context()

    def fold(error: type[TidemarkError], slot: str | None) -> None:
        assert slot is not None
        with pytest.raises(error), attempts_traced(opened, "trips", slot):
            checkpoints.fold(opened, "trips", slot, REQUEST)

    world.drive("a", 3)
    checkpoints.run_once(opened, "trips", REQUEST)
    world.drive("canary-11", 3)
    slot = checkpoints.plan(opened, "trips", REQUEST).slot
    for _ in range(2):
        world.accidents = [("read", EngineError("key canary-11 is too large", next="mend it"))]
        fold(EngineError, slot)
    world.verdict = Verdict(passed=False)
    fold(GateFailedError, slot)
    world.verdict = Verdict()
    last = checkpoints.run_once(opened, "trips", REQUEST).checkpoint
    assert last is not None and slot is not None
    with pytest.raises(EngineError), attempts_traced(opened, "trips", slot):
        raise EngineError("canary-11", next="mend it")
    names = ("checkpointId", "timeline", "attempt", "checkpointStatus", "failureReason")
    told = [tuple(attributes(span).get(name) for name in names) for span in spans()]
    assert told == [
        (2, "t1", 1, "FAILED", "ENGINE_ERROR"),
        (2, "t1", 2, "FAILED", "ENGINE_ERROR"),
        (2, "t1", 3, "FAILED", "EXPECTATION_FAILED"),
        (2, "t1", None, "FAILED", "ENGINE_ERROR"),
    ]
    assert last.id == 3
    assert "canary-11" not in str(spans())
