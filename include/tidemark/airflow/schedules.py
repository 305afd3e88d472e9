"""What `schedule=` of a checkpoint DAG may be: a cron expression, a timedelta, assets, or `KafkaLag`.

| `schedule=` | a DAG run starts | its data interval |
|---|---|---|
| a cron expression or preset | at each time | from the time before to this one |
| a timedelta | each time it has passed | of this length |
| an asset, a list, `a & b`, `a | b` | when their events have arrived | none |
| `KafkaLag(...)` | when records wait | none |
| None | on demand | none, unless the form has a logical date |
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import Asset, CronDataIntervalTimetable, DeltaDataIntervalTimetable
from airflow.sdk.definitions.asset import AssetAll, AssetAny, AssetBooleanCondition, BaseAsset

from tidemark.airflow.assets import checkpoints_of
from tidemark.airflow.kafka_lag import KafkaLag
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import DeclarationError

Schedule = str | timedelta | BaseAsset | Sequence[BaseAsset] | KafkaLag | None
"""The values of `schedule=`."""
_OWN = "x-tidemark://"
_WITHOUT_KEY = ("completed", "lag")
"""Tidemark's assets whose events have no partition key: only these start a DAG that is not partitioned."""


def check_schedule(schedule: Schedule, pipeline: Pipeline) -> None:
    """Refuses a schedule that would never start a run, or start one without end.

    Raises:
        DeclarationError: the value is no schedule, or does not fit the pipeline.
    """
    if schedule is None or isinstance(schedule, str | KafkaLag):
        return
    if isinstance(schedule, timedelta):
        if schedule < timedelta(seconds=1):
            raise DeclarationError(
                f"schedule={schedule!r}", next="give at least one second; KafkaLag(min_records=1) starts sooner."
            )
        return
    members = [schedule] if isinstance(schedule, BaseAsset) else schedule
    if not isinstance(members, Sequence) or not members or not all(isinstance(one, BaseAsset) for one in members):
        raise DeclarationError(
            f"schedule={schedule!r} is no schedule",
            next="give a cron expression, a timedelta, assets, KafkaLag(...) or None.",
        )
    for asset in (leaf for member in members for leaf in _leaves(member)):
        if isinstance(asset, Asset):
            _check_asset(asset, pipeline)


def _check_asset(asset: Asset, pipeline: Pipeline) -> None:
    if asset.uri == checkpoints_of(pipeline).uri:
        raise DeclarationError(
            f"{pipeline.name} would run after its own checkpoints, without end", next="name another pipeline."
        )
    owner, _, kind = asset.uri.removeprefix(_OWN).partition("/")
    if asset.uri.startswith(_OWN) and kind not in _WITHOUT_KEY:
        raise DeclarationError(
            f"the events of {asset.uri} have a partition key, so Airflow would not start this DAG",
            next=f"write schedule=checkpoints_of({owner!r}), from tidemark.airflow.",
        )


def make_timetable(schedule: Schedule, timezone: str, pipeline: Pipeline, dag_id: str) -> Any:  # noqa: ANN401
    """Returns the `schedule=` of Airflow's DAG.

    Args:
        schedule: a value that `check_schedule` accepts.
        timezone: timezone of a cron expression.
        pipeline: the declaration.
        dag_id: the DAG.
    """
    if isinstance(schedule, str):
        return CronDataIntervalTimetable(schedule, timezone=timezone) if schedule else None
    if isinstance(schedule, timedelta):
        return DeltaDataIntervalTimetable(schedule)
    return schedule.watch(pipeline, dag_id) if isinstance(schedule, KafkaLag) else schedule


def has_intervals(schedule: Schedule) -> bool:
    """Whether scheduled runs have a data interval."""
    return bool(schedule) and isinstance(schedule, str | timedelta)


def describe_schedule(schedule: Schedule, timezone: str) -> str:
    """Returns when runs start, in words, for the DAG's page."""
    if not schedule:
        return "on demand"
    if isinstance(schedule, str):
        return f"`{schedule}` in {timezone}"
    if isinstance(schedule, timedelta):
        return f"every {schedule}"
    if isinstance(schedule, KafkaLag):
        return str(schedule)
    found = AssetAll(*schedule) if isinstance(schedule, Sequence) else schedule
    return f"after events of {_words(found)}"


def _leaves(asset: BaseAsset) -> Iterator[BaseAsset]:
    if isinstance(asset, AssetBooleanCondition):
        for member in asset.objects:
            yield from _leaves(member)
    else:
        yield asset


def _words(asset: BaseAsset, *, inner: bool = False) -> str:
    if isinstance(asset, AssetAll | AssetAny):
        word = " and " if isinstance(asset, AssetAll) else " or "
        joined = word.join(_words(member, inner=True) for member in asset.objects)
        return f"({joined})" if inner and len(asset.objects) > 1 else joined
    return f"`{getattr(asset, 'name', None) or getattr(asset, 'uri', asset)}`"
