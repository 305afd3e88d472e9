"""The shape of the DAGs: tasks, assets, intervals, parameters, limits, and what a parse may cost."""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FunctionType
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tidemark import Retention
from tidemark.errors import DeclarationError, UsageError

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]
ROOT = Path(__file__).resolve().parents[2]
NEW_YORK = ZoneInfo("America/New_York")
HEAVY = (
    "pyspark", "great_expectations", "boto3", "deltalake", "duckdb", "openlineage", "pandas", "pyarrow",
    "confluent_kafka",
)  # fmt: skip
LATER = (
    "engine",
    "kafka.client",
    "kafka.connection",
    "storage",
    "tables",
    "readers",
    "transfer",
    "context",
    "operations",
    "web",
    "ports",
    "coordinator.records",
    "coordinator.plans",
    "coordinator.recovery",
)
"""Ours, and loaded by tasks only: they are half of what a parse could cost."""

PARSE_MODULES = 200
"""Beyond those of Airflow: a count, because times on a busy machine tell of the machine."""


@pytest.fixture
def bag(airflow_home: Path) -> Any:
    """The project's own DAG files."""
    from airflow.dag_processing.dagbag import DagBag

    found = DagBag(ROOT / "dags")
    assert found.import_errors == {}
    return found


@pytest.fixture
def flights(bag: Any) -> Any:
    return bag.dags["flights"]


def test_the_straight_line_is_the_graph(flights: Any) -> None:
    assert {t.task_id: sorted(t.downstream_task_ids) for t in flights.tasks} == {
        "plan": ["fold"],
        "fold": ["validate"],
        "validate": ["complete"],
        "complete": [],
    }
    assert {"tidemark", "flights"} == set(flights.tags)
    assert "`aircraft`" in flights.doc_md
    assert "`origin`, `destination`" in flights.doc_md


def test_assets_read_as_lineage(flights: Any) -> None:
    fold, complete = flights.get_task("fold"), flights.get_task("complete")
    uids = ("planes", "airlines", "aircraft", "routes", "rotations")
    states = {f"x-tidemark://flights/state/{uid}" for uid in uids}
    letters = {f"x-tidemark://flights/dead_letters/{uid}" for uid in uids}
    topics = [a.uri for a in fold.inlets if a.uri.startswith("kafka://")]
    assert [uri.rpartition("/")[2] for uri in topics] == ["flights", "planes", "airlines"]
    assert {a.uri for a in fold.inlets} == states | set(topics)
    assert {a.uri for a in fold.outlets} == states | letters | {"x-tidemark://flights/sinks/knock_on_delays"}
    assert {a.uri for a in complete.inlets} == states
    assert [a.uri for a in complete.outlets] == ["x-tidemark://flights/checkpoint", "x-tidemark://flights/completed"]


def test_a_topic_is_an_asset_of_the_task_that_sends(airflow_home: Path) -> None:
    from tests.process.test_sending import ticks
    from tidemark.airflow.assets import assets_of

    by_id, at_once = (assets_of(ticks(g), "broker:1") for g in ("exactly_once_by_id", "at_least_once"))
    assert ([a.uri for a in by_id.sent], by_id.sent_ahead) == (["kafka://broker:1/out"], ())
    assert (at_once.sent, [a.uri for a in at_once.sent_ahead]) == ((), ["kafka://broker:1/out"])


def test_one_run_at_a_time_and_none_for_the_past_unasked(flights: Any) -> None:
    assert flights.max_active_runs == 1
    assert flights.catchup is False
    assert flights.max_consecutive_failed_dag_runs == 0, "it counts runs; failed checkpoints are counted by the plugin"
    assert flights.get_task("plan").tolerable == 0
    assert flights.get_task("fold").attempt_timeout == 600_000
    assert flights.dagrun_timeout == timedelta(minutes=30)


def test_the_twelve_intervals_are_new_yorks_months(flights: Any) -> None:
    from airflow.serialization.encoders import coerce_to_core_timetable
    from airflow.timetables.base import TimeRestriction

    timetable = coerce_to_core_timetable(flights.timetable)
    restriction = TimeRestriction(earliest=flights.start_date, latest=flights.end_date, catchup=True)
    found, last = [], None
    while True:
        info = timetable.next_dagrun_info(last_automated_data_interval=last, restriction=restriction)
        if info is None:
            break
        last = info.data_interval
        found.append((last.start.astimezone(UTC), last.end.astimezone(UTC)))
    firsts = [datetime(2013, m, 1, tzinfo=NEW_YORK) for m in range(1, 13)] + [datetime(2014, 1, 1, tzinfo=NEW_YORK)]
    wanted = [when.astimezone(UTC) for when in firsts]
    assert found == list(zip(wanted, wanted[1:], strict=False))
    assert wanted[2].hour == 5, "winter time"
    assert wanted[3].hour == 4, "summer time, since 10 March"
    assert sum((end - start for start, end in found), timedelta()) == timedelta(days=365)


def test_unpausing_today_starts_nothing(flights: Any) -> None:
    from airflow.serialization.encoders import coerce_to_core_timetable
    from airflow.timetables.base import TimeRestriction

    restriction = TimeRestriction(earliest=flights.start_date, latest=flights.end_date, catchup=False)
    timetable = coerce_to_core_timetable(flights.timetable)
    assert timetable.next_dagrun_info(last_automated_data_interval=None, restriction=restriction) is None


def test_the_form_is_typed(flights: Any) -> None:
    asked = {"max_records": None, "until": None, "accept_loss": False, "allow_non_restored_state": False}
    asked |= {"savepoint": None, "restore_id": None}
    assert flights.params.dump() == asked
    assert flights.params.get_param("max_records").schema["minimum"] == 1
    assert flights.params.get_param("until").schema["format"] == "date-time"


def test_compaction_follows_checkpoints_and_holds_up_none(bag: Any) -> None:
    dag = bag.dags["flights_compact"]
    assert [t.task_id for t in dag.tasks] == ["compact"]
    assert dag.max_active_runs == 1
    assert dag.timetable.asset_condition.uri == "x-tidemark://flights/checkpoint"
    assert type(dag.timetable).__name__ == "PartitionedAssetTimetable", "others do not see events with a key"


def test_a_parse_gives_the_same_dag_each_time(bag: Any) -> None:
    from airflow.dag_processing.dagbag import DagBag
    from airflow.serialization.serialized_objects import DagSerialization

    again = DagBag(ROOT / "dags")
    for name in ("flights", "flights_compact"):
        one, two = (json.dumps(DagSerialization.serialize_dag(b.dags[name]), default=str) for b in (bag, again))
        assert one == two, "a varying DAG makes a new version at every parse"


@pytest.mark.parametrize(
    ("name", "retries", "backoff"),
    [("none", 0, 0), ("fixed-delay", 1, 0), ("exponential-delay", 10_000, 2.0), ("failure-rate", 1, 0)],
)
def test_flinks_restart_strategies_become_retries(airflow_home: Path, name: Any, retries: int, backoff: float) -> None:
    from tidemark.airflow.retries import restart_strategy, retry_arguments

    found = retry_arguments(restart_strategy(name))
    assert (found["retries"], found["retry_exponential_backoff"]) == (retries, backoff)


def test_a_conflict_is_retried_later_and_others_by_the_strategy(airflow_home: Path) -> None:
    from airflow.sdk import RetryAction

    from tidemark.airflow.retries import BUSY_DELAY, retry_arguments
    from tidemark.coordinator.checkpoints.restart import NoRestart
    from tidemark.errors import BusyError, EngineError

    policy = retry_arguments(NoRestart())["retry_policy"]
    busy = policy.evaluate(BusyError("held", next="wait"), 1, 3)
    assert (busy.action, busy.retry_delay) == (RetryAction.RETRY, BUSY_DELAY)
    assert policy.evaluate(EngineError("broke", next="mend"), 1, 3).action is RetryAction.DEFAULT


def test_options_that_do_not_fit_are_refused(airflow_home: Path) -> None:
    from tests.airflow.pipelines.trips import trips
    from tidemark.airflow import checkpoint_dag

    with pytest.raises(TypeError, match="shedule"):
        checkpoint_dag(trips, shedule="@daily")  # type: ignore[call-arg]
    with pytest.raises(DeclarationError, match="needs a schedule"):
        checkpoint_dag(trips, until="interval_end")
    with pytest.raises(DeclarationError, match="no restart strategy"):
        checkpoint_dag(trips, restart="sometimes")  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [5, "keep_last(10)", "", 0, Retention, Retention.keep_last, [Retention.keep_last(1)]])
def test_a_retention_that_is_none_is_refused_when_the_file_is_parsed(airflow_home: Path, given: Any) -> None:
    from tests.airflow.pipelines.trips import trips
    from tidemark.airflow import checkpoint_dag

    with pytest.raises(DeclarationError, match="retention=") as caught:
        checkpoint_dag(trips, retention=given)
    assert "Retention.keep_last(n)" in caught.value.next


def test_the_page_of_the_dag_states_the_retention(flights: Any) -> None:
    from tests.airflow.pipelines.trips import trips
    from tidemark.airflow import checkpoint_dag
    from tidemark.airflow.checkpoint_tasks import CompleteOperator

    assert "| checkpoints kept | the newest, and those of `keep_last(6)`; " in flights.doc_md
    assert "releases the others |" in flights.doc_md
    two = checkpoint_dag(trips, retention=Retention.keep_last(3) | Retention.monthly(12, timezone="America/New_York"))
    assert two.doc_md is not None
    assert "`keep_last(3)` or `monthly(12, timezone='America/New_York')`" in two.doc_md
    everything = checkpoint_dag(trips, retention=None)
    assert everything.doc_md is not None
    assert "| checkpoints kept | all |" in everything.doc_md
    complete = everything.get_task("complete")
    assert isinstance(complete, CompleteOperator)
    assert complete.retention is None


def test_conf_names_each_complaint(airflow_home: Path) -> None:
    from tidemark.airflow.trigger_form import parse_conf

    with pytest.raises(UsageError) as caught:
        parse_conf({"max_records": 0, "unti": "x"})
    assert "max_records" in caught.value.what
    assert "unti" in caught.value.what
    with pytest.raises(UsageError, match="until"):
        parse_conf({"until": "2013-02-01T00:00:00"})  # a time without a zone is ambiguous


PROBE = """
import airflow.sdk, json, os, sys
from airflow.sdk import DAG, Asset, BaseOperator, CronDataIntervalTimetable, ExceptionRetryPolicy, Param, chain
from airflow.sdk import PartitionedAssetTimetable
import runpy
paths, heavy = json.loads(sys.argv[1]), json.loads(sys.argv[2])
for path in paths:
    if os.fork():
        assert os.wait()[1] == 0, path
        continue
    before = set(sys.modules)
    runpy.run_path(path)
    loaded = len(set(sys.modules) - before)
    found = [m for m in sys.modules if m in heavy or m.startswith("tidemark.engine")]
    print(json.dumps({"path": path, "loaded": loaded, "heavy": found}), flush=True)
    os._exit(0)
"""
DAGS = sorted((ROOT / "dags").glob("*.py"))


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], dict[str, Any]]:
    """Parses every DAG file, each in a process that has imported Airflow and nothing else; by path."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW__", "TIDEMARK_"))}
    env |= {"AIRFLOW_HOME": str(tmp_path_factory.mktemp("parsed")), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    env |= {"TIDEMARK_ROOT": str(ROOT), "PYTHONPATH": str(ROOT / "include")}
    heavy = [*HEAVY, *(f"tidemark.{name}" for name in LATER)]
    command = [sys.executable, "-c", PROBE, json.dumps([str(path) for path in DAGS]), json.dumps(heavy)]

    def parse() -> dict[str, Any]:
        answer = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=240)
        told = [json.loads(line) for line in answer.stdout.splitlines() if line.startswith('{"path"')]
        return {one["path"]: one for one in told}

    return functools.cache(parse)


@pytest.mark.parametrize("path", DAGS, ids=lambda p: p.stem)
def test_a_parse_is_cheap_and_loads_nothing_heavy(path: Path, parsed: Any) -> None:
    found = parsed()[str(path)]
    print(found)
    assert found["heavy"] == []
    assert 0 < found["loaded"] <= PARSE_MODULES


def test_every_kind_of_dag_is_found_where_it_is_first_asked_for() -> None:
    import tidemark.airflow

    assert dir(tidemark.airflow) == tidemark.airflow.__all__ == sorted(tidemark.airflow._HOMES)
    for name in tidemark.airflow.__all__:
        kind = FunctionType if name.islower() else type  # restart strategies, and a schedule
        for _ in range(2):  # the first access imports its module
            assert isinstance(found := getattr(tidemark.airflow, name), kind) and found.__name__ == name
    with pytest.raises(AttributeError, match="restor_dag"):
        tidemark.airflow.restor_dag  # noqa: B018
