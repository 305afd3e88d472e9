"""What a person may ask of one DAG run: the trigger form, and the model that refuses every other key.

Airflow checks the form's fields and lets unknown keys pass, so a misspelt `max_record` would read everything.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from airflow.sdk import Param
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from tidemark.airflow.form_answers import SELDOM, number_field, parsed, savepoint_field, switch, text_field

if TYPE_CHECKING:
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


def form(pipeline: str) -> dict[str, Param]:
    """The fields of the trigger form and of the backfill form; nothing in them varies from parse to parse."""
    return {
        "max_records": number_field(
            "Records at most",
            "Offsets of each partition that one checkpoint reads; a backlog becomes several checkpoints.",
        ),
        "until": text_field(
            "Until",
            "Stop before the first record at or after this time. Empty: as the DAG declares.",
            format="date-time",
        ),
        **_restoring(pipeline),
        "accept_loss": switch(
            "Accept loss",
            "Offsets that Kafka has deleted before they were read: record the gap and go on.",
            section=SELDOM,
        ),
        "allow_non_restored_state": switch(
            "Allow non-restored state",
            "Operators that are gone from the pipeline: leave their state behind, and go on without it.",
            section=SELDOM,
        ),
    }


def _restoring(pipeline: str) -> dict[str, Param]:
    where = "Restore a savepoint first"
    return {
        "savepoint": savepoint_field(
            pipeline,
            "Savepoint",
            "The first run of a backfill restores it, the others go on from there.",
            section=where,
        ),
        "restore_id": text_field(
            "Restore id",
            "Goes with the savepoint and names this restore: one that was not used before, as in r1. The form of "
            "Airflow's backfill sends both only where Override parameters is ticked.",
            section=where,
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
) -> "PlanRequest":
    """What the DAG run asks of the coordinator.

    Args:
        conf: of the run.
        run_id: names who asked, in plan and manifest.
        interval: the data interval; Airflow gives none to a run without a logical date.
        until: whether the DAG caps ranges at the interval's end.
    """
    from tidemark.ports import PlanRequest

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
