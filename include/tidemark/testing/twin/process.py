"""Operators that emit, in Python: functions by the same runtime as in Spark, and folds with windows."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any

from tidemark.declare.co_process import CoProcess
from tidemark.declare.flat_map import FlatMap
from tidemark.declare.operators import Process
from tidemark.declare.outputs import EmittedOutput
from tidemark.declare.windows import IS_FINAL, late_output
from tidemark.model.checkpoint.emitted import windows_of
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.segments import OperatorState, task_of
from tidemark.model.checkpoint.sinks import ROW_ID
from tidemark.model.core.offsets import Path
from tidemark.model.core.ttl import Now
from tidemark.model.retention.erasure import BlockedKey
from tidemark.model.schema.event_windows import END, START, StoredWindow, to_ms
from tidemark.model.schema.key_groups import group_of, key_hash
from tidemark.model.schema.operator_schema import OperatorSchema, run_columns
from tidemark.model.schema.united_records import KEY, field_of_input
from tidemark.processing.flat_mapper import FlatMapper
from tidemark.processing.live_operator_state import OperatorStateType, TaskState
from tidemark.processing.process_records import Emitted, Output, PositionedRecord
from tidemark.processing.processor import Processing
from tidemark.processing.shapes import Shape
from tidemark.processing.timer_merge import FiringRules
from tidemark.processing.value_codec import codec_of
from tidemark.testing.twin.entries import values_of
from tidemark.testing.twin.fold import Decoded, Key, access_ms
from tidemark.testing.twin.merge import resolve_rows

_EPOCH, _US = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
Row = Mapping[str, Any]
Position = tuple[str, int, int, Path]
"""Topic, partition, offset and path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One operator in one checkpoint.

    Attributes:
        operator: the declaration.
        schema: the operator's stored schema.
        plan: the checkpoint's plan.
        record: the shape of the operator's records.
        broadcast: records of broadcast states by uid and key.
        parallelism: the number of tasks of an operator with operator state.
        blocked: keys whose rows a FlatMap does not emit.
        now: the clocks after the batch.
    """

    operator: Process | FlatMap
    schema: OperatorSchema
    plan: CheckpointPlan
    record: Shape
    broadcast: Mapping[str, Mapping[Any, Any]] = field(default_factory=dict)
    parallelism: int = 1
    blocked: Sequence[BlockedKey] = ()
    now: Now = field(default_factory=Now)

    @property
    def rules(self) -> FiringRules | None:
        """Which timers fire; None if it has no timers."""
        return None if self.schema.timers is None else FiringRules.of(self.plan, self.schema.uid, self.now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Processed:
    """The result of a batch.

    Attributes:
        rows: the run, sorted by (key group, key).
        emitted: per uid of an output the records for downstream operators, ordered by their positions.
        sunk: the same records as rows of the sink.
        failed: why a record failed, by position.
        operator_state: the combined state of all tasks; None if the operator declares none, or was not called.
        fired: how many timers have fired.
    """

    rows: list[dict[str, Any]]
    emitted: dict[str, list[Decoded]]
    sunk: dict[str, list[dict[str, Any]]]
    failed: dict[Position, str]
    operator_state: OperatorState | None = None
    fired: int = 0


def run_function(task: Task, records: Sequence[Decoded], stored: Iterable[Row]) -> Processed:
    """Passes the records of an operator through its function.

    Args:
        task: the operator.
        records: the records that it applies.
        stored: the rows of its input handle.

    Raises:
        ProcessFunctionError, StateOverflowError: the runtime failed.
    """
    if isinstance(task.operator, FlatMap):
        return _run_flat_map(task, task.operator, records)
    return _run_process(task, task.operator, records, stored)


def _run_flat_map(task: Task, operator: FlatMap, records: Sequence[Decoded]) -> Processed:
    load, out = codec_of(task.record).copy, Output()
    placed = (_placed(r, 0, load(r.fields)) for r in sorted(records, key=attrgetter("position")))
    FlatMapper.of(operator, task.blocked).process(placed, out)
    return _processed(operator, out)


def _processed(operator: Process | FlatMap, out: Output) -> Processed:
    emitted = sorted(out.emitted, key=lambda e: e[:4])
    by_output = {output: [e for e in emitted if e.output == n] for n, output in enumerate(operator.outputs)}
    return Processed(
        rows=[],
        emitted={output.uid: [_decoded(output, e) for e in found] for output, found in by_output.items()},
        sunk={output.uid: [_sunk(output, e) for e in found] for output, found in by_output.items()},
        failed={letter[:4]: letter.reason for letter in out.letters},
        fired=out.fired,
    )


def _run_process(task: Task, operator: Process, records: Iterable[Decoded], stored: Iterable[Row]) -> Processed:
    """Runs the function, key after key."""
    schema, out = task.schema, Output()
    lists, shape = _lists(task, operator), task.record
    processing = Processing.of(operator, schema, task.plan.id, task.broadcast, lists, shape)
    processing = replace(processing, rules=task.rules)
    by_key: dict[tuple[Any, ...], list[Decoded]] = {}
    for record in sorted(records, key=_order(operator)):
        by_key.setdefault(record.key, []).append(record)
    before = values_of(schema, stored)
    for key in () if processing.rules is None else due_keys(schema, before, processing.rules):
        by_key.setdefault(key, [])
    load = codec_of(shape).copy
    states: dict[int, TaskState] = {}
    for key in sorted(by_key):
        if lists is not None:
            n = task_of(group_of(schema, key), schema.key_groups, lists.tasks)
            out.task = states[n] = states.get(n) or lists.open_task(n)
        placed = (_placed(r, access_ms(schema, r, task.plan), load(r.fields)) for r in by_key[key])
        processing.process(key, before.get(key, ()), placed, out)
    names = [name for name, _ in run_columns(schema)]
    rows = [dict(zip(names, row, strict=True)) for row in out.rows]
    return replace(
        _processed(operator, out),
        rows=sorted(rows, key=lambda r: (r["_key_group"], tuple(r[k.name] for k in schema.keys))),
        operator_state=lists.join_parts({n: s.changed_parts() for n, s in states.items()})
        if lists and states
        else None,
    )


def due_keys(schema: OperatorSchema, newest: Mapping[tuple[Any, ...], Sequence[Row]], rules: FiringRules) -> list[Any]:
    """Returns the keys with a stored timer that fires, with records or not; the twin of `engine.process.due_timers`."""
    field = schema.timers
    assert field is not None  # noqa: S101  (for the type checker: it has timers)
    timers = {key: [row for row in rows if row["_field"] == field.name] for key, rows in newest.items()}
    return [key for key, rows in timers.items() if any(rules.is_due(to_ms(row[field.name])) for row in rows)]


def _lists(task: Task, operator: Process) -> OperatorStateType | None:
    given = task.plan.operator_states.get(operator.uid, OperatorState())
    return OperatorStateType.of(operator, given, min(task.parallelism, task.schema.key_groups))


def _order(operator: Process) -> Any:
    if isinstance(operator, CoProcess):
        return lambda r: (r.event_time, input_of(r), *r.position)
    if operator.order == "event_time":
        return lambda r: (r.event_time, *r.position)
    return attrgetter("position")


def united_records(
    operator: CoProcess, plan: CheckpointPlan, inputs: Mapping[str, Iterable[Decoded]], outputs: Container[str]
) -> list[Decoded]:
    """Returns the records of all inputs as united records; see `model.schema.united_records`.

    Args:
        operator: the declaration.
        plan: the plan.
        inputs: the records of each input.
        outputs: the inputs that other operators emit: the same path may come from two of them, so theirs ends with the
            number of the input.
    """
    names = [column.name for column in plan.schemas[operator.uid].own_keys]
    nothing = {field_of_input(n): None for n in range(len(operator.inputs))}
    found = []
    for n, name in enumerate(operator.inputs):
        for r in inputs[name]:
            key = dict(zip(names, map(r.at, operator.key_by[name]), strict=True))
            path = (*r.path, n) if name in outputs else r.path
            found.append(replace(r, path=path, fields={KEY: key, **nothing, field_of_input(n): r.fields}))
    return found


def input_of(r: Decoded) -> int:
    """Returns the number of the input of a united record."""
    return next(n for n, value in enumerate(v for name, v in r.fields.items() if name != KEY) if value is not None)


def _placed(r: Decoded, at: int, record: Any) -> PositionedRecord:
    return PositionedRecord(r.topic, r.partition, r.offset, r.path, (r.event_time - _EPOCH) // _US, at, record)


def _fields(output: EmittedOutput, e: Emitted) -> dict[str, Any]:
    return dict(zip((name for name, _ in output.emitted.fields), e.fields, strict=True))


def _decoded(output: EmittedOutput, e: Emitted) -> Decoded:
    return Decoded(
        topic=e.topic,
        partition=e.partition,
        offset=e.offset,
        path=e.path,
        event_time=_EPOCH + e.event_time * _US,
        fields=_fields(output, e),
    )


def _sunk(output: EmittedOutput, e: Emitted) -> dict[str, Any]:
    own = (output.uid, e.topic, e.partition, e.offset, list(e.path))
    return _fields(output, e) | dict(zip((name for name, _ in ROW_ID), own, strict=True))


# Folds with windows: their closed rows are emitted, too; the twin of `engine.fold.closings`.
_MS = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryClosing:
    """A fold with windows in one checkpoint.

    Attributes:
        plan: the checkpoint's plan.
        uid: the fold.
        now: the clocks after the batch.
        updates: whether rows of open windows go to its sink, too.
    """

    plan: CheckpointPlan
    uid: str
    now: Now
    updates: bool

    def close(
        self, run: Sequence[dict[str, Any]], stored: Iterable[Row], applied: Sequence[Decoded], late: Sequence[Decoded]
    ) -> Processed:
        """Returns the rows of the windows that close, as emitted records, and the run without them.

        Args:
            run: the rows of the batch; their windows are open before it.
            stored: the rows of the input handle.
            applied: the records of the batch.
            late: the late records, which are emitted if they are rows of an output.
        """
        schema, before, after = self._schema, self.plan.frontier_before(self.uid), self.now.frontiers.get(self.uid)
        some = [row for row in stored if self._window.is_merged or self._window.outlives(row, before)]
        found = resolve_rows(schema, [*some, *run], Now()).values()
        ended = [row for row in found if before is None or to_ms(row[END]) > before]
        closed = [row for row in ended if after is not None and to_ms(row[END]) <= after]
        final = sorted((_emitted(schema, row) for row in closed), key=lambda r: r.position)
        sunk = final
        if self.updates:
            final = [replace(r, fields={**r.fields, IS_FINAL: True}) for r in final]
            sunk = [*final, *self._updates((row for row in ended if row not in closed), applied)]
        emitted, rows = {self.uid: final}, {self.uid: [sunk_row(self.uid, r) for r in sunk]}
        if schema.keeps_late:
            output = late_output(self.uid)
            emitted[output] = sorted((replace(r, path=(*r.path, 0), key=()) for r in late), key=lambda r: r.position)
            rows[output] = [sunk_row(output, r) for r in emitted[output]]
        sessions = {(*_own_key(schema, row), row[END]): row[START] for row in closed if self._window.is_merged}
        return Processed(
            rows=[row for row in run if self._window.outlives(row, after) or _continues(schema, row, sessions)],
            emitted=emitted,
            sunk=rows,
            failed={},
        )

    def _updates(self, rows: Iterable[Row], applied: Sequence[Decoded]) -> Iterator[Decoded]:
        """Yields the rows of the windows that the batch adds to, and leaves open; at its last record for each."""
        own = len(self._schema.own_keys)
        placed = [{START: r.key[own], END: r.key[own + 1], "record": r} for r in applied]
        last: dict[Key, Decoded] = {}
        for row in self._window.windows(placed, lambda row: row["record"].key[:own]):
            key = (*row["record"].key[:own], row[START], row[END])
            last[key] = max(last.get(key, row["record"]), row["record"], key=attrgetter("position"))
        for row in rows:
            if row["_changed"] == self.plan.id:
                r, at = _emitted(self._schema, row), last[tuple(row[k.name] for k in self._schema.keys)]
                placed_at = replace(r, topic=at.topic, partition=at.partition, offset=at.offset)
                path = (*at.path, *r.path, r.offset)
                yield replace(placed_at, path=path, fields={**r.fields, IS_FINAL: False})

    @property
    def _schema(self) -> OperatorSchema:
        return self.plan.schemas[self.uid]

    @property
    def _window(self) -> StoredWindow:
        assert self._schema.window is not None  # noqa: S101  (for the type checker: only folds with windows close any)
        return self._schema.window


def _continues(schema: OperatorSchema, row: Row, closed: Mapping[Key, datetime]) -> bool:
    """Whether a row of the batch is part of a session that is still open."""
    if schema.window is None or not schema.window.is_merged:
        return False
    own = _own_key(schema, row)
    return not any(key[:-1] == own and start <= row[START] and row[END] <= key[-1] for key, start in closed.items())


def _own_key(schema: OperatorSchema, row: Row) -> Key:
    return tuple(row[k.name] for k in schema.own_keys)


def _emitted(schema: OperatorSchema, row: Row) -> Decoded:
    """The row of a closed window as a record: its event time is the last one that the window holds."""
    end, place = row[END], windows_of(schema.uid)
    return Decoded(
        topic=place.topic,
        partition=place.partition,
        offset=to_ms(end),
        path=(key_hash(_own_key(schema, row)),),
        event_time=end - _MS,
        fields={name: value for name, value in row.items() if name != "_changed"},
    )


def sunk_row(output: str, r: Decoded) -> dict[str, Any]:
    """Returns an emitted record as a row of the sink of an output."""
    own = (output, r.topic, r.partition, r.offset, list(r.path))
    return {**r.fields, **dict(zip((name for name, _ in ROW_ID), own, strict=True))}
