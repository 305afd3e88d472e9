"""The transform DAG: its shape, and runs of it by `dag.test()`; store, tables and verbs are the real ones."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.airflow.conftest import LogText, load_dag
from tests.airflow.test_dag_runs import states
from tests.support.airflow_disk import AirflowDiskPipeline
from tidemark.errors import DeclarationError
from tidemark.operations import reads, savepoints
from tidemark.readers.checkpoint_reader import read_checkpoint

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]


@pytest.fixture
def asked(airflow_home: object) -> Callable[..., Any]:
    """A run with a conf; of a DAG of its own, because `dag.test()` keeps a conf as the DAG's defaults."""
    return lambda **conf: load_dag("transform").test(run_conf={"pipeline": "trips", "source": "chk-1", **conf})


def test_a_transform_is_a_form_and_two_tasks(airflow_home: object) -> None:
    from tidemark.airflow import transform_dag

    dag = load_dag("transform")
    assert {t.task_id: sorted(t.downstream_task_ids) for t in dag.tasks} == {"plan": ["transform"], "transform": []}
    assert (dag.timetable.can_be_scheduled, dag.max_active_runs) == (False, 1)
    assert dag.params["execute"] is False, "a dry run, unless it is asked for"
    with pytest.raises(DeclarationError, match="without pipelines"):
        transform_dag([])


def test_a_run_tells_its_plan_and_transforms_only_where_it_is_asked_to(
    two_days: AirflowDiskPipeline, asked: Callable[..., Any], log_text: LogText
) -> None:
    renamed = "buses=SELECT * REPLACE (if(bus = 'a', 'line a', bus) AS bus) FROM buses"
    conf = {"fork": "lines", "queries": [renamed], "key_groups": 4, "note": "names", "expires": "2100-01-31T00:00Z"}
    assert states(asked(**conf)) == {"plan": "success", "transform": "skipped"}
    assert "buses: before 2, after 2, inserted 1, changed 0, deleted 1, unchanged 1" in log_text()
    context = two_days.open_context()
    assert savepoints.open_savepoints(context, "trips").find("lines") is None
    for _ in range(2):
        assert states(asked(**conf, execute=True)) == {"plan": "success", "transform": "success"}, "done once"
        assert "tidemark state diff trips buses --from chk-1 --to chk-3 --values" in log_text()
    made = savepoints.open_savepoints(context, "trips").get("lines")
    assert (made.checkpoint, made.timeline, made.owner, made.note) == (3, "lines", "dag_test", "names")
    assert made.expires_at_ms == 4_105_036_800_000
    found = reads.get_checkpoint(context, "trips", 3)
    rows = read_checkpoint(str(context.settings.warehouse), found, "buses").to_pylist()
    assert {r["bus"] for r in rows} == {"line a", "b"}
    assert found.plan.schemas["buses"].key_groups == 4
    for wrong, words in (
        ({"fork": "other"}, "nothing to transform"),
        ({"fork": "other", "queries": ["buses"]}, "UID=SQL"),
        ({"fork": "other", "queries": ["buses=SELECT * REPLACE (NULL AS bus) FROM buses"]}, "2 x bus is null"),
        ({**conf, "key_groups": 8}, "savepoint lines exists already"),
    ):
        assert states(asked(**wrong)) == {"plan": "failed", "transform": "upstream_failed"}
        assert words in log_text()
