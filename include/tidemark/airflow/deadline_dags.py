"""`watch_dag()`: alerts you when a pipeline has completed no checkpoint for too long, whether its DAG runs or not.

Airflow's DeadlineAlert is attached to a DAG run: it fires when a run is slow, but not when no run starts because the
DAG is paused or its schedule is wrong. This DAG reads the warehouse instead, on a separate schedule.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from airflow.sdk import DAG, Asset, BaseOperator, Context, chain
from airflow.sdk.exceptions import AirflowFailException, AirflowRuntimeError

from tidemark.airflow.airflow_metrics import observe
from tidemark.airflow.assets import late_asset
from tidemark.airflow.checkpoint_tasks import Ids, announce, open_tidemark
from tidemark.airflow.dag_options import SharedOptions, shared_arguments
from tidemark.airflow.form_answers import fail_on_refusal, names_of
from tidemark.airflow.retries import retry_arguments
from tidemark.coordinator.checkpoints.restart import FixedDelay, NoRestart
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import DeclarationError, TidemarkError

if TYPE_CHECKING:
    from tidemark.answers.timeline_facts import DeadlineFacts
    from tidemark.context import Context as TidemarkContext
    from tidemark.model.checkpoint.metrics import DueRun

LOOK, LATE = "look", "late"
OnLate = Callable[[Mapping[str, object]], None]
"""Called at each check with the facts of a late pipeline; see `DeadlineFacts`."""


class LookOperator(BaseOperator):
    """Checks the age of the newest checkpoint; if it is late, sends metrics, an asset event and a notification.

    Args:
        pipeline: the pipeline's name; the task is mapped over the pipelines.
        dags: the ids of the DAGs that checkpoint the pipelines, by the pipeline's name.
        assets: each pipeline's asset for late checkpoints, by the pipeline's name; the outlets.
        on_late: a notifier; an error that it raises is logged and does not fail the task.
        **kwargs: passed to BaseOperator.
    """

    ui_color = "#e8f0fe"

    def __init__(
        self,
        *,
        pipeline: str,
        dags: dict[str, str],
        assets: dict[str, Asset],
        on_late: OnLate | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.dags = dags
        self.assets = assets
        self.on_late = on_late

    def execute(self, context: Context) -> Ids:
        """Returns the facts, late or not.

        Raises:
            AirflowFailException: there is no such pipeline.
            TidemarkError: the store did not answer; the task is retried.
        """
        from tidemark.model.checkpoint.codec import body_of

        opened = open_tidemark()
        with fail_on_refusal():
            facts: Ids = body_of(check_schedule(opened, self.pipeline, self.dags[self.pipeline]))
        observe(opened, self.pipeline)
        self.outlets = []
        self.log.info("%s", "\n".join(f"{name}: {value}" for name, value in facts.items()))
        if facts["late"]:
            self.outlets = [self.assets[self.pipeline]]
            announce(context, self.outlets, facts, [context["dag_run"].run_id])
            self._notify(facts)
        return facts

    def _notify(self, facts: Mapping[str, object]) -> None:
        if self.on_late is None:
            return
        try:
            self.on_late(facts)
        except Exception:
            self.log.exception("on_late failed; this log, the asset and the failed task still report it: %s", facts)


class LateOperator(BaseOperator):
    """Fails while a pipeline is late, so that Airflow shows it in red and runs its failure callbacks.

    Args:
        pipeline: the pipeline's name.
        dags: the ids of the DAGs that checkpoint the pipelines, by the pipeline's name.
        **kwargs: passed to BaseOperator.
    """

    ui_color = "#fce8e6"

    def __init__(self, *, pipeline: str, dags: dict[str, str], **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.dags = dags

    def execute(self, context: Context) -> None:
        """Succeeds if the pipeline is on time, is stopped, or has neither a deadline nor a schedule.

        Raises:
            AirflowFailException: the pipeline is late.
        """
        with fail_on_refusal():
            facts = check_schedule(open_tidemark(), self.pipeline, self.dags[self.pipeline])
        if facts.late:
            raise AirflowFailException(str(late_error(facts)))


def check_schedule(opened: "TidemarkContext", pipeline: str, dag_id: str) -> "DeadlineFacts":
    """Checks a pipeline against its deadline, or without one against the schedule of its DAG, as its verdict does.

    Args:
        opened: of this task.
        pipeline: its name.
        dag_id: of the DAG that checkpoints it.

    Raises:
        TidemarkError: there is no such pipeline, the store did not answer, or the file of the DAG cannot be read.
    """
    from tidemark.operations.observability import check_deadline
    from tidemark.web.health import expect_runs

    if opened.settings.deadline_ms(pipeline) is not None:
        return check_deadline(opened, pipeline)
    due_after = read_schedule(dag_id)
    return check_deadline(opened, pipeline, None if due_after is None else expect_runs(opened, pipeline, due_after))


def read_schedule(dag_id: str) -> "Callable[[int], DueRun | None] | None":
    """Reads from the file of a DAG, as a task reads its own, when its runs are due.

    A task has no access to Airflow's database, and the API for tasks does not have schedules.

    Args:
        dag_id: the DAG.

    Returns:
        The first run after a time; None if Airflow knows no such DAG, or if it is paused.

    Raises:
        TidemarkError: the file does not make the DAG.
    """
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import BundleDagBag
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
    from airflow.serialization.encoders import coerce_to_core_timetable

    from tidemark.airflow.run_times import RunTimes

    try:
        found = RuntimeTaskInstance.get_dag(dag_id)
    except AirflowRuntimeError as error:
        if (error.error.detail or {}).get("status_code") == HTTPStatus.NOT_FOUND:
            return None
        raise
    if found.is_paused or found.bundle_name is None or found.relative_fileloc is None:
        return None
    bundle = DagBundlesManager().get_bundle(found.bundle_name, found.bundle_version)
    bundle.initialize()
    file = Path(bundle.path, found.relative_fileloc)
    bag = BundleDagBag(
        str(file), safe_mode=False, load_op_links=False, bundle_path=bundle.path, bundle_name=found.bundle_name
    )
    dag = bag.dags.get(dag_id)
    if dag is None:
        raise TidemarkError(
            f"{file} does not make the DAG {dag_id}, so it is unknown when its runs are due",
            next="correct the file; `airflow dags list-import-errors` shows the reason.",
        )
    times = RunTimes(timetable=coerce_to_core_timetable(dag.timetable), begin=dag.start_date, end=dag.end_date)
    return partial(times.due_after, is_planned=found.next_dagrun is not None)


def late_error(facts: "DeadlineFacts") -> TidemarkError:
    """Returns the three-line error for a late pipeline."""
    from tidemark.answers.checkpoint_facts import iso

    name, newest = facts.pipeline, facts.newest or "none yet"
    limit = f"the deadline is {facts.deadline}"
    if facts.due_ms is not None:
        limit = f"a run of its DAG has been due since {iso(facts.due_ms)}"
    return TidemarkError(
        f"{name} is late: no checkpoint was completed for {facts.age}, {limit}"
        f" (newest: {newest}, failures in a row: {facts.failures_in_row})",
        safe="every completed checkpoint is intact.",
        next=f"tidemark checkpoint list {name}    (then read the log of its DAG's last run, or unpause the DAG).",
    )


def watch_dag(
    pipelines: Sequence[Pipeline],
    *,
    dags: Mapping[str, str] | None = None,
    dag_id: str = "watch",
    schedule: str | None = "*/10 * * * *",
    start: datetime | None = None,
    on_late: OnLate | None = None,
    **options: Unpack[SharedOptions],
) -> DAG:
    """Creates the DAG that watches deadlines; call it at the module level of a DAG file.

    The setting `TIDEMARK_CHECKPOINT_DEADLINE` says how long a pipeline may go without a completed checkpoint. Without
    it, the schedule of the pipeline's DAG decides: it is late if a run was due after the newest checkpoint, the next
    run is due as well, and the usual duration of a checkpoint has passed. A DAG that is paused, or that no time starts,
    is never late by its schedule.

    Args:
        pipelines: the pipelines to watch; each task is mapped over them.
        dags: the id of the DAG that checkpoints a pipeline, by the pipeline's name, where it is not that name.
        dag_id: the DAG's id.
        schedule: cron expression or preset; its interval is the longest delay of an alert.
        start: no scheduled run begins before this time.
        on_late: called at each check with the facts of a late pipeline; their `late_since_ms` does not change during
            one delay.
        **options: `default_args`, `tags` and `pool`, see `SharedOptions`.

    Raises:
        DeclarationError: `pipelines` is empty, or an option is invalid.
    """
    names = names_of(pipelines, "watch_dag")
    if unknown := sorted(set(dags or {}) - set(names)):
        raise DeclarationError(
            f"watch_dag(dags=) names {', '.join(unknown)}", next=f"name pipelines that it watches: {', '.join(names)}."
        )
    assets = {pipeline.name: late_asset(pipeline) for pipeline in pipelines}
    with DAG(
        dag_id,
        description=f"Deadlines of {', '.join(names)}",
        schedule=schedule,
        start_date=start,
        catchup=False,
        max_active_runs=1,
        doc_md=_PAGE,
        **shared_arguments(["tidemark", *names], options),
    ) as dag:
        _tasks({name: (dags or {}).get(name, name) for name in names}, assets, on_late)
    return dag


def _tasks(dags: dict[str, str], assets: dict[str, Asset], on_late: OnLate | None) -> None:
    mapped = {"map_index_template": "{{ task.pipeline }}", "dags": dags}
    outputs = {"assets": assets, "outlets": list(assets.values()), "on_late": on_late}
    again, never = retry_arguments(FixedDelay(attempts=3)), retry_arguments(NoRestart())
    look = LookOperator.partial(task_id=LOOK, doc_md=LookOperator.__doc__, **outputs, **mapped, **again)
    late = LateOperator.partial(task_id=LATE, doc_md=LateOperator.__doc__, **mapped, **never)
    chain(*(task.expand(pipeline=list(dags)) for task in (look, late)))


_PAGE = """### Deadlines
Task `look` reads the age of each pipeline's newest checkpoint from the warehouse, whether the pipeline's DAG runs or
not. If the age exceeds `TIDEMARK_CHECKPOINT_DEADLINE`, or if without a deadline two runs of the pipeline's DAG are due,
the task adds an event to the asset `<pipeline>/late` and calls the notifier, and task `late` fails. A stopped pipeline
is never late.

`tidemark checkpoint stats PIPELINE` shows the same without Airflow.
"""
