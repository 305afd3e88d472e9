"""`erase_dag()`: a trigger form that erases a key from every restore point; its tasks are plan >> erase."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from airflow.sdk import DAG, Context, Param
from pydantic import Field

from tidemark.airflow.form_answers import pipeline_field, switch, text_field
from tidemark.airflow.form_dags import FormKind, FormOptions, form_dag
from tidemark.airflow.task_names import PLAN
from tidemark.airflow.verb_operators import CallVerbOperator, DryRunConf, PlanVerbOperator, caller, execute_field
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import UsageError

if TYPE_CHECKING:
    from tidemark.context import Context as TidemarkContext
    from tidemark.coordinator.retention.key_erasure import ErasureRequest

ERASE = "erase"


class EraseConf(DryRunConf):
    """The `conf` of a DAG run.

    Attributes:
        uid: the operator's uid.
        key: values of its key columns, as text, in the order of `key_by`.
        by: of a FlatMap, the columns of its rows that hold these values.
        block, now, owner: as for `tidemark erase`; the owner is by default the user who triggers the DAG.
    """

    uid: str
    key: list[str]
    by: list[str] | None = None
    block: bool = Field(False, strict=True)
    now: bool = Field(False, strict=True)
    owner: str | None = None

    def request(self, user: str) -> "ErasureRequest":
        """Returns the request.

        Args:
            user: the owner if the form names none.

        Raises:
            UsageError: the operator or the key is missing.
        """
        from tidemark.coordinator.retention.key_erasure import ErasureRequest

        if not self.uid or not self.key:
            raise UsageError("uid or key is missing", next="give the operator's uid, and one value per key column.")
        return ErasureRequest(
            uid=self.uid,
            key=tuple(self.key),
            forever=self.block,
            owner=self.owner or user,
            now=self.now,
            by=tuple(self.by or ()),
        )


class PlanEraseOperator(PlanVerbOperator[EraseConf]):
    """Shows which restore points and files hold the key, and what the erasure does not reach. Writes nothing."""

    form_model = EraseConf

    def answer(self, opened: "TidemarkContext", conf: EraseConf, context: Context) -> object:
        """Returns where the key is.

        Raises:
            UsageError, NotFoundError, ConflictError: see `erasure.plan_erasure`.
        """
        from tidemark.operations import erasure

        return erasure.describe_erasure(erasure.plan_erasure(opened, conf.pipeline, conf.request(caller(context))))


class CallEraseOperator(CallVerbOperator[EraseConf]):
    """Rewrites the files that hold the key without it, in every restore point. Needs no Spark."""

    form_model = EraseConf

    def answer(self, opened: "TidemarkContext", conf: EraseConf, context: Context) -> object:
        """Returns the erasure; a repeated task finishes what a killed one left.

        Raises:
            BusyError: another process works on a timeline of the pipeline.
            UsageError, NotFoundError, ConflictError: see `erasure.erase`.
        """
        from tidemark.operations import erasure

        return erasure.describe_erasure(erasure.erase(opened, conf.pipeline, conf.request(caller(context))))


def erase_dag(pipelines: Sequence[Pipeline], **options: Unpack[FormOptions]) -> DAG:
    """Creates the DAG that erases keys on demand; call it at the module level of a DAG file.

    Airflow keeps the form, and so the key, with the DAG run: delete the run once the erasure is done.

    Args:
        pipelines: the pipelines that the form offers.
        **options: see `FormOptions`.

    Raises:
        DeclarationError: `pipelines` is empty, or an option is invalid.
    """
    return form_dag(_ERASE_DAG, pipelines, options)


_PAGE = """### An erasure on demand
Removes a key from an operator's state, in the live state and in every restore point. Task `plan` shows where the key is
and what the erasure does not reach; task `erase` carries it out if `execute` is on, and is skipped otherwise.

**Airflow keeps the key**: it is part of the DAG run's configuration and of its logs. Delete the DAG run and its logs
when you no longer need them.

REST: `POST /api/v2/dags/erase/dagRuns` with
`{"logical_date": null, "conf": {"pipeline": "...", "uid": "aircraft", "key": ["N14228"], "execute": true}}`.

`tidemark erase PIPELINE UID --key VALUE` does the same without Airflow.
"""


def _fields(pipelines: list[str]) -> dict[str, Param]:
    later = "Also ignore all later records of the key."
    return {
        "pipeline": pipeline_field(pipelines),
        "uid": Param("", type="string", title="Operator", description="The operator's uid, for example aircraft."),
        "key": Param(
            [],
            type="array",
            items={"type": "string"},
            title="Key",
            description="One value per key column, in the order of key_by, each on a line of its own.",
        ),
        "by": Param(
            None,
            type=["null", "array"],
            items={"type": "string"},
            title="Columns of a FlatMap",
            description="Of a FlatMap, which has no key: the column of its rows for each value.",
        ),
        "execute": execute_field(),
        "block": switch("Block", later),
        "now": switch("Now", "Delete the old files now, not in the next sweep."),
        "owner": text_field("Owner", "Who is responsible. Empty: the user who triggers the DAG."),
    }


_ERASE_DAG = FormKind(
    summary="Erase: remove a key from every restore point",
    fields=_fields,
    page=_PAGE,
    tasks={PLAN: PlanEraseOperator, ERASE: CallEraseOperator},
)
