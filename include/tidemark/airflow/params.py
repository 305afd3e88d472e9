"""What a person may ask of one DAG run: the trigger form, and the model that refuses every other key.

Airflow checks the form's fields and lets unknown keys pass, so a misspelt `max_record` would read everything.
"""

from collections.abc import Mapping
from datetime import datetime

from airflow.sdk import Param
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from tidemark.airflow.answering import parsed
from tidemark.ports import PlanRequest


class RunConf(BaseModel):
    """The `conf` of a DAG run.

    Attributes:
        max_records: offsets per partition and checkpoint; None = no bound.
        until: stop before the first record at or after this time, instead of at the data interval's end.
        accept_loss: record offsets that were lost, instead of stopping.
        allow_non_restored_state: leave the state of operators behind that the pipeline does not declare any more.
        savepoint: restore it before the first of these runs; for Airflow's own backfill.
        restore_id: names that restore: all runs of a backfill have one conf, and only the first of them restores.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_records: int | None = Field(None, ge=1, strict=True)
    until: AwareDatetime | None = None
    accept_loss: bool = Field(False, strict=True)
    allow_non_restored_state: bool = Field(False, strict=True)
    savepoint: str | None = None
    restore_id: str | None = None

    @model_validator(mode="after")
    def _go_together(self) -> "RunConf":
        if bool(self.savepoint) != bool(self.restore_id):
            raise ValueError("savepoint and restore_id go together: without an id every run would restore again")
        return self


def form() -> dict[str, Param]:
    """The fields of the trigger form; nothing in them varies from parse to parse."""
    return {
        "max_records": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Records at most",
            description="Offsets of each partition that one checkpoint reads; a backlog becomes several checkpoints.",
        ),
        "until": Param(
            None,
            type=["null", "string"],
            format="date-time",
            title="Until",
            description="Stop before the first record at or after this time. Empty: as the DAG declares.",
        ),
        "accept_loss": Param(
            False,
            type="boolean",
            title="Accept loss",
            description="Offsets that Kafka has deleted before they were read: record the gap and go on.",
        ),
        "allow_non_restored_state": Param(
            False,
            type="boolean",
            title="Allow non-restored state",
            description="Operators that are gone from the pipeline: leave their state behind, and go on without it.",
        ),
        **_restoring(),
    }


def _restoring() -> dict[str, Param]:
    return {
        "savepoint": Param(
            None,
            type=["null", "string"],
            title="Restore savepoint",
            description="For a backfill: the first run restores it, the following ones go on from there.",
        ),
        "restore_id": Param(
            None,
            type=["null", "string"],
            title="Restore id",
            description="Goes with the savepoint: any name that was not used for a restore before.",
        ),
    }


def parse_conf(conf: Mapping[str, object]) -> RunConf:
    """The `conf`, validated.

    Raises:
        UsageError: an unknown key, or a value that does not fit; each is named.
    """
    return parsed(RunConf, conf)


def request_of(
    conf: RunConf, run_id: str, interval: tuple[datetime | None, datetime | None], until: bool
) -> PlanRequest:
    """What the DAG run asks of the coordinator.

    Args:
        conf: of the run.
        run_id: names who asked, in plan and manifest.
        interval: the data interval; Airflow gives none to a run without a logical date.
        until: whether the DAG caps ranges at the interval's end.
    """
    start, end = interval
    if conf.until is not None:
        start, end, until = None, conf.until, True
    return PlanRequest(
        origin=run_id,
        interval_start=start,
        interval_end=end,
        until_interval_end=until and end is not None,
        max_records=conf.max_records,
        accept_loss=conf.accept_loss,
        allow_non_restored_state=conf.allow_non_restored_state,
    )
