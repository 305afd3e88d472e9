"""The trigger form of a checkpoint's DAG run, and the model that refuses unknown keys.

Airflow checks the form's fields but accepts unknown keys, so a misspelt `max_record` would read everything.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from airflow.sdk import Param
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from tidemark.airflow.form_answers import RARE, number_field, savepoint_field, switch, text_field, validate_conf

if TYPE_CHECKING:
    from tidemark.ports import PlanRequest


class RunConf(BaseModel):
    """The `conf` of a DAG run.

    Attributes:
        max_records: the most records per checkpoint, over all partitions; None = as the pipeline declares.
        until: stop before the first record at or after this time, instead of at the data interval's end.
        accept_loss: record lost offsets and continue, instead of failing.
        allow_non_restored_state: drop the state of operators that the pipeline no longer declares.
        savepoint: the savepoint to restore before the first of these runs; for Airflow's own backfill.
        restore_id: names that restore: all runs of a backfill have the same conf, and only the first one restores.
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
            raise ValueError("savepoint and restore_id go together: without an id, every run would restore again")
        return self


def form(pipeline: str) -> dict[str, Param]:
    """Returns the fields of the trigger form and of the backfill form; they are the same in every parse."""
    return {
        "max_records": number_field(
            "Records at most",
            "The most that one checkpoint reads, over all partitions; the run then makes several. Empty: as declared.",
        ),
        "until": text_field(
            "Until",
            "Stop before the first record at or after this time. Empty: as the DAG declares.",
            format="date-time",
        ),
        **_restore_fields(pipeline),
        "accept_loss": switch(
            "Accept loss",
            "If Kafka deleted offsets before they were read, record the gap and continue.",
            section=RARE,
        ),
        "allow_non_restored_state": switch(
            "Allow non-restored state",
            "Drop the state of operators that the pipeline no longer declares.",
            section=RARE,
        ),
    }


def _restore_fields(pipeline: str) -> dict[str, Param]:
    where = "Restore a savepoint first"
    return {
        "savepoint": savepoint_field(
            pipeline,
            "Savepoint",
            "The first run of a backfill restores it; the others continue from there.",
            section=where,
        ),
        "restore_id": text_field(
            "Restore id",
            "Required with the savepoint: a new name for this restore, for example r1. The form of Airflow's backfill "
            "sends both only if Override parameters is ticked.",
            section=where,
        ),
    }


def parse_conf(conf: Mapping[str, object]) -> RunConf:
    """Validates the `conf`.

    Raises:
        UsageError: there are unknown keys or invalid values; the message lists them all.
    """
    return validate_conf(RunConf, conf)


def request_of(
    conf: RunConf, run: tuple[str, str], interval: tuple[datetime | None, datetime | None], until: bool
) -> "PlanRequest":
    """Returns the DAG run's request to the coordinator.

    Args:
        conf: the run's conf.
        run: ids of the DAG and of its run; the latter is recorded in plan and manifest.
        interval: the data interval; a run without a logical date has none.
        until: whether the DAG's ranges stop at the interval's end.
    """
    from tidemark.ports import PlanRequest

    start, end = interval
    if conf.until is not None:
        start, end, until = None, conf.until, True
    return PlanRequest(
        origin=run[1],
        run="/".join(run),
        interval_start=start,
        interval_end=end,
        until_interval_end=until and end is not None,
        max_records=conf.max_records,
        accept_loss=conf.accept_loss,
        allow_non_restored_state=conf.allow_non_restored_state,
    )
