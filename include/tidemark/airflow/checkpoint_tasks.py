"""The four tasks of a checkpoint: plan, fold, validate, complete. Each calls one operation.

Tasks pass ids only (`t1/3.1`, `chk-3`); everything else lives in the store, so any task may be killed or repeated.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import Asset, BaseOperator, Context
from airflow.sdk.exceptions import AirflowSkipException, AirflowTaskTimeout
from airflow.sdk.log import mask_secret
from pydantic import JsonValue

from tidemark.airflow.airflow_metrics import observe
from tidemark.airflow.failure_callbacks import abort_expired, keep_count, keep_reason, open_slot, refused_slot
from tidemark.airflow.retries import as_airflow
from tidemark.airflow.s3_connection import take_s3_connection
from tidemark.airflow.spans import attempts_traced
from tidemark.airflow.spark_jobs import SparkJob, fold, spark_job
from tidemark.airflow.trigger_form import RunConf, parse_conf, request_of
from tidemark.declare.retention import Retention
from tidemark.errors import GateFailedError, TidemarkError
from tidemark.redaction import secrets_of

if TYPE_CHECKING:
    from tidemark.answers.checkpoint_facts import ChangedAsset
    from tidemark.context import Context as TidemarkContext
    from tidemark.model.checkpoint.manifest import Checkpoint
    from tidemark.ports import PlanRequest

PLAN, FOLD, VALIDATE, COMPLETE = "plan", "fold", "validate", "complete"
Ids = dict[str, Any]
"""What a task returns: ids, never data."""


def open_tidemark() -> "TidemarkContext":
    """The context of this task; imported here, so that parsing a DAG file does not pay for it."""
    from tidemark.context import open_context

    take_s3_connection()
    opened = open_context()
    # What others log in this task, tracebacks of Spark's client among them, is out of our hands.
    for secret in secrets_of(opened.settings.spark_address):
        mask_secret(secret)
    return opened


@contextmanager
def typed_failures() -> Iterator[None]:
    """Turns an error that no retry can help into Airflow's own failure; others go on to be retried."""
    try:
        yield
    except TidemarkError as error:
        raise as_airflow(error) from error


def announce(context: Context, assets: Sequence[Asset], answer: object, names: Sequence[str]) -> None:
    """Gives assets an event that carries an answer, with a partition key for each name."""
    from tidemark.answers.bodies import body_of

    for asset in assets:
        event = context["outlet_events"][asset]
        event.extra = cast("dict[str, JsonValue]", body_of(answer))
        event.add_partitions(list(names))


class PipelineOperator(BaseOperator):
    """A task of one pipeline.

    Args:
        pipeline: its name; the declaration is found when the task runs.
        until: whether ranges end where the data interval does.
        **kwargs: as BaseOperator takes them.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, *, pipeline: str, until: bool = False, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.until = until

    def request(self, context: Context) -> "PlanRequest":
        """What the DAG run asks for: the same in every task of it."""
        run = context["dag_run"]
        interval = (run.data_interval_start, run.data_interval_end)
        return request_of(self.asked(context), run.run_id, interval, self.until)

    def asked(self, context: Context) -> RunConf:
        """The conf of the DAG run, checked."""
        return parse_conf({**context["params"], **(context["dag_run"].conf or {})})


class PlanOperator(PipelineOperator):
    """Freezes what the next checkpoint will read, or finds that the interval is covered already.

    Args:
        checkpoint: the asset of completed checkpoints: what an earlier run left sealed is published and told here.
        min_pause: of the pipeline, in milliseconds; told to whoever reads the DAG, nothing here goes by it.
        tolerable: failed checkpoints in a row that do not pause the DAG yet.
        **kwargs: as PipelineOperator takes them.
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
            AirflowFailException: no retry can help.
            TidemarkError: anything else; the task is retried.
        """
        from tidemark.answers.checkpoint_facts import checkpoint_facts
        from tidemark.operations import checkpoints, reads

        opened = open_tidemark()
        with typed_failures():
            self._restore(opened, self.asked(context))
            planned = checkpoints.plan(opened, self.pipeline, self.request(context))
        observe(opened, self.pipeline)
        if planned.published:
            left = reads.get_checkpoint(opened, self.pipeline, planned.published[-1])
            self.outlets = [self.checkpoint]
            announce(context, self.outlets, checkpoint_facts(left), [f"chk-{n}" for n in planned.published])
            self.log.info("published what an earlier run had sealed: %s", left.plan.name)
        if planned.covered_by is not None:
            self.log.info("nothing to do: covered by chk-%d", planned.covered_by)
            return {"covered_by": f"chk-{planned.covered_by}"}
        self.log.info("%s %s at %s", "adopted" if planned.adopted else "planned", planned.name, planned.slot)
        # For a run that times out: then no task is left to count.
        keep_count(context, checkpoints.count_failures(opened, self.pipeline), self.tolerable)
        return {"slot": planned.slot, "checkpoint": planned.name}

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
        told = "was restored before" if done is None else f"restored: timeline {done.genesis.timeline} is live"
        self.log.info("savepoint %s %s (restore id %s)", conf.savepoint, told, conf.restore_id)


class FoldOperator(PipelineOperator):
    """Executes the plan up to its seal, in one Spark application. Publishes only what `max_records` cut off before."""

    ui_color = "#e6f4ea"

    def __init__(self, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self._job: SparkJob | None = None

    def execute(self, context: Context) -> Ids:
        """Returns `{"slot", "checkpoint", "completed"}` of what it left sealed; the slot alone where the gate refused.

        Raises:
            AirflowSkipException: the interval is covered.
            AirflowFailException: no retry can help; the abort record is written.
            TidemarkError: anything else; the next try takes the next attempt of the same plan.
        """
        planned = context["ti"].xcom_pull(task_ids=PLAN)
        if "covered_by" in planned:
            raise AirflowSkipException(f"covered by {planned['covered_by']}")
        # Declared for the lineage graph. Their events are those of `complete`: nothing is published here.
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
        """Ends the driver, where this task started one."""
        if self._job is not None:
            self._job.kill()

    def _fold(self, slot: str, request: "PlanRequest") -> Ids:
        self._job = spark_job("checkpoint", "fold", self.log.info)
        opened = open_tidemark()
        try:
            with attempts_traced(opened, self.pipeline, slot) as sealed:
                folded = fold(self._job, self.pipeline, slot, request)
                sealed += [*folded["completed"], folded["id"]]
        finally:
            observe(opened, self.pipeline)
        self.log.info("sealed chk-%d at %s", folded["id"], folded["slot"])
        completed = [f"chk-{number}" for number in folded["completed"]]
        return {"slot": folded["slot"], "checkpoint": f"chk-{folded['id']}", "completed": completed}


class ValidateOperator(PipelineOperator):
    """Reports the gate's verdict that fold recorded; judges nothing itself.

    Args:
        tolerable: failed checkpoints in a row that do not pause the DAG yet.
        **kwargs: as PipelineOperator takes them.
    """

    ui_color = "#fef7e0"

    def __init__(self, *, tolerable: int = 0, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self.tolerable = tolerable

    def execute(self, context: Context) -> Ids:
        """Returns the ids it was given.

        Raises:
            AirflowFailException: the gate refused the candidate; its plan is aborted.
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
    """Publishes what is sealed, tells the assets, writes the retention down and says which checkpoints it keeps.

    Args:
        checkpoint: the asset of completed checkpoints.
        changed: assets that a checkpoint may change: states, dead letters and sinks. An event is only of those it did.
        sent: topics that are sent to once the checkpoint is complete.
        retention: which checkpoints are kept; None = all.
        **kwargs: as PipelineOperator takes them.
    """

    ui_color = "#fce8e6"

    def __init__(
        self,
        *,
        checkpoint: Asset,
        changed: Sequence[Asset],
        sent: Sequence[Asset] = (),
        retention: Retention | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(outlets=[checkpoint, *sent], **kwargs)
        self.checkpoint = checkpoint
        self.changed = list(changed)
        self.retention = retention

    def execute(self, context: Context) -> Ids:
        """Returns `{"checkpoint", "completed"}`."""
        from tidemark.answers.bodies import body_of
        from tidemark.answers.checkpoint_facts import checkpoint_facts
        from tidemark.operations import checkpoints

        folded: Ids = context["ti"].xcom_pull(task_ids=VALIDATE)
        opened = open_tidemark()
        with typed_failures():
            checkpoint = checkpoints.complete(opened, self.pipeline, folded["slot"])
        observe(opened, self.pipeline)
        names = [*folded.get("completed", ()), checkpoint.plan.name]
        facts = body_of(checkpoint_facts(checkpoint))
        self.outlets = [self.checkpoint]
        announce(context, self.outlets, {**facts, **self._kept(opened, checkpoint)}, names)
        self._announce_changed(context, opened, checkpoint, names)
        told = "\n".join(f"{name}: {value}" for name, value in facts.items())
        self.log.info("completed %s\n%s", ", ".join(names), told)
        return {"checkpoint": checkpoint.plan.name, "completed": names}

    def _announce_changed(
        self, context: Context, opened: "TidemarkContext", newest: "Checkpoint", names: Sequence[str]
    ) -> None:
        """Tells what the checkpoints changed: the asset's own facts after the last change, a key for each change."""
        from tidemark.answers.checkpoint_facts import changed_assets
        from tidemark.operations import reads

        facts: dict[str, ChangedAsset] = {}
        keys: dict[str, list[str]] = {}
        for name in names:
            made = newest if name == newest.plan.name else reads.get_checkpoint(opened, self.pipeline, int(name[4:]))
            for asset, told in changed_assets(made).items():
                facts[asset] = told
                keys.setdefault(asset, []).append(name)
        for found in self.changed:
            if found.name in facts:
                # Not declared as outlets: in the graph it is fold that writes them.
                self.outlets.append(found)
                announce(context, [found], facts[found.name], keys[found.name])

    def _kept(self, opened: "TidemarkContext", checkpoint: "Checkpoint") -> dict[str, object]:
        """What the retention comes to, for the event: its text, and how many checkpoints it keeps."""
        from tidemark.operations import reads
        from tidemark.operations import retention as retention_operations

        try:
            retention_operations.declare_rule(opened, self.pipeline, self.retention)
        except TidemarkError as error:
            # The checkpoint is complete, and the next one writes the rule down.
            self.log.warning("retention %s: not written down. %s", self.retention, error)
        if self.retention is None:
            return {}
        told: dict[str, object] = {"retention": str(self.retention)}
        try:
            kept = reads.explain_kept(opened, checkpoint, self.retention)
        except TidemarkError as error:
            # The checkpoint is complete: an old manifest that cannot be read must not fail its run.
            self.log.warning("retention %s: not evaluated. %s", self.retention, error)
            return told
        names = ", ".join(f"chk-{number}" for number in kept)
        self.log.info("retention %s: keeps %d (%s); a sweep releases the others", self.retention, len(kept), names)
        return {**told, "kept": len(kept)}
