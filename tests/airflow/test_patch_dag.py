"""The patch DAG: its shape, and runs of it by `dag.test()`; the store, the tables and the verbs are the real ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
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
    return lambda **conf: load_dag("patch").test(run_conf={"pipeline": "trips", "source": "chk-1", **conf})


def test_a_patch_is_a_form_and_two_tasks(airflow_home: object) -> None:
    from tidemark.airflow import patch_dag

    dag = load_dag("patch")
    assert {t.task_id: sorted(t.downstream_task_ids) for t in dag.tasks} == {"plan": ["patch"], "patch": []}
    assert (dag.timetable.can_be_scheduled, dag.max_active_runs) == (False, 1)
    assert dag.params["execute"] is False, "a dry run, unless it is asked for"
    with pytest.raises(DeclarationError, match="without pipelines"):
        patch_dag([])


def test_a_run_tells_its_plan_and_patches_only_where_it_is_asked_to(
    two_days: AirflowDiskPipeline,
    asked: Callable[..., Any],
    log_text: LogText,
    tmp_path: Path,
) -> None:
    right, gone = tmp_path / "right.parquet", tmp_path / "gone.parquet"
    pq.write_table(pa.table({"bus": ["a", "c"], "trips": [9, 1], "miles": [90, 7]}), right)
    pq.write_table(pa.table({"bus": ["b"]}), gone)
    conf = {"name": "fixed", "set_tables": [f"buses={right}"], "delete_tables": [f"buses={gone}"], "note": "wrong"}
    assert states(asked(**conf)) == {"plan": "success", "patch": "skipped"}
    assert "buses: new 1, changed 1, equal 0, deleted 1, absent 0, rows 3" in log_text()
    context = two_days.open_context()
    assert savepoints.open_savepoints(context, "trips").find("fixed") is None
    for _ in range(2):
        assert states(asked(**conf, execute=True)) == {"plan": "success", "patch": "success"}, "twice, and done once"
        assert "tidemark state diff trips buses --from chk-1 --to chk-3 --values" in log_text()
    made = savepoints.open_savepoints(context, "trips").get("fixed")
    assert (made.checkpoint, made.timeline, made.owner, made.note) == (3, "fixed", "dag_test", "wrong")
    assert made.expires_at_ms is None
    rows = read_checkpoint(
        str(context.settings.warehouse), reads.get_checkpoint(context, "trips", 3), "buses"
    ).to_pylist()
    assert {r["bus"]: (r["trips"], r["miles"]) for r in rows} == {"a": (9, 90), "c": (1, 7)}
    for wrong, words in (
        ({"name": "other"}, "nothing to patch"),
        ({**conf, "name": "chk-1"}, "reads as a checkpoint id"),
        ({**conf, "set_tables": ["buses"]}, "UID=TABLE"),
        ({**conf, "name": "other", "timeline": "fixed"}, "timeline fixed exists already"),
    ):
        assert states(asked(**wrong)) == {"plan": "failed", "patch": "upstream_failed"}
        assert words in log_text()
