"""When the scheduled runs of a DAG start, by its timetable; for the pages, and for the tasks that watch deadlines."""

from dataclasses import dataclass
from datetime import datetime

from airflow.sdk.timezone import coerce_datetime, from_timestamp
from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction, Timetable
from airflow.timetables.simple import AssetTriggeredTimetable

from tidemark.model.checkpoint.metrics import DueRun
from tidemark.telemetry.lazy_logger import log


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """The times at which the scheduled runs of a DAG start.

    Attributes:
        timetable: as Airflow's scheduler has it.
        begin: the DAG's start date; no run starts before it.
        end: its end date; no data interval begins after it.
    """

    timetable: Timetable
    begin: datetime | None = None
    end: datetime | None = None

    @property
    def kind(self) -> str:
        """The kind of schedule: `time`, `assets`, `manual` or `other`."""
        if not self.timetable.can_be_scheduled:
            return "manual"
        if isinstance(self.timetable, AssetTriggeredTimetable):
            return "assets"
        return "time" if self.timetable.periodic else "other"

    def due_after(self, since_ms: int, *, is_planned: bool) -> DueRun | None:
        """Finds the first scheduled run after a time; None if there is none.

        Args:
            since_ms: milliseconds since the epoch.
            is_planned: whether Airflow plans a run. After the end date this is one of a backlog, due at once.
        """
        if self.kind != "time":
            return None
        try:
            first = self._next(since_ms, self.end)
            if first is None and not is_planned:
                return None
            at = self._next(since_ms, None) if first is None else first
            following = None if at is None else self._next(at, None)
            later = None if following is None else self._next(following, None)
        except Exception as error:  # noqa: BLE001  (a timetable may be any code; a verdict must not depend on it)
            log.warning("schedule_not_computed", why=f"{type(error).__name__}: {error}")
            return None
        if at is None or following is None or later is None:
            return None
        every = following - at if later - following == following - at else None
        return DueRun(at_ms=since_ms if first is None else first, following_ms=following, every_ms=every)

    def _next(self, after_ms: int, end: datetime | None) -> int | None:
        """When the first run after a time starts; no interval may begin after `end`."""
        after = from_timestamp(after_ms / 1000)
        # A timetable continues after the last interval, whose beginning only has to be early enough.
        last = DagRunInfo(run_after=after, data_interval=DataInterval(from_timestamp(0), after))
        latest = None if end is None else coerce_datetime(end)
        begin = None if self.begin is None else coerce_datetime(self.begin)
        restriction = TimeRestriction(earliest=begin, latest=latest, catchup=True)
        info = self.timetable.next_dagrun_info_v2(last_dagrun_info=last, restriction=restriction)
        return None if info is None else round(info.run_after.timestamp() * 1000)
