"""`KafkaLag`: a schedule that starts a DAG run when records wait, by one poller in Airflow's triggerer.

The poller reads offsets in Kafka and the newest checkpoint in the warehouse, never a record, and imports no Spark.
"""

import asyncio
import logging
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetWatcher
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from tidemark.airflow.assets import GROUP
from tidemark.airflow.lag_events import LagMemory, LagRule, decide_event
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import DeclarationError
from tidemark.model.core.canonical import checksum

if TYPE_CHECKING:
    from tidemark.context import Context
    from tidemark.operations.observability import Lag
    from tidemark.ports import SourceLog

_log = logging.getLogger(__name__)
_LOADING = threading.Lock()
"""Importing pipeline files in two threads at once would show one of them a half-imported module."""
LONGEST_PAUSE = timedelta(minutes=1)
"""The longest pause between two looks while Kafka or the warehouse cannot be reached."""
MEMORY = "tidemark_lag"
"""The key under which a poller stores its memory, with the asset, so that it survives a restart of the triggerer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaLag:
    """A schedule: a DAG run starts as soon as enough records wait in the pipeline's topics, or one waits for too long.

    `schedule=KafkaLag(min_records=10_000, max_wait=timedelta(minutes=5))`

    Unread are the offsets between the newest checkpoint of the live timeline and the ends of the topics. While a run is
    queued or running, nothing is started. When it has ended, the records that it has not read count again. A stopped
    pipeline starts nothing.

    After an event there is no second one until a checkpoint or a restore has changed where the next checkpoint begins.
    If none does, because the DAG was paused or the run failed, the event is repeated after 30 seconds, then after
    twice as long, up to ten minutes. So one run may start without need, but no record waits for ever.

    Attributes:
        min_records: so many unread records start a run; None = their number starts none.
        max_wait: a single unread record starts a run after this time, by its timestamp or since the poller has seen it,
            whichever is earlier; None = no time starts one. An old timestamp behind newer ones does not count.
        poll: how often the triggerer looks.
    """

    min_records: int | None = None
    max_wait: timedelta | None = None
    poll: timedelta = timedelta(seconds=5)

    def __post_init__(self) -> None:
        if self.min_records is None and self.max_wait is None:
            raise DeclarationError("KafkaLag() starts nothing", next="give min_records=, max_wait= or both.")
        if self.min_records is not None and self.min_records < 1:
            raise DeclarationError(f"KafkaLag(min_records={self.min_records})", next="give at least 1.")
        for name, value in (("max_wait", self.max_wait), ("poll", self.poll)):
            if value is not None and value < timedelta(milliseconds=1):
                raise DeclarationError(f"KafkaLag({name}={value})", next="give a positive timedelta.")

    def __str__(self) -> str:
        records = f"{self.min_records} unread records wait" if self.min_records is not None else ""
        waits = f"one has waited for {self.max_wait}" if self.max_wait is not None else ""
        return f"as soon as {' or '.join(filter(None, (records, waits)))}"

    def watch(self, pipeline: Pipeline, dag_id: str) -> Asset:
        """Returns the asset that starts the DAG, with its poller.

        Args:
            pipeline: the declaration.
            dag_id: the DAG.
        """
        trigger = KafkaLagTrigger(
            pipeline=pipeline.name,
            dag_id=dag_id,
            inputs=checksum_inputs(pipeline),
            min_records=self.min_records,
            max_wait_ms=None if self.max_wait is None else self.max_wait // timedelta(milliseconds=1),
            poll_ms=self.poll // timedelta(milliseconds=1),
        )
        name = f"{dag_id}/lag"
        watcher = AssetWatcher(name="tidemark-kafka-lag", trigger=trigger)
        return Asset(name=name, uri=f"x-tidemark://{name}", group=GROUP, watchers=[watcher])


class KafkaLagTrigger(BaseEventTrigger):
    """The poller of one DAG. It never ends by itself: an error is logged, and it looks again later.

    All that it is given is stored in Airflow's database, so it takes names and numbers only. It finds the addresses and
    the credentials of Kafka and the warehouse where the DAG's tasks find them.

    Args:
        pipeline: the pipeline's name.
        dag_id: the DAG whose runs it waits for.
        inputs: see `checksum_inputs`; if the declaration changes, Airflow replaces the poller.
        min_records: see `LagRule`.
        max_wait_ms: see `LagRule`.
        poll_ms: the pause between two looks, in milliseconds.
    """

    def __init__(
        self,
        *,
        pipeline: str,
        dag_id: str,
        inputs: str,
        min_records: int | None = None,
        max_wait_ms: int | None = None,
        poll_ms: int = 5000,
    ) -> None:
        BaseEventTrigger.__init__(self)
        self.pipeline = pipeline
        self.dag_id = dag_id
        self.inputs = inputs
        self.min_records = min_records
        self.max_wait_ms = max_wait_ms
        self.poll_ms = poll_ms
        self._parts: tuple[Context, Pipeline, SourceLog] | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Returns the class and its arguments, as Airflow stores them."""
        names = ("pipeline", "dag_id", "inputs", "min_records", "max_wait_ms", "poll_ms")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yields an event whenever a DAG run should start; see `KafkaLag`."""
        memory, kept = await self._recall(), LagMemory()
        failures = 0
        while True:
            fires, lag = False, None
            try:
                # Runs first: a run that has ended by now has its checkpoint in the lag that is measured next.
                if not await asyncio.to_thread(self.count_runs):
                    lag = await asyncio.to_thread(self.measure)
                    wanted, decided = decide_event(self._rule, lag, memory, time.time_ns() // 1_000_000)
                    fires = wanted and not await asyncio.to_thread(self.count_runs)
                    memory = decided if fires or not wanted else memory
                failures = 0
            except Exception as error:  # noqa: BLE001  (a poller that ends would be started again every second)
                failures += 1
                self._parts = None  # connect again: an embedded broker may have moved
                _log.warning("%s: the lag is not known: %s", self.pipeline, error)
            if memory != kept:
                await self._keep(memory)
                kept = memory
            if fires and lag is not None:
                yield TriggerEvent({"pipeline": self.pipeline, "unread": lag.unread})
            await asyncio.sleep(min(self.poll_ms / 1000 * 2 ** min(failures, 16), self._longest_pause_s))

    def count_runs(self) -> int:
        """Returns how many runs of the DAG are queued or running; asks Airflow."""
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

        return RuntimeTaskInstance.get_dr_count(dag_id=self.dag_id, states=["queued", "running"])

    def measure(self) -> "Lag":
        """Returns the lag now; blocks while Kafka and the warehouse answer.

        Raises:
            TidemarkError: they did not, or the pipeline is gone.
        """
        from tidemark.operations.observability import measure_lag

        opened, pipeline, log = parts = self._parts or self._open()
        # Until the changed file has reached this host, it is imported at every look.
        self._parts = parts if checksum_inputs(pipeline) == self.inputs else None
        longest = None if self.max_wait_ms is None else timedelta(milliseconds=self.max_wait_ms)
        return measure_lag(opened, pipeline, log, longest)

    def _open(self) -> "tuple[Context, Pipeline, SourceLog]":
        from tidemark.airflow.checkpoint_tasks import open_tidemark

        with _LOADING:
            opened = open_tidemark()
            found = opened.pipeline(self.pipeline)
            if checksum_inputs(found) != self.inputs:
                # The triggerer has imported the file before it was changed.
                _forget_modules(opened.settings.pipelines)
                found = opened.pipeline(self.pipeline)
        return opened, found, opened.log

    async def _recall(self) -> LagMemory:
        try:
            stored = None if self.asset_state_store is None else await self.asset_state_store.aget(MEMORY)
            if isinstance(stored, dict) and stored.get("trigger") == self.trigger_id:
                found: dict[str, Any] = {name: value for name, value in stored.items() if name != "trigger"}
                return LagMemory(**found)
        except Exception as error:  # noqa: BLE001  (without memory, there may be one event more)
            _log.warning("%s: the last decision is not known: %s", self.pipeline, error)
        return LagMemory()

    async def _keep(self, memory: LagMemory) -> None:
        if self.asset_state_store is None:
            return
        try:
            # With the poller's id: a new poller, as after the DAG was paused, decides for itself.
            await self.asset_state_store.aset(MEMORY, {**asdict(memory), "trigger": self.trigger_id})
        except Exception as error:  # noqa: BLE001  (without memory, there may be one event more after a restart)
            _log.warning("%s: the decision was not stored: %s", self.pipeline, error)

    @property
    def _rule(self) -> LagRule:
        return LagRule(min_records=self.min_records, max_wait_ms=self.max_wait_ms)

    @property
    def _longest_pause_s(self) -> float:
        return max(LONGEST_PAUSE.total_seconds(), self.poll_ms / 1000)


def checksum_inputs(pipeline: Pipeline) -> str:
    """Returns a checksum of the topics that a pipeline reads, and of where and how it begins to read them."""
    found = {name: [_text(s.topics), _text(s.start), s.isolation] for name, s in pipeline.inputs.items()}
    return checksum(found)[:16]


def _text(value: object) -> str:
    """Returns a text that is the same in every process: the order of a set is not."""
    if isinstance(value, Mapping):
        value = frozenset(value.items())
    return repr(sorted(map(str, value)) if isinstance(value, frozenset) else value)


def _forget_modules(folders: Iterable[Path]) -> None:
    """Forgets the imported pipeline files, so that the next look imports them again."""
    real = {folder.resolve() for folder in folders}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and Path(file).resolve().parent in real:
            del sys.modules[name]
