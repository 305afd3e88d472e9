"""The index of manifests as a file: checked JSON; segments, which checkpoints share, are written once (adr/0017)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from tidemark.errors import TidemarkError
from tidemark.model.checkpoint import codec
from tidemark.model.checkpoint.segments import Segment, StateHandle
from tidemark.model.checkpoint.store_objects import JobRecord
from tidemark.model.core import canonical
from tidemark.model.retention.manifest_lines import ManifestLine
from tidemark.model.retention.savepoint import TombstoneRecord

T = TypeVar("T")
Known = Mapping[str, tuple[str, T]]
"""Per key the stamp at which it was read, and the content."""
Segments = dict[tuple[object, ...], int]
"""Fields of a segment → its number."""

KIND = "manifest_index"
FORMAT = 2
"""Version of the file format; a file of another version is ignored."""


@dataclass(frozen=True, kw_only=True)
class Indexed:
    """The content by key: newest revisions of manifests, newest tombstones, records of jobs."""

    manifests: Known[ManifestLine] = field(default_factory=dict)
    tombstones: Known[TombstoneRecord] = field(default_factory=dict)
    jobs: Known[JobRecord] = field(default_factory=dict)

    def drop_unstamped(self) -> "Indexed":
        """Returns the index without entries that must not be kept, because they have no stamp."""
        held = {f.name: {k: v for k, v in getattr(self, f.name).items() if v[0]} for f in fields(self)}
        return Indexed(**held)


def written_index(held: Indexed) -> bytes:
    """Returns the bytes of a file."""
    table: Segments = {}
    body: dict[str, Any] = {"version": FORMAT}
    body["manifests"] = {key: [at, _row_of(line, table)] for key, (at, line) in held.manifests.items()}
    body["tombstones"] = {key: [at, codec.to_json(record)] for key, (at, record) in held.tombstones.items()}
    body["jobs"] = {key: [at, codec.to_json(record)] for key, (at, record) in held.jobs.items()}
    return canonical.encode(KIND, body | {"segments": [list(segment) for segment in table]})


def read_index(name: str, raw: bytes) -> Indexed:
    """Parses a file; a damaged file or another format gives an empty index, which only costs time."""
    made: dict[int, Segment] = {}
    try:
        body = canonical.decode(KIND, name, raw)
        if body["version"] != FORMAT:
            return Indexed()
        return Indexed(
            manifests={k: (at, _line_of(row, body["segments"], made)) for k, (at, row) in body["manifests"].items()},
            tombstones=_records(TombstoneRecord, body["tombstones"]),
            jobs=_records(JobRecord, body["jobs"]),
        )
    except (TidemarkError, AttributeError, LookupError, TypeError, ValueError):
        return Indexed()


def _records(cls: type[T], rows: Mapping[str, Any]) -> dict[str, tuple[str, T]]:
    return {key: (at, codec.from_json(cls, body, key)) for key, (at, body) in rows.items()}


def _row_of(line: ManifestLine, segments: Segments) -> list[Any]:
    """Returns a line as JSON values; new segments get the next numbers."""
    return [
        line.id,
        line.timeline,
        line.sequence,
        line.revision,
        line.logical_time_ms,
        line.attempt,
        line.repeats,
        {uid: _numbers(handle, segments) for uid, handle in line.handles.items()},
        [_numbers(handle, segments) for handle in line.others],
        dict(line.tables),
        sorted(line.sinks),
        line.sends,
        line.run,
    ]


def _line_of(row: Sequence[Any], segments: Sequence[Sequence[Any]], made: dict[int, Segment]) -> ManifestLine:
    """Returns the line of such a row; `made` contains the segments that exist already, by number."""
    number, timeline, sequence, revision, at_ms, attempt, repeats, handles, others, tables, sinks, sends, run = row
    return ManifestLine(
        id=number,
        timeline=timeline,
        sequence=sequence,
        revision=revision,
        logical_time_ms=at_ms,
        attempt=attempt,
        repeats=repeats,
        handles={uid: _state(numbers, segments, made) for uid, numbers in handles.items()},
        others=tuple(_state(numbers, segments, made) for numbers in others),
        tables=tables,
        sinks=frozenset(sinks),
        sends=sends,
        run=run,
    )


def _numbers(handle: StateHandle, segments: Segments) -> list[int]:
    rows = ((s.path, s.version, s.after, s.through, s.rows, s.bytes, s.files) for s in handle)
    return [segments.setdefault(row, len(segments)) for row in rows]


def _state(numbers: Sequence[int], segments: Sequence[Sequence[Any]], made: dict[int, Segment]) -> StateHandle:
    for n in numbers:
        if n not in made:
            path, version, after, through, rows, size, files = segments[n]
            made[n] = Segment(
                path=path, version=version, after=after, through=through, rows=rows, bytes=size, files=files
            )
    return StateHandle(tuple(made[n] for n in numbers))
