"""A compacted topic as the target of a publication: a key's newest record is its row, a tombstone deletes it."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tidemark.errors import TargetChangedError
from tidemark.kafka.compacted_topic import CompactedTopic, Row, TopicProgress
from tidemark.model.retention.publication_records import Replaceable
from tidemark.ports.publishing import Difference, Published, StatePart, Step
from tidemark.publications.json_rows import from_json, to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTarget:
    """See `ports.publishing.PublicationTarget`.

    The group's offset, which holds the progress, expires with Kafka's `offsets.retention.minutes`. Without it a step
    counts as the next one if the records of the warehouse say so: then values may be repeated, and none goes back.

    Attributes:
        topic: the topic.
        application: id of the publication, `tidemark/<pipeline>/<name>`.
        keys: names of the key columns.
        columns: of the resolved state, key columns included.
    """

    topic: CompactedTopic
    application: str
    keys: Sequence[str]
    columns: pa.Schema

    def newest_step(self) -> int:
        """See `ports.publishing.PublicationTarget`."""
        found = self.topic.progress()
        return 0 if found is None else found.step

    def apply(self, step: Step, difference: Callable[[], Difference]) -> Published:
        """See `ports.publishing.PublicationTarget`."""
        with self.topic.writer() as writer:
            progress = self.topic.progress()
            if progress is not None and progress.step >= step.number:
                return _had(progress)
            if progress is not None and (progress.step, progress.lineage) != (step.previous, step.previous_lineage):
                raise self._changed("it has another step, or another rebuild")
            partitions = writer.partitions()
            if progress is not None and progress.partitions not in (0, partitions):
                raise self._changed(f"it had {progress.partitions} partitions and has {partitions}, so keys move")
            found = difference()
            gone = pa.concat_tables([found.deletes, found.erased])
            # An erased key that is in the state again gets its tombstone first.
            rows = (*((key, None) for key in self._keys(gone)), *self._rows([found.upserts]))
            size = writer.write(rows, _progress(step, partitions))
        return Published(
            version=str(step.checkpoint), inserted=found.upserts.num_rows, deleted=gone.num_rows, bytes=size
        )

    def replace(self, step: Step, parts: Sequence[StatePart], replaces: Replaceable) -> Published:
        """See `ports.publishing.PublicationTarget`. Keys that are not in the state get tombstones at the end."""
        self.topic.create()
        with self.topic.writer() as writer:
            progress = self.topic.progress()
            if progress is not None and progress.step >= step.number:
                return _had(progress)
            stale = {place for place, value in dict(self.topic.records()).items() if value is not None}
            self._refuse_rows(progress, step, replaces, is_empty=not stale)
            if progress is None:
                # From now on the records in the topic are known to be of this publication, whatever part of them.
                writer.write((), TopicProgress(step.previous, step.previous_lineage, 0))
            inserted = 0

            def rows() -> Iterator[Row]:
                nonlocal inserted
                for row in self._rows(table for part in parts for table in part.read()):
                    inserted += 1
                    yield row

            size = writer.write(rows(), _progress(step, writer.partitions()), stale)
        return Published(version=str(step.checkpoint), bytes=size, inserted=inserted, deleted=len(stale))

    def drop(self, step: Step) -> Published:
        """See `ports.publishing.PublicationTarget`."""
        progress = self.topic.progress()
        if progress is None:
            return Published(version="")
        with self.topic.writer() as writer:
            writer.write((), _progress(step, writer.partitions()))
        return Published(version=str(step.checkpoint))

    def rows(self) -> tuple[int, pa.Table]:
        """See `ports.publishing.PublicationTarget`. A key with values in two partitions has two rows."""
        newest = dict(self.topic.records())
        loads = [(field.name, from_json(field.type)) for field in self.columns]
        read = [json.loads(value) for value in newest.values() if value is not None]
        arrays = [
            pa.array([load(row.get(name)) for row in read], field.type)
            for (name, load), field in zip(loads, self.columns, strict=True)
        ]
        return self.newest_step(), pa.Table.from_arrays(arrays, schema=self.columns)

    def _rows(self, tables: Iterable[pa.Table]) -> Iterator[Row]:
        dumps = [(field.name, to_json(field.type)) for field in self.columns]
        for table in tables:
            for batch in table.to_batches(max_chunksize=10_000):
                for row in batch.to_pylist(maps_as_pydicts="strict"):
                    told = {name: dump(row[name]) for name, dump in dumps}
                    yield _bytes({key: told[key] for key in self.keys}), _bytes(told)

    def _keys(self, keys: pa.Table) -> Iterator[bytes]:
        dumps = [(key, to_json(self.columns.field(key).type)) for key in self.keys]
        for row in keys.to_pylist():
            yield _bytes({key: dump(row[key]) for key, dump in dumps})

    def _refuse_rows(
        self, progress: TopicProgress | None, step: Step, replaces: Replaceable, *, is_empty: bool
    ) -> None:
        _, pipeline, name = self.application.split("/")
        if progress is None and not step.previous and not is_empty and replaces is not Replaceable.ANY:
            raise TargetChangedError(
                f"topic {self.topic.topic} has records that this publication has not written",
                safe="the topic was left alone.",
                next="name another topic in the pipeline file, or:"
                f" tidemark publication rebuild {pipeline} {name} --replace",
            )
        if (
            replaces is Replaceable.UNTOUCHED
            and progress is not None
            and (progress.step, progress.lineage) != (step.previous, step.previous_lineage)
        ):
            raise self._changed("it has another step, or another rebuild")

    def _changed(self, why: str) -> TargetChangedError:
        _, pipeline, name = self.application.split("/")
        return TargetChangedError(
            f"MIRROR_CHANGED: topic {self.topic.topic} of {name} was written by others: {why}",
            safe="the topic was left alone; every checkpoint is intact.",
            next=f"tidemark publication rebuild {pipeline} {name}    (writes all rows again).",
        )


def _progress(step: Step, partitions: int) -> TopicProgress:
    return TopicProgress(step.number, step.lineage, step.checkpoint, partitions)


def _had(progress: TopicProgress) -> Published:
    return Published(version=str(progress.checkpoint))


def _bytes(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
