"""What `schedule=` may be: times, assets and unread records; and minimum pauses of seconds."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.airflow import AirflowPipeline
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import DeclarationError

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("airflow_home")]
Make = Callable[..., Any]


def trips() -> Pipeline:
    from tests.airflow.pipelines.trips import trips

    return trips


@pytest.fixture
def make() -> Make:
    """`make(timedelta(seconds=30))`: the DAG of the trips with a schedule and further options."""

    def create(schedule: Any, **options: Any) -> Any:
        from tidemark.airflow import checkpoint_dag

        return checkpoint_dag(trips(), schedule=schedule, **options)

    return create


def intervals(dag: Any, start: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    """The data intervals that a backfill of this range would have."""
    import pendulum
    from airflow.serialization.encoders import coerce_to_core_timetable
    from airflow.timetables.base import TimeRestriction

    timetable, found = coerce_to_core_timetable(dag.timetable), []
    restriction = TimeRestriction(earliest=pendulum.instance(start), latest=pendulum.instance(end), catchup=True)
    info = timetable.next_dagrun_info(last_automated_data_interval=None, restriction=restriction)
    while info is not None and info.data_interval.end <= end:
        found.append((info.data_interval.start, info.data_interval.end))
        info = timetable.next_dagrun_info(last_automated_data_interval=info.data_interval, restriction=restriction)
    return found


NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("schedule", [timedelta(seconds=30), "* * * * * */30"])
def test_half_a_minute_is_a_schedule_with_data_intervals(make: Make, schedule: Any) -> None:
    dag = make(schedule, start=NOON, until="interval_end")
    found = intervals(dag, NOON, NOON + timedelta(minutes=2))
    times = [NOON + timedelta(seconds=30 * n) for n in range(5)]
    assert found == list(zip(times, times[1:], strict=False))


def test_a_timedelta_without_a_start_begins_now(make: Make) -> None:
    from airflow.serialization.encoders import coerce_to_core_timetable
    from airflow.timetables.base import TimeRestriction

    timetable = coerce_to_core_timetable(make(timedelta(seconds=30)).timetable)
    restriction = TimeRestriction(earliest=None, latest=None, catchup=False)
    info = timetable.next_dagrun_info(last_automated_data_interval=None, restriction=restriction)
    assert info is not None
    interval = info.data_interval
    assert interval.end - interval.start == timedelta(seconds=30)
    assert abs(datetime.now(UTC) - interval.end) < timedelta(minutes=1)
    assert interval.end.timestamp() % 30 == 0, "the same grid for every process"


def test_assets_start_a_run_with_airflows_own_words(make: Make) -> None:
    from airflow.sdk import Asset
    from airflow.sdk.definitions.asset import AssetAll, AssetAny

    from tidemark.airflow import checkpoints_of

    orders, prices = checkpoints_of("orders"), Asset("prices")
    assert orders.uri == "x-tidemark://orders/completed"
    assert make(orders).timetable.asset_condition == orders
    assert make([orders, prices]).timetable.asset_condition == AssetAll(orders, prices)
    assert make(orders & prices).timetable.asset_condition == AssetAll(orders, prices)
    dag = make(orders | prices)
    assert dag.timetable.asset_condition == AssetAny(orders, prices)
    assert "| runs | after events of `orders/completed` or `prices` |" in dag.doc_md
    both = make((orders | prices) & Asset("rates"))
    assert "after events of (`orders/completed` or `prices`) and `rates` |" in both.doc_md
    assert type(dag.timetable).__name__ == "AssetTriggeredTimetable", "one run for several events"


def test_every_asset_that_a_checkpoint_announces_is_either_usable_or_refused_with_the_one_to_take(make: Make) -> None:
    from tests.airflow.pipelines.parcels import parcels
    from tidemark.airflow.assets import assets_of, late_asset, retention_asset, savepoint_asset

    found = assets_of(parcels, "broker:1")
    assert make(found.completed) is not None
    for keyed in (
        found.checkpoint,
        *found.changed,
        savepoint_asset(parcels),
        retention_asset(parcels),
        late_asset(parcels),
    ):
        for schedule in (keyed, [found.completed, keyed], found.completed & keyed, found.completed | keyed):
            with pytest.raises(DeclarationError, match="have a partition key") as caught:
                make(schedule)
            assert caught.value.next == "write schedule=checkpoints_of('parcels'), from tidemark.airflow."


@pytest.mark.parametrize("schedule", ["orders", "lag"])
def test_until_the_intervals_end_needs_an_interval(make: Make, schedule: str) -> None:
    from tidemark.airflow import KafkaLag, checkpoints_of

    given = KafkaLag(min_records=1) if schedule == "lag" else checkpoints_of(schedule)
    with pytest.raises(DeclarationError, match="needs data intervals") as caught:
        make(given, until="interval_end")
    assert "omit until=" in caught.value.next
    with pytest.raises(DeclarationError, match="start= and end= bound data intervals"):
        make(given, end=NOON)


def test_a_schedule_that_is_none_is_refused(make: Make) -> None:
    from tidemark.airflow import checkpoints_of

    for given in (5, [], ["@daily"], timedelta(0), timedelta(milliseconds=500), [timedelta(hours=1)]):
        with pytest.raises(DeclarationError, match="schedule="):
            make(given)
    with pytest.raises(DeclarationError, match="would run after its own checkpoints"):
        make(checkpoints_of("trips") | checkpoints_of("orders"))
    assert make(None).timetable.__class__.__name__ == "NullTimetable"


def test_a_lag_is_one_poller_whose_arguments_are_names_and_numbers(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    from tidemark.airflow import KafkaLag

    monkeypatch.setenv("TIDEMARK_KAFKA_BOOTSTRAP", "broker:9093")
    monkeypatch.setenv("TIDEMARK_KAFKA_SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("TIDEMARK_KAFKA_SASL_MECHANISM", "PLAIN")
    monkeypatch.setenv("TIDEMARK_KAFKA_SASL_USERNAME", "ann")
    monkeypatch.setenv("TIDEMARK_KAFKA_SASL_PASSWORD", "hunter2")
    monkeypatch.setenv("TIDEMARK_SPARK", "sc://nowhere:1/;token=hunter2")
    lag = KafkaLag(min_records=1000, max_wait=timedelta(minutes=5))
    dag = make(lag)
    assert "| runs | as soon as 1000 unread records wait or one has waited for 0:05:00 |" in dag.doc_md
    (watcher,) = dag.timetable.asset_condition.watchers
    path, arguments = watcher.trigger.serialize()
    assert path == "tidemark.airflow.kafka_lag.KafkaLagTrigger"
    assert len(arguments.pop("inputs")) == 16
    names = {"pipeline": "trips", "dag_id": "trips"}
    assert arguments == {**names, "min_records": 1000, "max_wait_ms": 300_000, "poll_ms": 5000}
    serialized = json.dumps(DagSerialization.serialize_dag(dag), default=str)
    assert "hunter2" not in serialized
    assert serialized == json.dumps(DagSerialization.serialize_dag(make(lag)), default=str), (
        "a parse makes no new version"
    )


def test_a_change_of_what_is_read_makes_another_poller() -> None:
    from tidemark import KafkaSource
    from tidemark.airflow.kafka_lag import checksum_inputs
    from tidemark.model.core.offsets import TopicPartition

    source = trips().inputs["records"]
    places = [TopicPartition("trips", n) for n in range(20)]
    found = [
        checksum_inputs(replace(trips(), source=replace(source, **change)))
        for change in (
            {}, {"topics": "other"}, {"topics": frozenset(places)}, {"start": "latest"},
            {"start": datetime(2024, 1, 1, tzinfo=UTC)}, {"start": dict.fromkeys(places, 3)},
        )
    ]  # fmt: skip
    assert len(set(found)) == 6
    assert checksum_inputs(replace(trips(), max_records=5)) == found[0]
    assert isinstance(source, KafkaSource)


def test_a_lag_that_starts_nothing_is_refused() -> None:
    from tidemark.airflow import KafkaLag

    for given in ({}, {"min_records": 0}, {"max_wait": timedelta(0)}, {"min_records": 1, "poll": timedelta(0)}):
        with pytest.raises(DeclarationError, match="KafkaLag"):
            KafkaLag(**given)


PAUSED = """
from dataclasses import replace
from datetime import timedelta

from tests.airflow.pipelines import trips as declared

trips = replace(declared.trips, min_pause=timedelta({pause}))
"""


@pytest.fixture
def pausing(world: AirflowPipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """`pausing("seconds=5")`: the trips with this minimum pause, in a folder of pipelines of their own."""

    def declare(pause: str) -> None:
        folder = tmp_path / f"pipelines_{''.join(filter(str.isalnum, pause))}"
        folder.mkdir()
        (folder / "paused.py").write_text(PAUSED.format(pause=pause))
        monkeypatch.setenv("TIDEMARK_PIPELINES", str(folder))

    return declare


@pytest.mark.parametrize(("pause", "seconds"), [("milliseconds=500", 0.5), ("seconds=3", 3.0)])
def test_a_short_minimum_pause_is_waited_for_in_the_task(
    world: AirflowPipeline, pausing: Any, dag_run: Any, pause: str, seconds: float
) -> None:
    pausing(pause)
    for _ in range(3):
        world.drive("a", 1)
        run = dag_run(day=None)
        assert run.state == "success"
        assert {ti.task_id: ti.try_number for ti in run.get_task_instances()}["plan"] == 1, "no retry is used up"
    made = world.checkpoints()
    assert len(made) == 3
    coordinator = world.open_context().coordinator("trips")
    for before, after in zip(made, made[1:], strict=False):
        sealed = coordinator.objects.outcome(before.plan.slot, before.sealed.attempt)
        assert sealed is not None
        assert after.plan.planned_at_ms - sealed.at_ms >= 1000 * seconds


def test_a_long_minimum_pause_gives_the_worker_slot_back(world: AirflowPipeline, pausing: Any) -> None:
    from types import SimpleNamespace

    from airflow.sdk.exceptions import AirflowRescheduleException

    from tidemark.airflow.checkpoint_tasks import WAIT_HERE, PlanOperator
    from tidemark.operations import checkpoints
    from tidemark.ports import PlanRequest

    pausing("hours=1")
    opened = world.open_context()
    world.drive("a", 1)
    checkpoints.make_checkpoints(opened, "trips", PlanRequest(origin="first"))
    task: Any = SimpleNamespace(pipeline="trips", log=SimpleNamespace(info=lambda *parts: None))
    with pytest.raises(AirflowRescheduleException) as caught:
        PlanOperator._plan(task, opened, PlanRequest(origin="second"))
    wait = caught.value.reschedule_date - datetime.now(UTC)
    assert WAIT_HERE < timedelta(minutes=59) < wait <= timedelta(hours=1)


def test_the_examples_of_the_page_run(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs/how-to/choose-a-schedule.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    module = ModuleType("example")  # annotations of a dataclass are looked up in its module
    monkeypatch.setitem(sys.modules, "example", module)
    for block in blocks:
        exec(compile(block, "choose-a-schedule.md", "exec"), vars(module))  # noqa: S102
    assert len(blocks) == 4


def test_the_options_of_the_page_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs/how-to/schedule-with-airflow.md").read_text()
    block = page.partition("## Pass options to Airflow\n\n```python\n")[2].partition("```")[0]
    module: dict[str, Any] = {}
    exec(compile(block, "schedule-with-airflow.md", "exec"), module)  # noqa: S102
    dag = module["dag"]
    assert ({"tidemark", "flights", "team-lake"}, 2) == (set(dag.tags), dag.max_active_tasks)
    assert {(task.owner, task.queue, task.pool) for task in dag.tasks} == {("ann", "lake", "lake")}
    assert dag.on_failure_callback[-1] is module["call_ann"]
