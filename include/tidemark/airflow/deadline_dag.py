"""`watch_dag()`: tells when a pipeline has completed no checkpoint for too long, whether its DAG runs or not (K9).

Airflow's own DeadlineAlert hangs on a DAG run: where none is started, because the DAG is paused or its schedule is
wrong, it never fires. This DAG looks at the warehouse instead, on a schedule of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Asset, BaseOperator, Context, chain
from airflow.sdk.exceptions import AirflowFailException

from tidemark.airflow.airflow_metrics import observe
from tidemark.airflow.assets import late_asset
from tidemark.airflow.checkpoint_tasks import Ids, announce, open_tidemark
from tidemark.airflow.form_answers import answering, names_of
from tidemark.airflow.retries import retry_arguments
from tidemark.coordinator.checkpoints.restart import FixedDelay, NoRestart
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import TidemarkError

if TYPE_CHECKING:
    from tidemark.answers.timeline_facts import DeadlineFacts

LOOK, LATE = "look", "late"
OnLate = Callable[[Mapping[str, object]], None]
"""Gets the facts of a pipeline that is late, see `DeadlineFacts`; called at every look while it is."""


class LookOperator(BaseOperator):
    """Looks how old the newest checkpoint is, and tells metrics, the asset and a notifier; one instance per pipeline.

    Args:
        pipeline: its name.
        assets: the asset of each pipeline that is told when it is late, by name; the outlets.
        on_late: a notifier; what it raises is logged and fails nothing.
        **kwargs: as BaseOperator takes them.
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
            AirflowFailException: no such pipeline.
            TidemarkError: the store did not answer; the task is retried.
        """
        from tidemark.answers.bodies import body_of
        from tidemark.operations import metrics

        opened = open_tidemark()
        with answering():
            facts: Ids = body_of(metrics.check_deadline(opened, self.pipeline))
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
            self.log.exception("on_late failed; that %s is late stands in this log, at its asset and in red", facts)


class LateOperator(BaseOperator):
    """Fails while a pipeline is late, so that Airflow shows it in red and calls whoever it calls for failures.

    Args:
        pipeline: its name.
        **kwargs: as BaseOperator takes them.
    """

    ui_color = "#fce8e6"

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> None:
        """Returns where the pipeline is on time, is stopped, or has no deadline.

        Raises:
            AirflowFailException: it is late.
        """
        from tidemark.operations import metrics

        with answering():
            facts = metrics.check_deadline(open_tidemark(), self.pipeline)
        if facts.late:
            raise AirflowFailException(str(late_error(facts)))


def late_error(facts: "DeadlineFacts") -> TidemarkError:
    """The error of a pipeline that is late."""
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
) -> DAG:
    """The DAG that watches deadlines; called at the module level of a DAG file.

    How long a pipeline may go without a completed checkpoint is the setting `TIDEMARK_CHECKPOINT_DEADLINE`; without it
    nothing is late.

    Args:
        pipelines: who is watched; each task is mapped over them.
        dag_id: as Airflow shows it.
        schedule: cron expression or preset; an alert is at most that much later than the deadline.
        start: no scheduled run before it.
        on_late: called with the facts of a pipeline that is late, at each look while it is; `late_since_ms` in them is
            the same as long as it is one and the same delay.

    Raises:
        DeclarationError: no pipelines.
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
        tags=["tidemark", *names],
        doc_md=_PAGE,
    ) as dag:
        _tasks(names, assets, on_late)
    return dag


def _tasks(names: list[str], assets: dict[str, Asset], on_late: OnLate | None) -> None:
    mapped = {"map_index_template": "{{ task.pipeline }}"}
    told = {"assets": assets, "outlets": list(assets.values()), "on_late": on_late}
    again, never = retry_arguments(FixedDelay(attempts=3)), retry_arguments(NoRestart())
    look = LookOperator.partial(task_id=LOOK, doc_md=LookOperator.__doc__, **told, **mapped, **again)
    late = LateOperator.partial(task_id=LATE, doc_md=LateOperator.__doc__, **mapped, **never)
    chain(*(task.expand(pipeline=names) for task in (look, late)))


_PAGE = """### Deadlines
Task `look` finds how old the newest checkpoint of each pipeline is, in the warehouse, whether the pipeline's DAG runs
or not. Where that exceeds `TIDEMARK_CHECKPOINT_DEADLINE`, it tells the asset `<pipeline>/late` and the notifier, and
task `late` fails. A pipeline that was stopped is never late.

`tidemark checkpoint stats PIPELINE` tells the same without Airflow.
"""
