"""`watch_dag()`: alerts you when a pipeline has completed no checkpoint for too long, whether its DAG runs or not.

Airflow's DeadlineAlert is attached to a DAG run: it fires when a run is slow, but not when no run starts because the
DAG is paused or its schedule is wrong. This DAG reads the warehouse instead, on a separate schedule.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack

from airflow.sdk import DAG, Asset, BaseOperator, Context, chain
from airflow.sdk.exceptions import AirflowFailException

from tidemark.airflow.airflow_metrics import observe
from tidemark.airflow.assets import late_asset
from tidemark.airflow.checkpoint_tasks import Ids, announce, open_tidemark
from tidemark.airflow.dag_options import SharedOptions, shared_arguments
from tidemark.airflow.form_answers import fail_on_refusal, names_of
from tidemark.airflow.retries import retry_arguments
from tidemark.coordinator.checkpoints.restart import FixedDelay, NoRestart
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import TidemarkError

if TYPE_CHECKING:
    from tidemark.answers.timeline_facts import DeadlineFacts

LOOK, LATE = "look", "late"
OnLate = Callable[[Mapping[str, object]], None]
"""Called at each check with the facts of a late pipeline; see `DeadlineFacts`."""


class LookOperator(BaseOperator):
    """Checks the age of the newest checkpoint; if it is late, sends metrics, an asset event and a notification.

    Args:
        pipeline: the pipeline's name; the task is mapped over the pipelines.
        assets: each pipeline's asset for late checkpoints, by the pipeline's name; the outlets.
        on_late: a notifier; an error that it raises is logged and does not fail the task.
        **kwargs: passed to BaseOperator.
    """

    ui_color = "#e8f0fe"

    def __init__(
        self,
        *,
        pipeline: str,
        assets: dict[str, Asset],
        on_late: OnLate | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.assets = assets
        self.on_late = on_late

    def execute(self, context: Context) -> Ids:
        """Returns the facts, late or not.

        Raises:
            AirflowFailException: there is no such pipeline.
            TidemarkError: the store did not answer; the task is retried.
        """
        from tidemark.model.checkpoint.codec import body_of
        from tidemark.operations import observability

        opened = open_tidemark()
        with fail_on_refusal():
            facts: Ids = body_of(observability.check_deadline(opened, self.pipeline))
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
        **kwargs: passed to BaseOperator.
    """

    ui_color = "#fce8e6"

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> None:
        """Succeeds if the pipeline is on time, is stopped, or has no deadline.

        Raises:
            AirflowFailException: the pipeline is late.
        """
        from tidemark.operations import observability

        with fail_on_refusal():
            facts = observability.check_deadline(open_tidemark(), self.pipeline)
        if facts.late:
            raise AirflowFailException(str(late_error(facts)))


def late_error(facts: "DeadlineFacts") -> TidemarkError:
    """Returns the three-line error for a late pipeline."""
    name, newest = facts.pipeline, facts.newest or "none yet"
    return TidemarkError(
        f"{name} is late: no checkpoint was completed for {facts.age}, the deadline is {facts.deadline}"
        f" (newest: {newest}, failures in a row: {facts.failures_in_row})",
        safe="every completed checkpoint is intact.",
        next=f"tidemark checkpoint list {name}    (then read the log of its DAG's last run, or unpause the DAG).",
    )


def watch_dag(
    pipelines: Sequence[Pipeline],
    *,
    dag_id: str = "watch",
    schedule: str | None = "*/10 * * * *",
    start: datetime | None = None,
    on_late: OnLate | None = None,
    **options: Unpack[SharedOptions],
) -> DAG:
    """Creates the DAG that watches deadlines; call it at the module level of a DAG file.

    The setting `TIDEMARK_CHECKPOINT_DEADLINE` says how long a pipeline may go without a completed checkpoint. Without
    it, no pipeline is ever late.

    Args:
        pipelines: the pipelines to watch; each task is mapped over them.
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
        _tasks(names, assets, on_late)
    return dag


def _tasks(names: list[str], assets: dict[str, Asset], on_late: OnLate | None) -> None:
    mapped = {"map_index_template": "{{ task.pipeline }}"}
    outputs = {"assets": assets, "outlets": list(assets.values()), "on_late": on_late}
    again, never = retry_arguments(FixedDelay(attempts=3)), retry_arguments(NoRestart())
    look = LookOperator.partial(task_id=LOOK, doc_md=LookOperator.__doc__, **outputs, **mapped, **again)
    late = LateOperator.partial(task_id=LATE, doc_md=LateOperator.__doc__, **mapped, **never)
    chain(*(task.expand(pipeline=names) for task in (look, late)))


_PAGE = """### Deadlines
Task `look` reads the age of each pipeline's newest checkpoint from the warehouse, whether the pipeline's DAG runs or
not. If the age exceeds `TIDEMARK_CHECKPOINT_DEADLINE`, the task adds an event to the asset `<pipeline>/late` and calls
the notifier, and task `late` fails. A stopped pipeline is never late.

`tidemark checkpoint stats PIPELINE` shows the same without Airflow.
"""
