"""`retention_dag()`: lets old checkpoints go and deletes what nobody needs, every day, for each pipeline (E11, D15).

The tasks of a pipeline are a group, and the group is mapped over the pipelines: what is wrong with one of them fails
its tasks and the DAG run, and the others are swept.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Asset, BaseOperator, Context, Param, chain, task_group
from airflow.sdk.exceptions import AirflowSkipException
from pydantic import BaseModel, ConfigDict

from tidemark.airflow.assets import retention_asset
from tidemark.airflow.checkpoint_tasks import PLAN, Ids, announce, open_tidemark
from tidemark.airflow.form_answers import answering, names_of, parsed
from tidemark.airflow.retries import retry_arguments
from tidemark.coordinator.checkpoints.restart import FixedDelay
from tidemark.declare.pipeline import Pipeline
from tidemark.model.core.savepoint_expiry import span_ms
from tidemark.model.retention.deletion import spans

GROUP, APPROVE, SWEEP, VERIFY = "pipelines", "approve", "sweep", "verify"
_SHOWN = 50


class RetentionConf(BaseModel):
    """The `conf` of a DAG run.

    Attributes:
        grace: how long a file must have been free before it goes: `1h`, `7d`, `0`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    grace: str

    @property
    def grace_ms(self) -> int:
        """In ms.

        Raises:
            UsageError: it cannot be read.
        """
        return span_ms(self.grace)


class RetentionOperator(BaseOperator):
    """A task of one pipeline's group.

    Args:
        pipeline: its name; a field that is rendered, because the group is mapped over it.
        **kwargs: as BaseOperator takes them.
    """

    template_fields: Sequence[str] = ("pipeline",)

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def grace_ms(self, context: Context) -> int:
        """What the form asks for; a scheduled run, what the DAG file says.

        Raises:
            UsageError: the form does not fit.
        """
        conf = parsed(RetentionConf, {**context["params"], **(context["dag_run"].conf or {})})
        return conf.grace_ms


class PlanRetentionOperator(RetentionOperator):
    """Tells what would be released and deleted, file by file, and what keeps the rest. Writes nothing."""

    ui_color = "#e8f0fe"

    def execute(self, context: Context) -> Ids:
        """Returns the counts and bytes of the plan; the files are in the log.

        Raises:
            AirflowFailException: the form does not fit; the message says what to type.
            TidemarkError: nobody knows what is needed, or the store did not answer; the task is retried.
        """
        from tidemark.answers.bodies import body_of
        from tidemark.operations import retention
        from tidemark.operations.retention import describe_plan

        opened = open_tidemark()
        with answering():
            grace_ms = self.grace_ms(context)
            found = retention.plan_sweep(opened, self.pipeline)
        facts: Ids = body_of(describe_plan(found, grace_ms, shown=0))
        self.log.info("%s", _page(facts))
        for f in found.free[:_SHOWN]:
            self.log.info("free: %s, %d bytes: %s", f.path, f.bytes, f.why)
        return {name: value for name, value in facts.items() if name not in ("free", "unknown", "kept_by")}


class ApproveRetentionOperator(ApprovalOperator):
    """Asks whether the plan shall be carried out, with its counts beside the question; not where it is empty."""

    ui_color = "#f3e8fd"

    def __init__(self, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(subject="Delete what nothing keeps any more?", **kwargs)

    def execute(self, context: Context) -> Any:  # noqa: ANN401
        """Waits for an answer."""
        plan = context["ti"].xcom_pull(task_ids=PLAN, map_indexes=context["ti"].map_index)
        if not _is_due(plan):
            return None
        self.body = _page(plan)
        return super().execute(context)


class SweepOperator(RetentionOperator):
    """Releases and deletes. Killed anywhere, a repetition comes to the same end.

    Args:
        assets: the retention asset of each pipeline, by its name; the outlets.
        **kwargs: as RetentionOperator takes them.
    """

    ui_color = "#fce8e6"

    def __init__(self, *, assets: dict[str, Asset], **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        self.assets = assets

    def execute(self, context: Context) -> Ids:
        """Returns what was released and deleted, in names, counts and bytes; the same tells the asset.

        Raises:
            AirflowFailException: the newest checkpoint is damaged, so nothing was released.
            TidemarkError: anything else; the task is retried.
        """
        from tidemark.answers.bodies import body_of
        from tidemark.operations import retention
        from tidemark.operations.retention import describe_sweep

        self._skip_rejected(context)
        opened = open_tidemark()
        with answering():
            done = retention.sweep(opened, self.pipeline, grace_ms=self.grace_ms(context))
        facts: Ids = body_of(describe_sweep(done))
        self.outlets = [self.assets[self.pipeline]]
        announce(context, self.outlets, facts, [context["dag_run"].run_id])
        self.log.info("%s", "\n".join(f"{name}: {value}" for name, value in facts.items()))
        return facts

    def _skip_rejected(self, context: Context) -> None:
        """Skips this pipeline where its plan was rejected: Airflow skips nothing behind a task of a mapped group."""
        if APPROVE not in self.upstream_task_ids:
            return
        answer = context["ti"].xcom_pull(task_ids=APPROVE, map_indexes=context["ti"].map_index)
        if answer is not None and answer["chosen_options"] != [ApprovalOperator.APPROVE]:
            raise AirflowSkipException(f"the plan of {self.pipeline} was rejected: nothing is deleted")


class VerifyRetentionOperator(RetentionOperator):
    """Checks every restore point that is left: manifests, logs, files and their sizes (I4)."""

    ui_color = "#e6f4ea"

    def execute(self, context: Context) -> Ids:
        """Returns `{"pipeline", "verified"}`.

        Raises:
            AirflowFailException: a restore point is damaged; the message names each file and what it breaks.
        """
        from tidemark.coordinator.recovery.integrity import refuse_damaged
        from tidemark.operations import verification

        with answering():
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
) -> DAG:
    """The DAG that lets checkpoints go and deletes files; called at the module level of a DAG file.

    Which checkpoints are kept is declared per pipeline, by `checkpoint_dag(retention=...)`; without it all are.

    Args:
        pipelines: whose files; the group of tasks is mapped over them, and none waits for another.
        dag_id: as Airflow shows it.
        schedule: cron expression or preset; None = on demand only.
        start: no scheduled run before it.
        grace: how long a file must have been free before it goes: `1h`, `7d`, `0`; a form may ask for another one.
        approve: ask somebody between plan and sweep, for each pipeline.

    Raises:
        DeclarationError: no pipelines.
        UsageError: a grace time that is none.
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
        tags=["tidemark", *names],
        doc_md=_PAGE,
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
    told = {name: value for name, value in plan.items() if name not in ("free", "unknown", "kept_by")}
    names = told["released"]
    shown = {**told, "released": spans([str(name) for name in names] if isinstance(names, list) else [])}
    return "\n".join(f"{name}: {value}" for name, value in shown.items())


_GRACE = "How long a file must have been free before it goes: 1h, 7d, 0. What a run releases counts as free since then."

_PAGE = """### Retention
Every day, for each pipeline: `plan` says which checkpoints the rule lets go, which files nobody needs, and what keeps
the rest; `sweep` releases them and deletes what has been free for the grace time; `verify` checks every restore point
that is left. What one run releases the next one deletes. A fault of one pipeline fails its tasks and the run; the
others are swept.

Savepoints, forks, plans and jobs in progress, legal holds and the newest checkpoint always keep their files.

REST: `POST /api/v2/dags/retention/dagRuns` with `{"logical_date": null, "conf": {"grace": "0"}}` deletes at once.

`tidemark retention plan PIPELINE` tells the same without Airflow.
"""
