"""`checkpoint_dag()`: a pipeline as a DAG of four tasks, plan >> fold >> validate >> complete."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, Unpack
from zoneinfo import ZoneInfo

from airflow.sdk import DAG, chain

from tidemark.airflow.assets import assets_of
from tidemark.airflow.checkpoint_tasks import (
    CompleteOperator,
    FoldOperator,
    PlanOperator,
    ValidateOperator,
)
from tidemark.airflow.dag_docs import explain
from tidemark.airflow.dag_options import TASK_CALLBACKS, Callbacks, SharedOptions, join_callbacks, shared_arguments
from tidemark.airflow.failure_callbacks import abort_after_last_try, abort_after_timeout, keep_announced, keep_error
from tidemark.airflow.retries import StrategyName, restart_strategy, retry_arguments
from tidemark.airflow.schedules import Schedule, check_schedule, describe_schedule, has_intervals, make_timetable
from tidemark.airflow.task_names import COMPLETE, FOLD, PLAN, VALIDATE
from tidemark.airflow.trigger_form import form
from tidemark.coordinator.checkpoints.restart import RestartStrategy
from tidemark.declare.pipeline import Pipeline
from tidemark.declare.retention import Retention, as_retention
from tidemark.errors import DeclarationError

RUN_BUDGET = 3
"""Timeout of a DAG run as a multiple of `checkpoint_timeout`: room for retries, and their pauses. If bounds divide a
backlog into checkpoints, the run takes as long as it takes, and each of the other tasks has this timeout."""


class DagOptions(SharedOptions, total=False):
    """The options of `checkpoint_dag()`; those of `SharedOptions` too.

    Attributes:
        schedule: cron expression, preset or timedelta, which yield data intervals `[start, end)`; or assets, as in
            `checkpoints_of("orders")`, a list of them, `a & b` or `a | b`; or `KafkaLag`. None = on demand only.
        timezone: timezone of the cron expression, and of `start` and `end` if they name none (default: UTC).
        start: no interval begins before this time.
        end: no interval begins at or after this time.
        until: `interval_end` = ranges stop before the first record whose timestamp reaches the interval's end.
        retention: the completed checkpoints to keep; None = all. Task `complete` records the rule for `retention_dag`.
        restart: one of Flink's restart strategies, by name or as a value (default: `exponential-delay`).
        dag_id: the DAG's id (default: the pipeline's name).
        on_failure: called when a DAG run has failed, after Tidemark's own callback: one callback, or several.
        on_success: called when a DAG run has succeeded.
        max_active_tasks: the most tasks of the DAG that run at once.
        doc_md: Markdown that follows Tidemark's own page of the DAG.
    """

    schedule: Schedule
    timezone: str
    start: datetime | None
    end: datetime | None
    until: Literal["interval_end"] | None
    retention: Retention | None
    restart: StrategyName | RestartStrategy
    dag_id: str
    on_failure: Callbacks
    on_success: Callbacks
    max_active_tasks: int | None
    doc_md: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """Fills in the defaults of the options; an unknown option is a TypeError."""

    schedule: Schedule = None
    timezone: str = "UTC"
    start: datetime | None = None
    end: datetime | None = None
    until: str | None = None
    retention: Retention | None = None
    restart: StrategyName | RestartStrategy = "exponential-delay"
    dag_id: str = ""
    default_args: Mapping[str, Any] = field(default_factory=dict)
    tags: Sequence[str] = ()
    pool: str | None = None
    on_failure: Callbacks = None
    on_success: Callbacks = None
    max_active_tasks: int | None = None
    doc_md: str = ""

    def __post_init__(self) -> None:
        if self.until not in (None, "interval_end"):
            raise DeclarationError(f"until={self.until!r}", next="write until='interval_end', or omit it.")
        if self.until and not self.schedule:
            raise DeclarationError("until='interval_end' needs a schedule", next="give a cron expression.")
        if self.until and not has_intervals(self.schedule):
            raise DeclarationError(
                "until='interval_end' needs data intervals, and runs of this schedule have none",
                next="omit until=: a run reads every record that is there; or give a cron expression or a timedelta.",
            )
        if (self.start or self.end) and self.schedule and not has_intervals(self.schedule):
            raise DeclarationError(
                "start= and end= bound data intervals, and runs of this schedule have none",
                next="omit start= and end=.",
            )
        if self.max_active_tasks is not None and self.max_active_tasks < 1:
            raise DeclarationError(f"max_active_tasks={self.max_active_tasks}", next="give at least 1, or omit it.")
        as_retention(self.retention)

    def bound(self, when: datetime | None) -> datetime | None:
        """Returns a bound in the schedule's timezone."""
        return when if when is None or when.tzinfo else when.replace(tzinfo=ZoneInfo(self.timezone))

    def arguments(self, pipeline: Pipeline) -> dict[str, Any]:
        """Returns the arguments of Airflow's DAG that do not depend on any other option."""
        last = self.bound(self.end)
        shared: SharedOptions = {"default_args": self.default_args, "tags": self.tags, "pool": self.pool}
        found = shared_arguments(["tidemark", pipeline.name], shared)
        if self.max_active_tasks is not None:
            found["max_active_tasks"] = self.max_active_tasks
        own_page = explain(
            pipeline, describe_schedule(self.schedule, self.timezone), is_cut=bool(self.until), retention=self.retention
        )
        return found | {
            "schedule": make_timetable(self.schedule, self.timezone, pipeline, self.dag_id or pipeline.name),
            "start_date": self.bound(self.start),
            "end_date": None if last is None else last - timedelta(microseconds=1),
            "doc_md": f"{own_page}\n{self.doc_md}" if self.doc_md else own_page,
        }


def checkpoint_dag(pipeline: Pipeline, **options: Unpack[DagOptions]) -> DAG:
    """Creates the DAG that checkpoints a pipeline; call it at the module level of a DAG file.

    One DAG run is active at a time, and past intervals do not run unless you backfill them; give a backfill
    `max_active_runs` 1, because it has its own limit. After more than `tolerable_failed_checkpoints` failed checkpoints
    in a row, the plugin pauses the DAG; a run that fails for another reason does not count. A checkpoint that takes
    longer than `checkpoint_timeout` expires. If the pipeline bounds a checkpoint, a run makes several, and has no
    timeout as a whole.

    Args:
        pipeline: the declaration.
        **options: the fields of `DagOptions`.

    Returns:
        The DAG. `tidemark.airflow.assets` lists its assets.

    Raises:
        DeclarationError: an option is invalid.
        TypeError: there is no such option.
    """
    chosen = _Chosen(**options)
    check_schedule(chosen.schedule, pipeline)
    longest = pipeline.checkpoint_timeout * RUN_BUDGET + pipeline.min_pause
    with DAG(
        chosen.dag_id or pipeline.name,
        description=f"Checkpoints of {pipeline.name}: {', '.join(pipeline.schemas())}",
        catchup=False,
        max_active_runs=1,
        max_consecutive_failed_dag_runs=0,
        dagrun_timeout=None if pipeline.is_bounded() else longest,
        on_failure_callback=join_callbacks(partial(abort_after_timeout, pipeline.name), chosen.on_failure),
        on_success_callback=join_callbacks(None, chosen.on_success) or None,
        params=form(pipeline.name),
        **chosen.arguments(pipeline),
    ) as dag:
        _tasks(pipeline, chosen)
    return dag


def _tasks(pipeline: Pipeline, chosen: _Chosen) -> None:
    assets, tolerable = assets_of(pipeline), pipeline.tolerable_failed_checkpoints
    shared: dict[str, Any] = {
        "pipeline": pipeline.name,
        "until": chosen.until is not None,
        "execution_timeout": pipeline.checkpoint_timeout * RUN_BUDGET,
        **retry_arguments(restart_strategy(chosen.restart)),
    }
    keep, give_up = partial(keep_announced, pipeline.name), partial(abort_after_last_try, pipeline.name, tolerable)
    chain(
        PlanOperator(
            task_id=PLAN,
            doc_md=PlanOperator.__doc__,
            checkpoint=assets.checkpoint,
            min_pause=round(pipeline.min_pause.total_seconds() * 1000),
            tolerable=tolerable,
            **_callbacks(chosen, on_success_callback=keep),
            **shared,
        ),
        FoldOperator(
            task_id=FOLD,
            doc_md=FoldOperator.__doc__,
            inlets=[*assets.topics, *assets.states],
            outlets=[*assets.changed, *assets.sent_ahead],
            attempt_timeout=round(pipeline.checkpoint_timeout.total_seconds() * 1000),
            **_callbacks(chosen, on_failure_callback=[keep_error, give_up]),
            **{**shared, "execution_timeout": None},
        ),
        ValidateOperator(task_id=VALIDATE, doc_md=ValidateOperator.__doc__, tolerable=tolerable, **shared),
        CompleteOperator(
            task_id=COMPLETE,
            doc_md=CompleteOperator.__doc__,
            inlets=[*assets.states],
            checkpoint=assets.checkpoint,
            completed=assets.completed,
            changed=assets.changed,
            sent=assets.sent,
            retention=chosen.retention,
            **_callbacks(chosen, on_success_callback=keep),
            **shared,
        ),
    )


def _callbacks(chosen: _Chosen, **own: Callbacks) -> dict[str, Any]:
    """Returns the callbacks of a task: Tidemark's own, then those of `default_args`, which own ones would replace."""
    return {name: join_callbacks(own[name], chosen.default_args.get(name)) for name in TASK_CALLBACKS if name in own}
