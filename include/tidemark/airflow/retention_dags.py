"""`retention_dag()`: releases old checkpoints and deletes unused files, every day, for each pipeline.

The tasks of a pipeline form a group, which is mapped over the pipelines: an error in one pipeline fails its tasks and
the DAG run, and the other pipelines are still swept.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Unpack

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Asset, BaseOperator, Context, Param, chain, task_group
from airflow.sdk.exceptions import AirflowSkipException
from pydantic import BaseModel, ConfigDict

from tidemark.airflow.assets import retention_asset
from tidemark.airflow.checkpoint_tasks import Ids, announce, open_tidemark
from tidemark.airflow.dag_options import SharedOptions, shared_arguments
from tidemark.airflow.form_answers import fail_on_refusal, names_of, validate_conf
from tidemark.airflow.retries import retry_arguments
from tidemark.airflow.task_names import PLAN
from tidemark.coordinator.checkpoints.restart import FixedDelay
from tidemark.declare.pipeline import Pipeline
from tidemark.model.core.savepoint_expiry import span_ms
from tidemark.model.retention.deletion import spans

GROUP, APPROVE, SWEEP, VERIFY = "pipelines", "approve", "sweep", "verify"
_SHOWN = 50


class RetentionConf(BaseModel):
    """The `conf` of a DAG run.

    Attributes:
        grace: how long a file must have been free before it is deleted: `1h`, `7d`, `0`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    grace: str

    @property
    def grace_ms(self) -> int:
        """Returns the grace time in milliseconds.

        Raises:
            UsageError: the grace time cannot be parsed.
        """
        return span_ms(self.grace)


class RetentionOperator(BaseOperator):
    """A task of one pipeline's group.

    Args:
        pipeline: the pipeline's name; a templated field, because the group is mapped over it.
        **kwargs: passed to BaseOperator.
    """

    template_fields: Sequence[str] = ("pipeline",)

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def grace_ms(self, context: Context) -> int:
        """Returns the form's grace time, or in a scheduled run the DAG file's.

        Raises:
            UsageError: the form is invalid.
        """
        conf = validate_conf(RetentionConf, {**context["params"], **(context["dag_run"].conf or {})})
        return conf.grace_ms


class PlanRetentionOperator(RetentionOperator):
    """Lists the checkpoints to release, the files to delete, and what keeps the rest. Writes nothing."""

    ui_color = "#e8f0fe"

    def execute(self, context: Context) -> Ids:
        """Returns the counts and bytes of the plan; the log lists the files.

        Raises:
            AirflowFailException: the form is invalid; the message says what to do next.
            TidemarkError: the files in use are not known, or the store did not answer; the task is retried.
        """
        from tidemark.model.checkpoint.codec import body_of
        from tidemark.operations import retention
        from tidemark.operations.retention import describe_plan

        opened = open_tidemark()
        with fail_on_refusal():
            grace_ms = self.grace_ms(context)
            found = retention.plan_sweep(opened, self.pipeline)
        facts: Ids = body_of(describe_plan(found, grace_ms, shown=0))
        self.log.info("%s", _page(facts))
        for f in found.free[:_SHOWN]:
            self.log.info("free: %s, %d bytes: %s", f.path, f.bytes, f.why)
        return {name: value for name, value in facts.items() if name not in ("free", "unknown", "kept_by")}


class ApproveRetentionOperator(ApprovalOperator):
    """Shows the counts of the plan and asks whether to carry it out; an empty plan needs no answer."""

    ui_color = "#f3e8fd"

    def __init__(self, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(subject="Delete the files that nothing keeps?", **kwargs)

    def execute(self, context: Context) -> Any:  # noqa: ANN401
        """Waits for an answer."""
        plan = context["ti"].xcom_pull(task_ids=PLAN, map_indexes=context["ti"].map_index)
        if not _is_due(plan):
            return None
        self.body = _page(plan)
        return super().execute(context)


class SweepOperator(RetentionOperator):
    """Releases checkpoints and deletes files. If it is killed, a repetition has the same result.

    Args:
        assets: each pipeline's retention asset, by the pipeline's name; the outlets.
        **kwargs: passed to RetentionOperator.
    """

    ui_color = "#fce8e6"

    def __init__(self, *, assets: dict[str, Asset], **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self.assets = assets

    def execute(self, context: Context) -> Ids:
        """Returns names, counts and bytes of the released and deleted objects; the asset's event has the same facts.

        Raises:
            AirflowFailException: the newest checkpoint is damaged, so nothing was released.
            TidemarkError: any other error; the task is retried.
        """
        from tidemark.model.checkpoint.codec import body_of
        from tidemark.operations import retention
        from tidemark.operations.retention import describe_sweep

        self._skip_rejected(context)
        opened = open_tidemark()
        with fail_on_refusal():
            done = retention.sweep(opened, self.pipeline, grace_ms=self.grace_ms(context))
        facts: Ids = body_of(describe_sweep(done))
        self.outlets = [self.assets[self.pipeline]]
        announce(context, self.outlets, facts, [context["dag_run"].run_id])
        self.log.info("%s", "\n".join(f"{name}: {value}" for name, value in facts.items()))
        return facts

    def _skip_rejected(self, context: Context) -> None:
        """Skips this pipeline if its plan was rejected: in a mapped group, Airflow does not skip downstream tasks."""
        if APPROVE not in self.upstream_task_ids:
            return
        answer = context["ti"].xcom_pull(task_ids=APPROVE, map_indexes=context["ti"].map_index)
        if answer is not None and answer["chosen_options"] != [ApprovalOperator.APPROVE]:
            raise AirflowSkipException(f"the plan of {self.pipeline} was rejected, so nothing is deleted")


class VerifyRetentionOperator(RetentionOperator):
    """Checks every remaining restore point: manifests, logs, files and their sizes."""

    ui_color = "#e6f4ea"

    def execute(self, context: Context) -> Ids:
        """Returns `{"pipeline", "verified"}`.

        Raises:
            AirflowFailException: a restore point is damaged; the message lists each file and the points it breaks.
        """
        from tidemark.coordinator.recovery.integrity import refuse_damaged
        from tidemark.operations import verification

        with fail_on_refusal():
            verified = verification.verify(open_tidemark(), self.pipeline)
            refuse_damaged(verified)
        return {"pipeline": self.pipeline, "verified": len(verified.points)}


def retention_dag(
    pipelines: Sequence[Pipeline],
    *,
    dag_id: str = "retention",
    schedule: str | None = "@daily",
    start: datetime | None = None,
    grace: str = "1h",
    approve: bool = False,
    **options: Unpack[SharedOptions],
) -> DAG:
    """Creates the DAG that releases checkpoints and deletes files; call it at the module level of a DAG file.

    `checkpoint_dag(retention=...)` declares for each pipeline which checkpoints to keep; without it, all are kept.

    Args:
        pipelines: the pipelines to sweep; the group of tasks is mapped over them, and none waits for another.
        dag_id: the DAG's id.
        schedule: cron expression or preset; None = on demand only.
        start: no scheduled run begins before this time.
        grace: how long a file must have been free before it is deleted: `1h`, `7d`, `0`; the form can override it.
        approve: wait for an approval between plan and sweep, for each pipeline.
        **options: `default_args`, `tags` and `pool`, see `SharedOptions`.

    Raises:
        DeclarationError: `pipelines` is empty, or an option is invalid.
        UsageError: the grace time cannot be parsed.
    """
    names = names_of(pipelines, "retention_dag")
    assets = {pipeline.name: retention_asset(pipeline) for pipeline in pipelines}
    with DAG(
        dag_id,
        description=f"Retention of {', '.join(names)}: plan, sweep, verify",
        schedule=schedule,
        start_date=start,
        catchup=False,
        max_active_runs=1,
        params=_form(grace),
        doc_md=_PAGE,
        **shared_arguments(["tidemark", *names], options),
    ) as dag:
        _tasks(names, assets, approve=approve)
    return dag


def _form(grace: str) -> dict[str, Param]:
    span_ms(grace)
    return {"grace": Param(grace, type="string", title="Grace", description=_GRACE)}


def _tasks(names: Sequence[str], assets: dict[str, Asset], *, approve: bool) -> None:
    shared: dict[str, Any] = {
        "map_index_template": "{{ task.pipeline }}",
        **retry_arguments(FixedDelay(attempts=3)),
    }

    @task_group(group_id=GROUP, prefix_group_id=False)
    def one(pipeline: str) -> None:
        shared["pipeline"] = pipeline
        line: list[Any] = [
            PlanRetentionOperator(task_id=PLAN, doc_md=PlanRetentionOperator.__doc__, **shared),
            SweepOperator(
                task_id=SWEEP,
                doc_md=SweepOperator.__doc__,
                assets=assets,
                outlets=list(assets.values()),
                **shared,
            ),
            VerifyRetentionOperator(task_id=VERIFY, doc_md=VerifyRetentionOperator.__doc__, **shared),
        ]
        if approve:
            line.insert(1, ApproveRetentionOperator(task_id=APPROVE, doc_md=ApproveRetentionOperator.__doc__))
        chain(*line)

    one.expand(pipeline=list(names))


def _is_due(plan: Mapping[str, object]) -> bool:
    return bool(plan["released"] or plan["disposed"] or plan["ended_jobs"] or plan["free_files"] or plan["log_files"])


def _page(plan: Mapping[str, object]) -> str:
    facts = {name: value for name, value in plan.items() if name not in ("free", "unknown", "kept_by")}
    names = facts["released"]
    shown = {**facts, "released": spans([str(name) for name in names] if isinstance(names, list) else [])}
    return "\n".join(f"{name}: {value}" for name, value in shown.items())


_GRACE = (
    "How long a file must have been free before it is deleted: 1h, 7d, 0. A released file is free from that run on."
)

_PAGE = """### Retention
Every day, for each pipeline: `plan` lists the checkpoints that the rule releases, the unused files, and what keeps the
rest; `sweep` releases the checkpoints and deletes files that have been free for the grace time; `verify` checks every
remaining restore point. The next run deletes what one run releases. An error in one pipeline fails its tasks and the
run; the other pipelines are still swept.

Savepoints, forks, plans and jobs in progress, legal holds and the newest checkpoint always keep their files.

REST: `POST /api/v2/dags/retention/dagRuns` with `{"logical_date": null, "conf": {"grace": "0"}}` deletes at once.

`tidemark retention plan PIPELINE` shows the same without Airflow.
"""
