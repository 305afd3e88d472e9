"""Builds a long history quickly: copies one real checkpoint under other ids, and makes one in fifty a failed one.

Plans, manifests and id records are as large as those of the flights pipeline, and each has its own checksum.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.airflow.pipelines.trips import Bus, Trip
from tests.support.disk import DiskPipeline
from tidemark import Fold, KafkaSource, Pipeline
from tidemark.coordinator.records.objects import encode, key_of
from tidemark.model.checkpoint import codec
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import Slot
from tidemark.model.checkpoint.store_objects import AbortRecord, Failure, IdRecord
from tidemark.model.core import canonical

TRIPS = Pipeline(
    name="trips",
    source=KafkaSource("trips", Trip, event_time="ended_at"),
    operators=[Fold(f"buses-{n}", key_by="bus", state=Bus) for n in range(5)],
)
"""Five operators, so that manifests are as large as those of the flights pipeline."""
FAILURE = Failure(reason=FailureReason.ENGINE_ERROR, message="Spark failed", next="run it again.")
MINUTE = 60_000
FAILS = 50
"""One checkpoint in this many has failed."""


@dataclass
class LongHistory:
    """A warehouse below `root` that grows; `line` completes real checkpoints on top of it.

    Attributes:
        root: the folder of the warehouse.
        partitions: the number of partitions of the topic.
        pipeline: the pipeline of the checkpoints.
    """

    root: Path
    partitions: int = 4
    pipeline: Pipeline = TRIPS
    line: DiskPipeline = field(init=False)

    def __post_init__(self) -> None:
        self.line = DiskPipeline(self.root, self.pipeline, "trips", partitions=self.partitions)
        self.send()
        self.first = self.newest = self.line.checkpoint()

    def send(self) -> None:
        """Sends one record per partition, and at least forty."""
        count = max(40, self.partitions)
        rows = ({"bus": f"b{n % 40}", "miles": n, "ended_at": "2024-05-01T00:00:00Z"} for n in range(count))
        self.line.send([(n % self.partitions, json.dumps(row).encode(), n) for n, row in enumerate(rows)])

    def checkpoint(self) -> Checkpoint:
        """Completes a real checkpoint of the records sent so far."""
        self.newest = self.line.checkpoint()
        return self.newest

    def grow(self, count: int) -> None:
        """Copies the newest checkpoint until the history has `count` ids."""
        plan = self.newest.plan
        body: dict[str, Any] = _json(self.newest)
        body["plan"] |= {"id": "$id", "parent": "$parent", "planned_at_ms": "$at", "slot": _json(plan.slot)}
        body["plan"]["slot"] |= {"sequence": "$sequence", "k": "$k"}
        manifest, planned = _Form("manifest", body), _Form("plan", body["plan"])
        sequence, parent, k = plan.slot.sequence + 1, plan.id, 1
        for number in range(plan.id + 1, count + 1):
            slot = Slot(timeline="t1", sequence=sequence, k=k)
            at = self.first.plan.planned_at_ms + number * MINUTE
            filled = {"id": number, "parent": parent, "at": at, "sequence": sequence, "k": k}
            self._write(keys.id_key(number), encode(IdRecord(id=number, slot=slot, write_id="0" * 32)))
            self._write(keys.plan_key(slot), planned.filled(filled))
            if number % FAILS == FAILS // 2:
                failed = AbortRecord(id=number, slot=slot, attempts=1, failure=FAILURE, at_ms=at, write_id="0" * 32)
                self._write(key_of(failed), encode(failed))
                k = 2
                continue
            self._write(keys.slot_key("t1", sequence), manifest.filled(filled))
            sequence, parent, k = sequence + 1, number, 1
        self.newest = next(self.line.coordinator.checkpoints())

    def _write(self, key: str | None, raw: bytes) -> None:
        """Writes an object under its key, without the store's fsync."""
        assert key is not None
        path = self.root / self.pipeline.name / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)


@dataclass
class _Form:
    """An object's JSON with a `"$name"` placeholder for each number; readers check that a filled form is canonical."""

    kind: str
    body: dict[str, Any]

    def __post_init__(self) -> None:
        self.text = json.dumps(self.body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def filled(self, numbers: Mapping[str, int]) -> bytes:
        text = self.text
        for name, number in numbers.items():
            text = text.replace(f'"${name}"', str(number))
        end = f'"format":1,"kind":"{self.kind}"}}'
        checksum = canonical.sha256_of(f'{{"body":{text},{end}'.encode())
        return f'{{"body":{text},"checksum":"{checksum}",{end}\n'.encode()


def _json(value: object) -> dict[str, Any]:
    made: dict[str, Any] = codec.to_json(value)
    return made
