"""The tasks of a backfill: plan, repeat (mapped), compare, approve, promote.

Airflow gives mapped tasks no order, so each takes the next step that the store shows; one runs at a time. Nothing is
known but what is in the store: any task may be killed or repeated.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Asset, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from tidemark.airflow.backfill_conf import FORK, asked, found, summary
from tidemark.airflow.checkpoint_tasks import Ids, announce, open_tidemark
from tidemark.airflow.form_answers import PipelinesOperator, answering
from tidemark.airflow.spark_jobs import SparkJob, fold, spark_job

if TYPE_CHECKING:
    from tidemark.context import Context as TidemarkContext
    from tidemark.coordinator.recovery.backfill import Backfill
    from tidemark.model.checkpoint.manifest import Checkpoint

_NOTHING = "nothing is left"
_ANSWERS = "Approve: the fork catches up and becomes live. Reject: it stays beside the live timeline."


class PlanBackfillOperator(PipelinesOperator):
    """Checks the form and tells what would be done: the fork, its steps, what Kafka still has. Writes nothing."""

    ui_color = "#e8f0fe"

    def execute(self, context: Context) -> list[str]:
        """Returns of each step that is left the checkpoints that it repeats; tells the fork under `FORK`.

        Raises:
            AirflowFailException: the form does not fit, or Kafka lacks records; the message says what to type.
            TidemarkError: the store or Kafka did not answer; the task is retried.
        """
        from tidemark.answers.bodies import body_of
        from tidemark.operations import backfill
        from tidemark.operations.backfill import describe_outlook

        with answering():
            conf, opened = asked(context, self.pipelines), open_tidemark()
            outlook = backfill.open_backfill(opened, conf.pipeline, conf.request(context["dag_run"].run_id)).outlook()
        for name, value in body_of(describe_outlook(outlook)).items():
            self.log.info("%s: %s", name, value)
        steps = [" ".join(f"chk-{n}" for n in step.ids) for step in outlook.left]
        context["ti"].xcom_push(FORK, outlook.fork)
        return steps or [_NOTHING]


class RepeatOperator(PipelinesOperator):
    """Makes the next step of the fork: plan, fold in a Spark application of its own, gate, manifest.

    Args:
        step: what `plan` expected; which step it becomes is found in the store.
        **kwargs: as PipelinesOperator takes them.
    """

    ui_color = "#e6f4ea"

    def __init__(self, *, step: str, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self.step = step
        self._jobs = StepJobs(self.log.info)

    def execute(self, context: Context) -> Ids:
        """Returns `{"checkpoint", "repeats"}`, or nothing where no step was left.

        Raises:
            AirflowFailException: the gate refused the step, Kafka lacks records, or other code runs by now.
            TidemarkError: anything else; the next try takes the next attempt of the same plan.
        """
        if _has_failed(context):
            raise AirflowFailException("a step before this one failed, and no step can be left out: clear both")
        opened = open_tidemark()
        with answering():
            one = found(opened, context, self.pipelines)
            one.begin()
            made = self._jobs.step(opened, one)
        repeats = [] if made is None else [f"chk-{n}" for n in made.plan.replays]
        told = _NOTHING if made is None else f"{made.plan.name} repeats {', '.join(repeats)}"
        cast("dict[str, object]", context)["repeated"] = told  # labels the mapped task
        self.log.info("%s", told)
        return {} if made is None else {"checkpoint": made.plan.name, "repeats": repeats}

    def on_kill(self) -> None:
        """Ends the driver, where this task started one."""
        self._jobs.kill()


def _has_failed(context: Context) -> bool:
    """Whether another of the mapped tasks has failed in this DAG run: a refused step would be refused again."""
    ti = context["ti"]
    count = ti.get_ti_count(dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id], states=["failed"])
    return count > 0


class StepJobs:
    """Makes steps of a fork, each in a Spark application of its own."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._job: SparkJob | None = None

    def step(self, opened: "TidemarkContext", one: "Backfill") -> "Checkpoint | None":
        """One step; None where nothing is left."""
        from tidemark.model.checkpoint.manifest import Checkpoint
        from tidemark.operations import backfill
        from tidemark.ports import PlanRequest

        plan = backfill.plan_step(opened, one)
        if plan is None or isinstance(plan, Checkpoint):
            return plan
        self._job = spark_job("checkpoint", "fold", self._say)
        fold(self._job, one.pipeline.name, str(plan.slot), PlanRequest(origin=plan.origin))
        return backfill.complete_step(opened, one.pipeline.name, plan)

    def all(self, opened: "TidemarkContext", one: "Backfill") -> None:
        """Steps until nothing is left."""
        while not one.promoted and self.step(opened, one) is not None:
            pass

    def kill(self) -> None:
        """Ends a driver that was started."""
        if self._job is not None:
            self._job.kill()


class CompareOperator(PipelinesOperator):
    """Tells how the fork's newest state differs from that of the checkpoint it repeats, field by field."""

    ui_color = "#fef7e0"

    def execute(self, context: Context) -> Ids:
        """Returns `{"live", "fork"}`: ids of the two checkpoints; what differs is in the log, and asked with.

        Raises:
            TidemarkError: state could not be read; the task is retried.
        """
        opened = open_tidemark()
        with answering():
            one = found(opened, context, self.pipelines)
            self.log.info("%s", summary(opened, one))
            pair = one.pair()
        return {} if pair is None else {"live": pair.recorded.plan.name, "fork": pair.repeated.plan.name}


class ApproveOperator(ApprovalOperator):
    """Asks whether the fork shall become live, with the differences beside the question; or does not ask, by the mode.

    Args:
        pipelines: names that may be asked for.
        **kwargs: as ApprovalOperator takes them.
    """

    ui_color = "#f3e8fd"

    def __init__(self, *, pipelines: Sequence[str], **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(subject="Make the backfilled timeline live?", **kwargs)
        self.pipelines = list(pipelines)

    def execute(self, context: Context) -> Any:  # noqa: ANN401
        """Waits for an answer; returns at once where the mode is `promote`.

        Raises:
            AirflowSkipException: the mode is `compare`, so nothing is promoted.
        """
        conf = asked(context, self.pipelines)
        if conf.mode == "compare":
            raise AirflowSkipException("compare only: the fork stays beside the live timeline")
        if conf.mode == "promote":
            return None
        opened = open_tidemark()
        with answering():
            self.body = f"{summary(opened, found(opened, context, self.pipelines))}\n\n{_ANSWERS}"
        return super().execute(context)


class PromoteOperator(PipelinesOperator):
    """Repeats what has completed meanwhile, and makes the fork the live timeline: one fenced step.

    Args:
        checkpoints: the asset of completed checkpoints of each pipeline, by its name.
        **kwargs: as PipelinesOperator takes them.
    """

    ui_color = "#fce8e6"

    def __init__(self, *, checkpoints: dict[str, Asset], **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(pipelines=list(checkpoints), outlets=list(checkpoints.values()), **kwargs)
        self.checkpoints = checkpoints
        self._jobs = StepJobs(self.log.info)

    def execute(self, context: Context) -> Ids:
        """Returns `{"timeline", "replaced"}`; a repetition finds what it did.

        Raises:
            AirflowFailException: the fork lacks what the live timeline has, or something else became live.
            TidemarkError: anything else; the task is retried.
        """
        from tidemark.answers.checkpoint_facts import checkpoint_facts
        from tidemark.operations import backfill

        opened = open_tidemark()
        with answering():
            one = found(opened, context, self.pipelines)
            done = backfill.promote(opened, one, lambda: self._jobs.all(opened, one))
        name = one.pipeline.name
        self.outlets = [self.checkpoints[name]]
        newest = next(one.coordinator.checkpoints())
        announce(context, self.outlets, checkpoint_facts(newest), [newest.plan.name])
        self.log.info("timeline %s is live; %s ended, and stays readable", one.fork, done.closing.timeline)
        return {"timeline": one.fork, "replaced": [c.plan.name for c in done.replaced]}

    def on_kill(self) -> None:
        """Ends the driver, where this task started one."""
        self._jobs.kill()
