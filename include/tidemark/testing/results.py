"""What a replay leaves: state, emitted rows, dead letters and counts, as of each of its checkpoints."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemark.declare.flat_map import FlatMap
from tidemark.declare.interval_join import IntervalJoin
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import UsageError
from tidemark.model.checkpoint.manifest import Ack, Checkpoint
from tidemark.model.checkpoint.segments import OperatorState
from tidemark.processing.broadcasts import broadcast_records
from tidemark.processing.live_operator_state import opened_whole
from tidemark.processing.shapes import record_shape
from tidemark.processing.value_codec import codec_of
from tidemark.testing.script import Crash
from tidemark.testing.twin.memory import MemoryCompute, MemorySender, MemoryTables
from tidemark.testing.twin.row_files import emitted_rows

__all__ = ["Replayed"]


@dataclass(frozen=True)
class MadeWith:
    """How a checkpoint was made.

    Attributes:
        pipeline: the declaration.
        compute: the engine, which reads states as well.
        crash_points: the crash points that its attempts passed.
    """

    pipeline: Pipeline
    compute: MemoryCompute
    crash_points: tuple[Crash, ...]


@dataclass(frozen=True)
class Replayed:
    """The result of a replay. Methods take the checkpoint to look at; the default is the newest one.

    Attributes:
        checkpoints: the completed checkpoints in the order in which they were made; after a restore, those that it left
            stay readable.
        crashes: the number of attempts that were killed.
    """

    checkpoints: tuple[Checkpoint, ...]
    crashes: int
    _made: Mapping[int, MadeWith] = field(repr=False)
    _tables: MemoryTables = field(repr=False)
    _sender: MemorySender = field(repr=False)

    def state(self, uid: str, checkpoint: Checkpoint | None = None) -> dict[Any, Any]:
        """Returns the state per key after a checkpoint; a key of several columns is a tuple.

        The values are instances of the operator's `state.Keyed` class, or records of a broadcast state. Timestamps are
        in UTC.

        Raises:
            NotFoundError: the checkpoint's pipeline has no such operator.
            UsageError: the operator keeps no state.
        """
        found = self._at(checkpoint)
        if found is None:
            return {}
        rows, pipeline = self.rows(uid, found), self._made[found.id].pipeline
        for broadcast in pipeline.broadcast:
            if broadcast.uid == uid:
                return broadcast_records(broadcast, rows.values())
        operator = pipeline.operator(uid)
        if isinstance(operator, FlatMap):
            raise UsageError(f"{uid} keeps no state: it is a FlatMap", next="ask for the rows of its sink, or a fold.")
        if isinstance(operator, IntervalJoin):
            raise UsageError(
                f"{uid} is an IntervalJoin", next="ask for `rows`, which wait for partners, or for those of its sink."
            )
        made = operator.state
        names = [d.name for d in made.descriptors]
        return {key if len(key) > 1 else key[0]: made(**{n: row[n] for n in names}) for key, row in rows.items()}

    def operator_state(self, uid: str, checkpoint: Checkpoint | None = None) -> Any:
        """Returns the operator state of a `Process`: its `state.Operator` class, with full lists.

        Raises:
            UsageError: there is no checkpoint yet.
            NotFoundError: the checkpoint's pipeline has no such operator.
        """
        found = self._at(checkpoint)
        if found is None:
            raise UsageError("there is no checkpoint yet", next="end the script with BARRIER.")
        lists = found.operator_states.get(uid, OperatorState())
        return opened_whole(self._made[found.id].pipeline.operator(uid), lists)

    def rows(self, uid: str, checkpoint: Checkpoint | None = None) -> dict[tuple[Any, ...], dict[str, Any]]:
        """Returns the same as `state`, as dicts: key columns, state fields and `_changed`."""
        found = self._at(checkpoint)
        return {} if found is None else self._made[found.id].compute.resolve(found, uid)

    def dead_letters(self, uid: str, checkpoint: Checkpoint | None = None) -> list[Mapping[str, object]]:
        """Returns the operator's dead letters up to a checkpoint, ordered by position; each has its `reason`."""
        found = self._at(checkpoint)
        ack = None if found is None else found.ack(uid)
        rows = [] if ack is None else emitted_rows(self._tables, ack.dead_letters)
        return sorted(rows, key=lambda r: (str(r["topic"]), str(r["partition"]), int(str(r["offset"]))))

    def emitted(self, uid: str, checkpoint: Checkpoint | None = None) -> list[Mapping[str, object]]:
        """Returns the rows in the sink of an output after a checkpoint: emitted fields, uid, position and path."""
        found = self._at(checkpoint)
        table = None if found is None else found.sinks.get(uid)
        rows = [] if table is None else emitted_rows(self._tables, table.handle)
        return sorted(rows, key=_position)

    def emitted_records(self, uid: str, checkpoint: Checkpoint | None = None) -> list[Any]:
        """Returns the same as `emitted`, as instances of the dataclass that the function yields.

        Raises:
            UsageError: no function of the checkpoint's pipeline emits such records.
        """
        found = self._at(checkpoint)
        if found is None:
            return []
        outputs = self._made[found.id].pipeline.outputs
        if uid not in outputs:
            raise UsageError(f"{uid!r} emits nothing", next=f"name one of: {', '.join(outputs) or 'none'}.")
        codec = codec_of(record_shape(outputs[uid].emits))
        names = [name for name, _ in outputs[uid].emitted.fields]
        return [codec.copy({name: row.get(name) for name in names}) for row in self.emitted(uid, found)]

    def sent(self, topic: str) -> list[tuple[str, dict[str, Any]]]:
        """Returns ids and JSON fields of all records that attempts have sent to a topic, in order.

        It is for sinks with `guarantee="at_least_once"`: if an attempt dies, its records appear again when the next
        attempt sends them.
        """
        return [(m.id, json.loads(m.value)) for m in self._sender.arrived.get(topic, [])]

    def counts(self, uid: str, checkpoint: Checkpoint | None = None) -> Ack:
        """Returns what an operator did in one checkpoint: `read`, `applied`, `dead_lettered`, `emitted`, `keys`.

        Raises:
            UsageError: there is no checkpoint yet, or it has no such operator.
        """
        found = self._at(checkpoint)
        ack = None if found is None else found.ack(uid)
        if ack is None:
            where = "there is no checkpoint yet" if found is None else f"{found.plan.name} has no operator {uid!r}"
            raise UsageError(where, next="name an operator of the checkpoint's pipeline.")
        return ack

    def crash_points(self, checkpoint: Checkpoint | None = None) -> tuple[Crash, ...]:
        """Returns the points at which an attempt of a checkpoint could have died, in order: a test may try them all."""
        found = self._at(checkpoint)
        return () if found is None else self._made[found.id].crash_points

    def _at(self, checkpoint: Checkpoint | None) -> Checkpoint | None:
        if checkpoint is not None:
            return checkpoint
        return self.checkpoints[-1] if self.checkpoints else None


def _position(row: Mapping[str, object]) -> tuple[str, int, int, tuple[int, ...]]:
    path = row["_path"]
    assert isinstance(path, list)  # noqa: S101  (for the type checker)
    return str(row["_topic"]), int(str(row["_partition"])), int(str(row["_offset"])), tuple(path)
