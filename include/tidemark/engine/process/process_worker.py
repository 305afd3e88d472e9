"""The code in Spark's Python workers: it passes a sorted stream per partition, key by key, through the runtime.

Each batch of the stream holds rows ordered by key; for each key its stored rows come first (`STORED`), then its records
(`RECORD`). Where the worker looks stored rows up itself, there are only records. The result has six kinds of rows
(`RUN EMITTED LETTER FAILED LISTS FIRED`), distinguished by `_tag`, and one more for each output after the first.
"""

import gc
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext, cloudpickle

from tidemark.engine.process.arrow_values import arrow_type, object_reader, stored_reader
from tidemark.engine.state.state_files import KeyReader
from tidemark.errors import ProcessFunctionError, StateOverflowError, TidemarkError
from tidemark.model.checkpoint import codec
from tidemark.model.checkpoint.segments import Part
from tidemark.model.core.types import FieldType
from tidemark.model.schema.key_groups import KeyGroupRange, group_of, key_group_ranges
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.processing.emitted_rows import RowEncoder
from tidemark.processing.process_records import Emitted, Output, PositionedRecord
from tidemark.processing.processor import Processing
from tidemark.processing.shapes import Shape

STORED, RECORD = 0, 1
RUN, EMITTED, LETTER, FAILED, LISTS, FIRED = 0, 1, 2, 3, 4, 5
OTHERS = 6
"""Tag of the rows of the second output; those of further ones follow."""
_OUTPUT, _ITEM = attrgetter("output"), itemgetter(2)
_KEY, _RECORDS = itemgetter(0), itemgetter(1)
_OfBatch = Callable[[Mapping[str, Any]], Iterable[Any]]
"""Reads something for each row of a batch, from its columns by name."""
KeyRows = tuple[Any, Sequence[Any], Iterable[PositionedRecord]]
"""A key, its stored rows and its records."""
GROUP = "_group"
"""The column with the key group of a record."""
_NEW_OBJECTS = 100_000
"""New objects after which Python looks for cyclic garbage among them; its default is 700."""
_AT_ONCE = 1_000
"""Records that are made of columns at once: so many are still in a processor's cache when the function gets them."""
FLUSH = 10_000
"""Number of rows of one kind that are sent back in one batch."""
_TEXT = FieldType("str", nullable=True)
_NUMBER = FieldType("int", nullable=True)


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of a worker; it travels pickled.

    Attributes:
        processing: the operator, bound.
        record: shape of its records.
        reader: looks up the stored rows of keys; None = they are in the stream.
        tasks: number of tasks of a reader, each with a range of key groups.
        parts: number of ranges in which a task looks up its keys, one after the other. If it is more than one, the
            stream has the column `GROUP` and is ordered by it.
    """

    processing: Processing
    record: Shape
    reader: KeyReader | None = None
    tasks: int = 1
    parts: int = 1

    @property
    def schema(self) -> OperatorSchema:
        """The operator's stored schema."""
        return self.processing.state.schema


def stored_type(schema: OperatorSchema) -> FieldType:
    """Returns the struct of a stored row, without its key columns and technical columns."""
    entry = (("_field", _TEXT),) if schema.maps else ()
    return FieldType("struct", fields=(*entry, *((n, t) for f in schema.fields for n, t in f.columns)))


def run_type(schema: OperatorSchema) -> FieldType:
    """Returns the struct of a row of the run, in the columns of `run_columns`."""
    keys = tuple((k.name, k.type) for k in schema.keys)
    own = (("_kind", _TEXT), ("_changed", _NUMBER), ("_key_group", _NUMBER))
    return FieldType("struct", fields=(*keys, *stored_type(schema).fields, *own))


def tag_of(output: int) -> int:
    """Returns the tag of the rows of an output, by its number."""
    return OTHERS + output - 1 if output else EMITTED


def record_column(output: int) -> str:
    """Returns the column of the rows of an output."""
    return f"record_{output}" if output else "record"


def work_through(blob: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function that Spark calls once per partition.

    Args:
        blob: a pickled `Work`.
        batches: keys `_k0`, `_k1`, ..., `_tag`, topic, partition, offset, `_path`, `event_time`, `_at`, record, stored;
            without `_tag` and stored if a reader looks these up, and with `GROUP` if it does so in parts.
    """
    with seldom_collected():
        yield from _work_through(cloudpickle.loads(blob), batches)


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Has Python look for cyclic garbage only after many new objects.

    A worker holds hundreds of thousands of records and stored rows, which are not cyclic. By default Python looks
    through all of them again and again: that takes a third of a task.
    """
    before = gc.get_threshold()
    gc.set_threshold(_NEW_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _work_through(work: Work, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    task = _task()
    lists = work.processing.lists
    sent, out = (
        ResultBatches(work.processing.encoder, run_type(work.schema)),
        Output(task=None if lists is None else lists.open_task(task)),
    )
    waiting = iter(batches)
    try:
        for key, stored, records in _by_key(work, waiting) if work.reader is None else _looked_up(work, waiting):
            if records or work.processing.rules is not None:
                work.processing.process(key, stored, records, out)
            yield from sent.flush(out, at_least=FLUSH)
        yield from sent.flush(out, at_least=1)
        if out.fired:
            yield sent.fired(out.fired)
        if out.task is not None and (left := out.task.changed_parts()):
            yield sent.lists(task, left)
    except (ProcessFunctionError, StateOverflowError) as error:
        yield sent.failure(error)
        for _ in waiting:
            # A batch that is left unread would cost Spark this worker.
            continue


def left_of(text: str) -> tuple[int, dict[str, Part]]:
    """Returns the number of a task, and its part of each list that it changed."""
    said = json.loads(text)
    return said["task"], {name: codec.from_json(Part, part, name) for name, part in said["lists"].items()}


def _task() -> int:
    """Returns the number of the Spark partition of this worker."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def rebuild_error(why: str) -> TidemarkError:
    """Rebuilds the error that a worker has sent."""
    said = json.loads(why)
    kind = ProcessFunctionError if said["class"] == ProcessFunctionError.__name__ else StateOverflowError
    error = kind(said["what"], safe=said["safe"], next=said["next"])
    if isinstance(error, ProcessFunctionError):
        error.key, error.kind, error.trace = said["key"], said["kind"], said["trace"]
        topic, partition, offset, path = said["place"]
        error.place = (topic, partition, offset, tuple(path))
    return error


def _by_key(work: Work, batches: Iterator[pa.RecordBatch]) -> Iterator[KeyRows]:
    """Yields the keys of a stream with their stored rows, each before its records, or of one that has only records."""
    first = next(batches, None)
    if first is None:
        return
    every = chain((first,), batches)
    if "stored" not in first.schema.names:
        for key, records in _with_records(work, every):
            yield key, (), records
        return
    for key, group in groupby(_rows(work, every), key=_KEY):
        yield key, *_split(group)


def _looked_up(work: Work, batches: Iterator[pa.RecordBatch]) -> Iterator[KeyRows]:
    """Yields the keys of a stream of records with the stored rows that this task looks up, then keys with due timers.

    It does so for one part of its key groups after the other. Without records, the stream has only the task's number.
    """
    for within, held in _by_part(work, batches):
        stored = _find_stored(work, within, held)
        for key, records in _with_records(work, held):
            yield key, stored.pop(key, ()), records
        for key, rows in stored.items():
            yield key, rows, ()


def _with_records(
    work: Work, batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[tuple[Any, ...], Iterable[PositionedRecord]]]:
    """Yields each key with its records."""
    keys_of, records_of = _key_reader(work), _record_reader(work)
    runs = (run for batch in batches for run in _runs(batch, keys_of, records_of))
    # A key may have several runs, the records of which are made when the function takes them.
    for key, found in groupby(runs, key=_KEY):
        yield key, chain.from_iterable(map(_RECORDS, found))


def _runs(batch: pa.RecordBatch, keys_of: _OfBatch, records_of: _OfBatch) -> Iterator[tuple[Any, list[Any]]]:
    """Yields keys of a batch with records, in order; a key may follow itself."""
    for first in range(0, len(batch), _AT_ONCE):
        part = batch.slice(first, _AT_ONCE)
        columns = dict(zip(part.schema.names, part.columns, strict=True))
        records, start = list(records_of(columns)), 0
        for key, group in groupby(keys_of(columns)):
            end = start + len(list(group))
            yield key, records[start:end]
            start = end


def _by_part(work: Work, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[KeyGroupRange, list[pa.RecordBatch]]]:
    """Yields each part of the task's key groups with its records, also those without any."""
    own = key_group_ranges(work.schema.key_groups, work.tasks)[_task()]
    every = (batch for batch in batches if "record" in batch.schema.names)
    if work.parts == 1:
        yield own, list(every)
        return
    size = own.last - own.first + 1
    parts = [
        KeyGroupRange(own.first + part.first, own.first + part.last)
        for part in key_group_ranges(size, min(work.parts, size))
    ]
    held: list[pa.RecordBatch] = []
    at = 0
    for batch in every:
        groups, start = batch.column(GROUP).to_numpy(), 0
        while start < len(groups):
            end = int(np.searchsorted(groups, parts[at].last, side="right"))
            if end > start:
                held.append(batch.slice(start, end - start))
            if end < len(groups):
                yield parts[at], held
                held, at = [], at + 1
            start = end
    for part in parts[at:]:
        yield part, held
        held = []


def _find_stored(work: Work, within: KeyGroupRange, held: Sequence[pa.RecordBatch]) -> dict[Any, Any]:
    schema, reader = work.schema, work.reader
    assert reader is not None  # noqa: S101  (for the type checker: the caller has looked)
    keys = pa.schema([(k.name, arrow_type(k.type)) for k in schema.keys])
    own = [f"_k{n}" for n in range(len(schema.keys))]
    wanted = [pa.table(batch.select(own).columns, names=keys.names).cast(keys) for batch in held]
    for batch in filter(len, wanted):
        # Stored rows of a key in another task's range would go unnoticed.
        first = tuple(stored_reader(k.type)(batch[k.name].slice(0, 1).combine_chunks())[0] for k in schema.keys)
        if not within.first <= group_of(schema, first) <= within.last:
            raise RuntimeError(f"{schema.uid}: key {first} is in a part that has only key groups {within}")
    rows = reader(within, pa.concat_tables(wanted) if wanted else keys.empty_table())
    key_columns = [stored_reader(k.type)(rows[k.name].combine_chunks()) for k in schema.keys]
    found = zip(*key_columns, strict=True)
    if schema.maps:
        by_key: dict[tuple[Any, ...], list[Any]] = {}
        for key, value in zip(found, _stored_values(work, rows), strict=True):
            by_key.setdefault(key, []).append(value)
        return by_key
    return dict(zip(found, zip(_stored_values(work, rows), strict=True), strict=True))


def _stored_values(work: Work, rows: pa.Table) -> Iterable[Any]:
    """Returns the stored rows without keys, as `StateType.open` takes them."""
    of, state = stored_type(work.schema), work.processing.state
    columns = {name: rows[name].combine_chunks() for name, _ in of.fields}
    if not state.has_cells and not any(columns[at].null_count for at in state.plain_columns[1::2]):
        return zip(*(stored_reader(inner)(columns[name]) for name, inner in of.fields), strict=True)
    return stored_reader(of)(pa.StructArray.from_arrays(list(columns.values()), names=list(columns)))


def _split(group: Iterator[tuple[Any, int, Any]]) -> tuple[list[Any], Iterable[PositionedRecord]]:
    """Returns the stored rows of a key, and its records."""
    stored: list[Any] = []
    for _, tag, item in group:
        if tag == RECORD:
            return stored, chain((item,), map(_ITEM, group))
        stored.append(item)
    return stored, ()


def positioned(columns: Mapping[str, Any], read_record: Callable[[Any], list[Any]]) -> Iterator[PositionedRecord]:
    """Returns the records of a batch, from its columns by name."""
    number, text = stored_reader(_NUMBER), stored_reader(_TEXT)
    placed: Callable[[tuple[Any, ...]], PositionedRecord] = partial(tuple.__new__, PositionedRecord)
    partition, offset, times, at = (
        number(columns[name].cast(pa.int64())) for name in ("partition", "offset", "event_time", "_at")
    )
    paths = map(tuple, columns["_path"].to_pylist()) if len(columns["_path"].flatten()) else [()] * len(offset)
    records = read_record(columns["record"])
    return map(placed, zip(text(columns["topic"]), partition, offset, paths, times, at, records, strict=True))


def _key_reader(work: Work) -> _OfBatch:
    keys = [stored_reader(k.type) for k in work.schema.keys]
    return lambda columns: zip(*(read(columns[f"_k{n}"]) for n, read in enumerate(keys)), strict=True)


def _record_reader(work: Work) -> _OfBatch:
    read_record = object_reader(work.record)
    return lambda columns: positioned(columns, read_record)


def _rows(work: Work, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Any, int, Any]]:
    keys_of, records_of, read_stored = _key_reader(work), _record_reader(work), stored_reader(stored_type(work.schema))
    number = stored_reader(_NUMBER)
    for batch in batches:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        is_record = pc.equal(columns["_tag"], RECORD)
        mine = {name: column.filter(is_record) for name, column in columns.items() if name not in ("_tag", "stored")}
        records = iter(records_of(mine))
        tags = number(columns["_tag"].cast(pa.int64()))
        stored = iter(read_stored(columns["stored"].filter(pc.invert(is_record))))
        items = (next(records) if tag == RECORD else next(stored) for tag in tags)
        yield from zip(keys_of(columns), tags, items, strict=True)


class ResultBatches:
    """Builds the batches that are sent back.

    Args:
        encoder: the outputs of the operator.
        run: the struct of a row of its run; None for an operator without state.
    """

    def __init__(self, encoder: RowEncoder, run: FieldType | None) -> None:
        emits = [shape.type for shape in encoder.shapes]
        self._run = [] if run is None else [(name, arrow_type(of)) for name, of in run.fields]
        self._emitted = [[(name, arrow_type(of)) for name, of in made.fields] for made in emits]
        types = [
            ("_tag", pa.int32()),
            *([] if run is None else [("run", arrow_type(run))]),
            *((record_column(n), arrow_type(made)) for n, made in enumerate(emits)),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("_path", pa.list_(pa.int64())),
            ("event_time", pa.timestamp("us", tz="UTC")),
            ("why", pa.string()),
        ]
        self._schema = pa.schema(types)

    def flush(self, out: Output, *, at_least: int) -> Iterator[pa.RecordBatch]:
        """Yields the collected rows as batches and removes them; skips kinds with fewer than `at_least` rows."""
        if out.rows and len(out.rows) >= at_least:
            yield self._batch(RUN, len(out.rows), run=_struct(self._run, out.rows))
            out.rows.clear()
        if out.emitted and len(out.emitted) >= at_least:
            for output, rows in groupby(sorted(out.emitted, key=_OUTPUT), key=_OUTPUT):
                yield self._emitted_batch(output, list(rows))
            out.emitted.clear()
        if len(out.letters) >= at_least:
            topic, partition, offset, path, why = zip(*out.letters, strict=True)
            places = {"topic": topic, "partition": partition, "offset": offset, "_path": path, "why": why}
            yield self._batch(LETTER, len(why), **places)
            out.letters.clear()

    def _emitted_batch(self, output: int, rows: list[Emitted]) -> pa.RecordBatch:
        topic, partition, offset, path, times, fields, _ = zip(*rows, strict=True)
        times = pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        places = {"topic": topic, "partition": partition, "offset": offset, "_path": path, "event_time": times}
        held = {record_column(output): _struct(self._emitted[output], fields)}
        return self._batch(tag_of(output), len(rows), **held, **places)

    def lists(self, task: int, left: Mapping[str, Part]) -> pa.RecordBatch:
        """Returns the batch with the task's parts of the operator state."""
        return self._batch(LISTS, 1, why=[json.dumps({"task": task, "lists": codec.to_json(left)})])

    def fired(self, count: int) -> pa.RecordBatch:
        """Returns the batch that says how many timers have fired."""
        return self._batch(FIRED, 1, why=[str(count)])

    def failure(self, error: ProcessFunctionError | StateOverflowError) -> pa.RecordBatch:
        """Returns the batch that says why processing a partition failed."""
        said: dict[str, Any] = {"what": error.what, "safe": error.safe, "next": error.next}
        if isinstance(error, ProcessFunctionError):
            said |= {"key": error.key, "kind": error.kind, "trace": error.trace, "place": list(error.place)}
        why = [json.dumps({"class": type(error).__name__, **said})]
        topic, partition, offset, path = said.get("place", ("", 0, 0, ()))
        return self._batch(FAILED, 1, why=why, topic=[topic], partition=[partition], offset=[offset], _path=[path])

    def _batch(self, tag: int, rows: int, **columns: Any) -> pa.RecordBatch:
        columns["_tag"] = pa.repeat(pa.scalar(tag, pa.int32()), rows)
        arrays = []
        for field in self._schema:
            held = columns.get(field.name)
            if held is None:
                arrays.append(pa.nulls(rows, field.type))
            else:
                arrays.append(held if isinstance(held, pa.Array) else pa.array(held, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _struct(types: list[tuple[str, pa.DataType]], rows: Iterable[tuple[Any, ...]]) -> pa.StructArray:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, of) for values, (_, of) in zip(columns, types, strict=True)]
    return pa.StructArray.from_arrays(arrays, names=[name for name, _ in types])
