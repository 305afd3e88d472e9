"""What an export says of itself: `export.json`, first of a folder that needs no warehouse and no code of ours (G7, G8).

All paths are relative to the folder, so that it can be moved, copied and mounted anywhere as a whole.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tidemark.model.checkpoint import codec
from tidemark.model.checkpoint.operator_lists import OperatorState
from tidemark.model.core import canonical
from tidemark.model.core.offsets import OffsetRanges, TopicPartition
from tidemark.model.schema.operator_schema import OperatorSchema

NAME = "export.json"
"""Of the file that names all others."""
_KIND = "export"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """One file: path relative to the folder, size in bytes, sha256; rows, where it is a table."""

    path: str
    bytes: int
    sha256: str
    rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedState:
    """The state of one operator.

    Attributes:
        schema: of the stored rows; it knows no older tables.
        stored: one row per key (and per entry of a map) in the columns of a table of state: accumulators, access
            times; what an import writes.
        resolved: one row per live key, finished: what people read; None where a table was given, and nobody reads it.
        queries: per dialect the text that makes the second of the first.
    """

    schema: OperatorSchema
    stored: tuple[ExportedFile, ...]
    resolved: ExportedFile | None
    queries: Mapping[str, ExportedFile]

    @property
    def rows(self) -> int:
        """Stored rows."""
        return sum(f.rows or 0 for f in self.stored)


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A checkpoint outside of its warehouse: what a pipeline needs to go on from it.

    Dead letters and the rows of sinks are no part of it: they are results, and stay where they are.

    Attributes:
        pipeline: where it comes from.
        checkpoint: id there.
        timeline: there.
        savepoint: the one that was asked for; empty where it was a checkpoint.
        states: by uid.
        operator_states: lists by uid.
        ranges: of the checkpoint; their ends are where reading goes on.
        topic_ids, sources, isolation, logical_time_ms, watermarks, broadcast_versions, broadcast_ids, fingerprint: as
            in its plan.
        watermark_ms: after it.
        covered_until_ms: end of the newest interval that it covers.
        exported_at_ms: clock of the writer, for people.
    """

    pipeline: str
    checkpoint: int
    timeline: str
    savepoint: str
    states: Mapping[str, ExportedState]
    operator_states: Mapping[str, OperatorState]
    ranges: OffsetRanges
    topic_ids: Mapping[str, str]
    sources: Mapping[str, tuple[str, ...]]
    isolation: str
    logical_time_ms: int
    watermark_ms: int | None
    watermarks: Mapping[TopicPartition, int]
    covered_until_ms: int | None
    broadcast_versions: Mapping[str, int]
    broadcast_ids: Mapping[str, str]
    fingerprint: str
    exported_at_ms: int

    @property
    def files(self) -> Iterator[ExportedFile]:
        """Every file but the one that names them."""
        for state in self.states.values():
            yield from (*state.stored, *((state.resolved,) if state.resolved else ()), *state.queries.values())

    def below(self, folder: str) -> "Export":
        """The same, where all files but the one that names them lie in a folder beside it."""

        def moved(f: ExportedFile) -> ExportedFile:
            return replace(f, path=f"{folder}/{f.path}")

        states = {
            uid: replace(
                state,
                stored=tuple(moved(f) for f in state.stored),
                resolved=state.resolved and moved(state.resolved),
                queries={dialect: moved(f) for dialect, f in state.queries.items()},
            )
            for uid, state in self.states.items()
        }
        return replace(self, states=states)

    def encoded(self) -> bytes:
        """The canonical bytes of `export.json`, with a checksum."""
        body = codec.to_json(self)
        assert isinstance(body, dict)  # noqa: S101  (for the type checker)
        return canonical.encode(_KIND, body)

    @classmethod
    def decoded(cls, raw: bytes) -> "Export":
        """The inverse of `encoded`.

        Raises:
            CorruptObjectError: damaged, no export, or of an unknown format.
        """
        return codec.from_json(cls, canonical.decode(_KIND, NAME, raw), NAME)
