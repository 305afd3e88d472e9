"""Attempts and checkpoints, announced as lineage: START before the work, FAIL after an error, COMPLETE when published.

A process that is killed announces no end; the attempt that takes over has a START of its own.
"""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.failures import classify
from tidemark.model.checkpoint import Checkpoint, Sealed
from tidemark.model.lineage import EMBEDDED_BROKER, Attempted, Json, Naming, attempted, without_nulls
from tidemark.pipeline import Pipeline
from tidemark.ports import CrashPoints
from tidemark.wiring.bounded import Bounded
from tidemark.wiring.core import Core

if TYPE_CHECKING:
    from tidemark.ports.observing import LineageSink

SECONDS = 2.0
"""How long an announcement may take; a run waits no longer for it."""


class Announcing(Core):
    """Executes attempts and announces them, where the settings name a receiver."""

    def attempt(self, pipeline: Pipeline, owned: OwnedAttempt, crash: CrashPoints | None = None) -> Sealed:
        """As `execute`, announced.

        Raises:
            TidemarkError: as `execute`.
        """
        self.renew(pipeline, owned.plan)
        if self.lineage is None:
            return self.execute(pipeline, owned, crash)
        told = Attempted(plan=owned.plan, attempt=owned.number, naming=self._naming)
        self._announce(told.started(self.clock.now_ms()))
        try:
            return self.execute(pipeline, owned, crash)
        except BaseException as error:
            # A timeout of Airflow and Ctrl-C are no Exceptions, and end an attempt all the same.
            self._announce(told.failed(self.clock.now_ms(), classify(error)))
            raise

    def announce(self, found: Checkpoint) -> None:
        """Announces a completed checkpoint; called again, it says the same of the same run."""
        if self.lineage is not None:
            self._announce(attempted(found, self._naming).completed(self.clock.now_ms(), found))

    @cached_property
    def lineage(self) -> "LineageSink | None":
        """The receiver that the settings name; None = nothing is announced."""
        from tidemark.adapters.openlineage import FileLineage, HttpLineage

        address, key = self.settings.openlineage, self.settings.openlineage_api_key
        if address is None:
            return None
        if address.startswith("file:"):
            return FileLineage(self.settings.root / Path(address.removeprefix("file:")))
        if address.startswith("kafka://"):
            from tidemark.adapters.openlineage_kafka import KafkaLineage

            bootstrap, _, topic = address.removeprefix("kafka://").rpartition("/")
            # Our credentials are for our Kafka: another one gets none of them.
            ours = bootstrap == self.settings.kafka_bootstrap
            return KafkaLineage(bootstrap, topic, SECONDS, self.settings.kafka_client_options if ours else {})
        return HttpLineage(address, None if key is None else key.get_secret_value(), SECONDS)

    @cached_property
    def _naming(self) -> Naming:
        server = (self.settings.kafka_bootstrap or EMBEDDED_BROKER).split(",")[0].strip()
        jobs = self.settings.openlineage_namespace
        return Naming(jobs=jobs, broker=server, warehouse=str(self.settings.warehouse))

    @cached_property
    def _to_lineage(self) -> Bounded:
        return Bounded("lineage", SECONDS)

    def _announce(self, event: Json) -> None:
        sink = self.lineage
        if sink is not None:
            self._to_lineage.call(lambda: sink.announce(without_nulls(event)))
