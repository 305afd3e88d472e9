"""The four tasks of a checkpoint: plan, fold, validate, complete. Each calls one operation.

Tasks pass ids only (`t1/3.1`, `chk-3`); everything else lives in the store, so any task may be killed or repeated.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import Asset, BaseOperator, Context
from airflow.sdk.exceptions import AirflowRescheduleException, AirflowSkipException, AirflowTaskTimeout
from airflow.sdk.log import mask_secret
from pydantic import JsonValue

from tidemark.airflow.airflow_metrics import observe
from tidemark.airflow.assets import checkpoints_of
from tidemark.airflow.attempt_watch import attempts_watched
from tidemark.airflow.connections import take_connections
from tidemark.airflow.failure_callbacks import (
    PUBLISHED,
    abort_expired,
    keep_count,
    keep_reason,
    open_slot,
    refused_slot,
)
from tidemark.airflow.retries import as_airflow
from tidemark.airflow.spans import attempts_traced
from tidemark.airflow.spark_jobs import CHECKPOINT_JOB, SparkJob, fold, spark_job
from tidemark.airflow.task_names import FOLD, PLAN, VALIDATE
from tidemark.airflow.trigger_form import RunConf, parse_conf, request_of
from tidemark.declare.retention import Retention
from tidemark.errors import GateFailedError, TidemarkError, TooEarlyError
from tidemark.redaction import secrets_of

if TYPE_CHECKING:
    from tidemark.answers.checkpoint_facts import ChangedAsset
    from tidemark.context import Context as TidemarkContext
    from tidemark.model.checkpoint.manifest import Checkpoint
    from tidemark.operations.checkpoints import Planned
    from tidemark.ports import PlanRequest

WAIT_HERE = timedelta(seconds=20)
"""The longest rest of a minimum pause that task `plan` waits for; for a longer one it gives its worker slot back."""
Ids = dict[str, Any]
"""The value that a task returns: ids, never data."""


def open_tidemark() -> "TidemarkContext":
    """Opens the context of this task; imports it here, so that parsing a DAG file does not have to."""
    from tidemark.context import open_context

    take_connections()
    opened = open_context()
    # Other libraries log in this task too, for example the tracebacks of Spark's client.
    for secret in secrets_of(opened.settings.spark_address):
        mask_secret(secret)
    return opened


@contextmanager
def typed_failures() -> Iterator[None]:
    """Turns an error that no retry can fix into AirflowFailException; other errors pass, and the task is retried."""
    try:
        yield
    except TidemarkError as error:
        raise as_airflow(error) from error


def announce(context: Context, assets: Sequence[Asset], answer: object, names: Sequence[str] = ()) -> None:
    """Adds an event to assets that carries an answer: one for each name, as its partition key, or one without a key."""
    from tidemark.model.checkpoint.codec import body_of

    for asset in assets:
        event = context["outlet_events"][asset]
        event.extra = cast("dict[str, JsonValue]", body_of(answer))
        if names:
            event.add_partitions(list(names))


class PipelineOperator(BaseOperator):
    """A task of one pipeline.

    Args:
        pipeline: the pipeline's name; the task finds the declaration when it runs.
        until: whether ranges end where the data interval ends.
        **kwargs: passed to BaseOperator.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, *, pipeline: str, until: bool = False, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.until = until

    def request(self, context: Context) -> "PlanRequest":
        """Returns the DAG run's request, which is the same in each of its tasks."""
        run = context["dag_run"]
        interval = (run.data_interval_start, run.data_interval_end)
        return request_of(self.read_form(context), (run.dag_id, run.run_id), interval, self.until)

    def read_form(self, context: Context) -> RunConf:
        """Returns the DAG run's validated conf."""
        return parse_conf({**context["params"], **(context["dag_run"].conf or {})})


class PlanOperator(PipelineOperator):
    """Fixes the ranges that the next checkpoint will read, unless an earlier checkpoint covers the interval.

    Args:
        checkpoint: the asset of completed checkpoints; if an earlier run left sealed checkpoints, this task publishes
            them and adds their event.
        min_pause: the pipeline's minimum pause in milliseconds; for readers of the DAG only, the task ignores it.
        tolerable: how many failed checkpoints in a row do not pause the DAG yet.
        **kwargs: passed to PipelineOperator.
    """

    ui_color = "#e8f0fe"
    template_fields = ("min_pause", "tolerable")

    def __init__(self, *, checkpoint: Asset, min_pause: int = 0, tolerable: int = 0, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self.checkpoint = checkpoint
        self.min_pause = min_pause
        self.tolerable = tolerable

    def execute(self, context: Context) -> Ids:
        """Returns `{"slot", "checkpoint"}`, or `{"covered_by"}`.

        Raises:
            AirflowRescheduleException: the minimum pause lasts longer than `WAIT_HERE`; the task runs again after it.
            AirflowFailException: no retry can fix the error.
            TidemarkError: any other error; the task is retried.
        """
        from tidemark.answers.checkpoint_facts import checkpoint_facts
        from tidemark.operations import checkpoints, reads
        from tidemark.operations.runs import list_unannounced

        opened = open_tidemark()
        with typed_failures():
            self._restore(opened, self.read_form(context))
            planned = self._plan(opened, self.request(context))
        observe(opened, self.pipeline)
        if planned.published:
            left = reads.get_checkpoint(opened, self.pipeline, planned.published[-1])
            names = [f"chk-{n}" for n in sorted({*planned.published, *list_unannounced(opened, left)})]
            completed = checkpoints_of(self.pipeline)
            self.outlets = [self.checkpoint, completed]
            announce(context, [self.checkpoint], checkpoint_facts(left), names)
            announce(context, [completed], checkpoint_facts(left))
            self.log.info("published %s, which an earlier run had sealed", left.plan.name)
            context["ti"].xcom_push(key=PUBLISHED, value=names)
        if planned.covered_by is not None:
            self.log.info("nothing to do: covered by chk-%d", planned.covered_by)
            return {"covered_by": f"chk-{planned.covered_by}"}
        self.log.info("%s %s at %s", "adopted" if planned.adopted else "planned", planned.name, planned.slot)
        # Counted already now, because no task is left to count if the run times out.
        keep_count(context, checkpoints.count_failures(opened, self.pipeline), self.tolerable)
        return {"slot": planned.slot, "checkpoint": planned.name}

    def _plan(self, opened: "TidemarkContext", request: "PlanRequest") -> "Planned":
        """Plans after the minimum pause: a short rest of it is waited for here, a longer one without a worker slot."""
        from tidemark.operations import checkpoints

        while True:
            try:
                return checkpoints.plan(opened, self.pipeline, request)
            except TooEarlyError as error:
                wait = timedelta(milliseconds=error.wait_ms)
                self.log.info("%s", error.what)
                if wait > WAIT_HERE:
                    raise AirflowRescheduleException(datetime.now(UTC) + wait) from None
            time.sleep(wait.total_seconds())

    def _restore(self, opened: "TidemarkContext", conf: RunConf) -> None:
        from tidemark.operations import backfill

        if not conf.savepoint or not conf.restore_id:
            return
        from tidemark.coordinator.recovery.restore_request import RestoreRequest

        request = RestoreRequest(
            savepoint=conf.savepoint,
            request=conf.restore_id,
            accept_loss=conf.accept_loss,
            allow_non_restored_state=conf.allow_non_restored_state,
        )
        done = backfill.restore_once(opened, self.pipeline, request)
        result = "was restored before" if done is None else f"is restored: timeline {done.genesis.timeline} is live"
        self.log.info("savepoint %s %s (restore id %s)", conf.savepoint, result, conf.restore_id)


class FoldOperator(PipelineOperator):
    """Executes the plan up to its seal in one Spark application. If bounds divide a backlog, makes all but the last.

    Args:
        attempt_timeout: the longest time of an attempt at one checkpoint, in milliseconds; a run may make several.
        **kwargs: passed to PipelineOperator.
    """

    ui_color = "#e6f4ea"
    template_fields = ("attempt_timeout",)

    def __init__(self, *, attempt_timeout: int = 600_000, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self.attempt_timeout = attempt_timeout
        self._job: SparkJob | None = None

    def execute(self, context: Context) -> Ids:
        """Returns `{"slot", "checkpoint", "completed"}` of the sealed checkpoint; only the slot if the gate refused it.

        Raises:
            AirflowSkipException: an earlier checkpoint covers the interval.
            AirflowFailException: no retry can fix the error; the abort is recorded.
            TidemarkError: any other error; the next try makes the next attempt at the same plan.
        """
        planned = context["ti"].xcom_pull(task_ids=PLAN)
        if "covered_by" in planned:
            raise AirflowSkipException(f"covered by {planned['covered_by']}")
        # Declared for the lineage graph. Task `complete` adds their events, because nothing is published here.
        self.outlets = []
        with typed_failures():
            try:
                return self._fold(planned["slot"], self.request(context))
            except GateFailedError as error:
                self.log.error("%s", error)
                return {"slot": refused_slot(open_tidemark(), self.pipeline) or planned["slot"]}
            except AirflowTaskTimeout as error:
                opened = open_tidemark()
                slot = open_slot(opened, self.pipeline, context) or planned["slot"]
                raise abort_expired(opened, self.pipeline, slot) from error

    def on_kill(self) -> None:
        """Ends the Spark driver if this task started one."""
        if self._job is not None:
            self._job.kill()

    def _fold(self, slot: str, request: "PlanRequest") -> Ids:
        self._job = spark_job(CHECKPOINT_JOB, "fold", self.log.info)
        opened = open_tidemark()
        try:
            with (
                attempts_watched(opened, self.pipeline, timedelta(milliseconds=self.attempt_timeout)),
                attempts_traced(opened, self.pipeline, slot) as sealed,
            ):
                folded = fold(self._job, self.pipeline, slot, request)
                sealed += [*folded["completed"], folded["id"]]
        finally:
            observe(opened, self.pipeline)
        self.log.info("sealed chk-%d at %s", folded["id"], folded["slot"])
        completed = [f"chk-{number}" for number in folded["completed"]]
        return {"slot": folded["slot"], "checkpoint": f"chk-{folded['id']}", "completed": completed}


class ValidateOperator(PipelineOperator):
    """Reports the gate's verdict that `fold` recorded; decides nothing itself.

    Args:
        tolerable: failed checkpoints in a row that do not pause the DAG yet.
        **kwargs: as PipelineOperator takes them.
    """

    ui_color = "#fef7e0"

    def __init__(self, *, tolerable: int = 0, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self.tolerable = tolerable

    def execute(self, context: Context) -> Ids:
        """Returns the ids that it received.

        Raises:
            AirflowFailException: the gate refused the checkpoint; its plan is aborted.
        """
        from tidemark.coordinator.checkpoints.failure_policy import classify
        from tidemark.operations import checkpoints

        folded: Ids = context["ti"].xcom_pull(task_ids=FOLD)
        opened = open_tidemark()
        with typed_failures():
            try:
                verdict = checkpoints.validate(opened, self.pipeline, folded["slot"])
            except GateFailedError as error:
                self._tell(error.verdict)
                keep_reason(context, classify(error))
                keep_count(context, checkpoints.count_failures(opened, self.pipeline, folded["slot"]), self.tolerable)
                raise
        self._tell(verdict)
        self.log.info("%s: the gate passed, %d expectations", folded["checkpoint"], len(verdict.expectations))
        return folded

    def _tell(self, verdict: object) -> None:
        from tidemark.model.checkpoint.manifest import Verdict

        for found in verdict.expectations if isinstance(verdict, Verdict) else ():
            level = logging.INFO if found.success else logging.ERROR
            word = "held" if found.success else "failed"
            self.log.log(level, "%s %s: %s: %s", word, found.frame, found.type, found.detail)


class CompleteOperator(PipelineOperator):
    """Publishes the sealed checkpoint, adds events to the assets, and records the retention rule.

    Args:
        checkpoint: the asset with an event for each completed checkpoint.
        completed: the asset with one event for all checkpoints that this task announces, see `checkpoints_of`.
        changed: assets that a checkpoint may change: states, dead letters and sinks. Only changed ones get an event.
        sent: topics that receive records once the checkpoint is complete.
        retention: the checkpoints to keep; None = all.
        **kwargs: as PipelineOperator takes them.
    """

    ui_color = "#fce8e6"

    def __init__(
        self,
        *,
        checkpoint: Asset,
        completed: Asset,
        changed: Sequence[Asset],
        sent: Sequence[Asset] = (),
        retention: Retention | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(outlets=[checkpoint, completed, *sent], **kwargs)
        self.checkpoint = checkpoint
        self.completed = completed
        self.changed = list(changed)
        self.retention = retention

    def execute(self, context: Context) -> Ids:
        """Returns `{"checkpoint", "completed"}`."""
        from tidemark.answers.checkpoint_facts import checkpoint_facts
        from tidemark.model.checkpoint.codec import body_of
        from tidemark.operations import checkpoints

        folded: Ids = context["ti"].xcom_pull(task_ids=VALIDATE)
        opened = open_tidemark()
        with typed_failures():
            checkpoint = checkpoints.complete(opened, self.pipeline, folded["slot"])
        observe(opened, self.pipeline)
        names = self._names(opened, checkpoint, folded.get("completed", ()))
        facts = body_of(checkpoint_facts(checkpoint))
        self.outlets = [self.checkpoint, self.completed]
        announce(context, [self.checkpoint], {**facts, **self._kept(opened, checkpoint)}, names)
        announce(context, [self.completed], facts)
        self._announce_changed(context, opened, checkpoint, names)
        lines = "\n".join(f"{name}: {value}" for name, value in facts.items())
        self.log.info("completed %s\n%s", ", ".join(names), lines)
        return {"checkpoint": checkpoint.plan.name, "completed": names}

    def _names(self, opened: "TidemarkContext", newest: "Checkpoint", folded: Sequence[str]) -> list[str]:
        """The checkpoints to announce: this run's, and those of earlier runs that failed before they could."""
        from tidemark.operations.runs import list_unannounced

        found = list_unannounced(opened, newest)
        return [f"chk-{n}" for n in sorted({*found, *(int(name[4:]) for name in folded)})]

    def _announce_changed(
        self, context: Context, opened: "TidemarkContext", newest: "Checkpoint", names: Sequence[str]
    ) -> None:
        """Adds an event to each changed asset: its facts after the last change, and a partition key for each change."""
        from tidemark.answers.checkpoint_facts import changed_assets

        timelines = opened.coordinator(self.pipeline).timelines  # a sweep may have released some of them meanwhile
        facts: dict[str, ChangedAsset] = {}
        keys: dict[str, list[str]] = {}
        for name in names:
            made = newest if name == newest.plan.name else timelines.checkpoint(int(name[4:]))
            for asset, asset_facts in changed_assets(made).items():
                facts[asset] = asset_facts
                keys.setdefault(asset, []).append(name)
        for found in self.changed:
            if found.name in facts:
                # They are not declared as outlets here, because in the graph `fold` writes them.
                self.outlets.append(found)
                announce(context, [found], facts[found.name], keys[found.name])

    def _kept(self, opened: "TidemarkContext", checkpoint: "Checkpoint") -> dict[str, object]:
        """Records the retention rule; returns its text and the number of checkpoints that it keeps, for the event."""
        from tidemark.operations import reads
        from tidemark.operations import retention as retention_operations

        try:
            retention_operations.declare_rule(opened, self.pipeline, self.retention)
        except TidemarkError as error:
            # The checkpoint is complete, and the next one records the rule.
            self.log.warning("retention %s: not recorded. %s", self.retention, error)
        if self.retention is None:
            return {}
        facts: dict[str, object] = {"retention": str(self.retention)}
        try:
            kept = reads.explain_kept(opened, checkpoint, self.retention)
        except TidemarkError as error:
            # The checkpoint is complete: an old manifest that cannot be read must not fail its run.
            self.log.warning("retention %s: not evaluated. %s", self.retention, error)
            return facts
        names = ", ".join(f"chk-{number}" for number in kept)
        self.log.info("retention %s: keeps %d (%s); a sweep releases the others", self.retention, len(kept), names)
        return {**facts, "kept": len(kept)}
