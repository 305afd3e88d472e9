"""The tasks of a backfill: plan, repeat (mapped), compare, approve, promote.

Airflow does not order mapped tasks, so each task makes the next steps that are missing in the store; only one runs at a
time. All progress is in the store, so any task may be killed or repeated. Airflow limits the number of mapped tasks
(`core.max_map_length`), so a task of a long backfill makes several steps.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Asset, Context
from airflow.sdk.configuration import conf as conf_of_airflow
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from tidemark.airflow.assets import checkpoints_of
from tidemark.airflow.backfill_conf import FORK, open_run_backfill, read_form, summary
from tidemark.airflow.checkpoint_tasks import Ids, announce, open_tidemark
from tidemark.airflow.form_answers import PipelinesOperator, fail_on_refusal
from tidemark.airflow.spark_jobs import CHECKPOINT_JOB, SparkJob, fold, spark_job

if TYPE_CHECKING:
    from tidemark.context import Context as TidemarkContext
    from tidemark.coordinator.recovery.backfill import Backfill
    from tidemark.model.checkpoint.manifest import Checkpoint

_NOTHING = "no step is left"
_SHOWN = 20
"""The number of ids in a text."""
_ANSWERS = "Approve: the fork catches up and becomes live. Reject: it stays next to the live timeline."


class PlanBackfillOperator(PipelinesOperator):
    """Checks the form and shows the plan: the fork, its steps, and the records that Kafka lacks. Writes nothing."""

    ui_color = "#e8f0fe"

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Returns the arguments of each mapped task, and pushes the fork's name as XCom `FORK`.

        Raises:
            AirflowFailException: the form is invalid, or Kafka lacks records; the message says what to do next.
            TidemarkError: the store or Kafka did not answer; the task is retried.
        """
        from tidemark.model.checkpoint.codec import body_of
        from tidemark.operations import backfill
        from tidemark.operations.backfill import describe_outlook

        with fail_on_refusal():
            conf, opened = read_form(context, self.pipelines), open_tidemark()
            outlook = backfill.open_backfill(opened, conf.pipeline, conf.request(context["dag_run"].run_id)).outlook()
        for name, value in body_of(describe_outlook(outlook)).items():
            self.log.info("%s: %s", name, value)
        shares = share_steps([step.ids for step in outlook.left], conf_of_airflow.getint("core", "max_map_length"))
        if shares and shares[0]["count"] > 1:
            self.log.info("%d steps in %d mapped tasks", len(outlook.left), len(shares))
        context["ti"].xcom_push(FORK, outlook.fork)
        return shares or [{"step": _NOTHING, "count": 1}]


def share_steps(steps: Sequence[Sequence[int]], tasks: int) -> list[dict[str, Any]]:
    """Divides steps, given by the ids that they repeat, among at most so many tasks, as evenly as possible."""
    shares = min(len(steps), tasks)
    cuts = [len(steps) * n // shares for n in range(shares + 1)] if shares else []
    divided = [steps[begin:end] for begin, end in pairwise(cuts)]
    return [{"step": _text_of([n for step in share for n in step]), "count": len(share)} for share in divided]


def _text_of(ids: Sequence[int]) -> str:
    names = [f"chk-{n}" for n in ids]
    return " ".join(names) if len(names) <= _SHOWN else f"{names[0]} … {names[-1]}"


class RepeatOperator(PipelinesOperator):
    """Makes the fork's next steps, each with plan, fold in a separate Spark application, gate and manifest.

    Args:
        step: the checkpoints that `plan` expected it to repeat; the store decides which ones the task repeats.
        count: the number of steps to make. A repeated task may make more; later ones then find fewer, or none.
        **kwargs: passed to PipelinesOperator.
    """

    ui_color = "#e6f4ea"

    def __init__(self, *, step: str, count: int = 1, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self.step = step
        self.count = count
        self._jobs = StepJobs(self.log.info)

    def execute(self, context: Context) -> Ids:
        """Returns `{"checkpoint", "repeats"}` of its last step, or nothing if no step was left.

        Raises:
            AirflowFailException: the gate refused a step, Kafka lacks records, or the code has changed.
            TidemarkError: any other error; the next try makes the next attempt at the same plan.
        """
        if _has_failed(context):
            raise AirflowFailException("an earlier step failed, and no step can be skipped: clear both tasks")
        opened, made, label = open_tidemark(), None, _NOTHING
        with fail_on_refusal():
            one = open_run_backfill(opened, context, self.pipelines)
            one.begin()
            for n in range(self.count):
                step = self._jobs.step(opened, one)
                if step is None:
                    break
                made, label = step, f"{step.plan.name} repeats {_text_of(step.plan.replays)}"
                self.log.info("%s (%d of %d)", label, n + 1, self.count)
        cast("dict[str, object]", context)["repeated"] = label  # labels the mapped task
        if made is None:
            self.log.info("%s", label)
            return {}
        return {"checkpoint": made.plan.name, "repeats": [f"chk-{n}" for n in made.plan.replays]}

    def on_kill(self) -> None:
        """Ends the Spark driver if this task started one."""
        self._jobs.kill()


def _has_failed(context: Context) -> bool:
    """Whether another mapped task has failed in this DAG run; the gate would refuse the same step again."""
    ti = context["ti"]
    count = ti.get_ti_count(dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id], states=["failed"])
    return count > 0


class StepJobs:
    """Makes the steps of a fork, each in a separate Spark application."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._job: SparkJob | None = None

    def step(self, opened: "TidemarkContext", one: "Backfill") -> "Checkpoint | None":
        """Makes one step; returns None if no step is left."""
        from tidemark.model.checkpoint.manifest import Checkpoint
        from tidemark.operations import backfill
        from tidemark.ports import PlanRequest

        plan = backfill.plan_step(opened, one)
        if plan is None or isinstance(plan, Checkpoint):
            return plan
        self._job = spark_job(CHECKPOINT_JOB, "fold", self._say)
        fold(self._job, one.pipeline.name, str(plan.slot), PlanRequest(origin=plan.origin, replay_to=plan.replays[-1]))
        return backfill.complete_step(opened, one.pipeline.name, plan)

    def all(self, opened: "TidemarkContext", one: "Backfill") -> None:
        """Makes all remaining steps."""
        while not one.promoted and self.step(opened, one) is not None:
            pass

    def kill(self) -> None:
        """Ends the Spark driver if one was started."""
        if self._job is not None:
            self._job.kill()


class CompareOperator(PipelinesOperator):
    """Reports, field by field, how the fork's newest state differs from the checkpoint that it repeats."""

    ui_color = "#fef7e0"

    def execute(self, context: Context) -> Ids:
        """Returns `{"live", "fork"}`, the ids of the two checkpoints. The log and the approval show the differences.

        Raises:
            TidemarkError: a state could not be read; the task is retried.
        """
        opened = open_tidemark()
        with fail_on_refusal():
            one = open_run_backfill(opened, context, self.pipelines)
            self.log.info("%s", summary(opened, one))
            pair = one.pair()
        return {} if pair is None else {"live": pair.recorded.plan.name, "fork": pair.repeated.plan.name}


class ApproveOperator(ApprovalOperator):
    """Shows the differences and asks whether to make the fork live, unless the mode already decides it.

    Args:
        pipelines: names of the pipelines that the form offers.
        **kwargs: passed to ApprovalOperator.
    """

    ui_color = "#f3e8fd"

    def __init__(self, *, pipelines: Sequence[str], **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(subject="Make the backfilled timeline live?", **kwargs)
        self.pipelines = list(pipelines)

    def execute(self, context: Context) -> Any:  # noqa: ANN401
        """Waits for an answer; returns at once if the mode is `promote`.

        Raises:
            AirflowSkipException: the mode is `compare`, so the fork is not promoted.
        """
        conf = read_form(context, self.pipelines)
        if conf.mode == "compare":
            raise AirflowSkipException("compare only: the fork stays next to the live timeline")
        if conf.mode == "promote":
            return None
        opened = open_tidemark()
        with fail_on_refusal():
            self.body = f"{summary(opened, open_run_backfill(opened, context, self.pipelines))}\n\n{_ANSWERS}"
        return super().execute(context)


class PromoteOperator(PipelinesOperator):
    """Repeats checkpoints that completed meanwhile, and makes the fork the live timeline, in one fenced step.

    Args:
        checkpoints: each pipeline's asset of completed checkpoints, by the pipeline's name.
        **kwargs: as PipelinesOperator takes them.
    """

    ui_color = "#fce8e6"

    def __init__(self, *, checkpoints: dict[str, Asset], **kwargs: Any) -> None:  # noqa: ANN401
        outlets = [*checkpoints.values(), *map(checkpoints_of, checkpoints)]
        super().__init__(pipelines=list(checkpoints), outlets=outlets, **kwargs)
        self.checkpoints = checkpoints
        self._jobs = StepJobs(self.log.info)

    def execute(self, context: Context) -> Ids:
        """Returns `{"timeline", "replaced"}`; if it is repeated, it returns the same again.

        Raises:
            AirflowFailException: the fork lacks records of the live timeline, or another timeline became live.
            TidemarkError: any other error; the task is retried.
        """
        from tidemark.answers.checkpoint_facts import checkpoint_facts
        from tidemark.operations import backfill

        opened = open_tidemark()
        with fail_on_refusal():
            one = open_run_backfill(opened, context, self.pipelines)
            done = backfill.promote(opened, one, lambda: self._jobs.all(opened, one))
        name = one.pipeline.name
        self.outlets = [self.checkpoints[name], checkpoints_of(name)]
        facts = checkpoint_facts(next(one.coordinator.checkpoints()))
        announce(context, self.outlets[:1], facts, [facts.id])
        announce(context, self.outlets[1:], facts)
        self.log.info("timeline %s is live; %s has ended and stays readable", one.fork, done.closing.timeline)
        return {"timeline": one.fork, "replaced": [c.plan.name for c in done.replaced]}

    def on_kill(self) -> None:
        """Ends the Spark driver if this task started one."""
        self._jobs.kill()
