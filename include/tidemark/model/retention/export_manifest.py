"""`export.json`, the description of an export: a folder that needs neither a warehouse nor Tidemark to be read.

All paths are relative to the folder, so you can move, copy and mount it as a whole.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tidemark.model.checkpoint import codec
from tidemark.model.checkpoint.codec import ADDED
from tidemark.model.checkpoint.segments import OperatorState
from tidemark.model.core import canonical
from tidemark.model.core.clocks import EventTimeClock
from tidemark.model.core.offsets import OffsetRanges, TopicPartition
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.model.schema.registry_schemas import SchemaText

NAME = "export.json"
"""Name of the file that names all others."""
_KIND = "export"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """One file: path relative to the folder, size in bytes, sha256, and rows if it is a table."""

    path: str
    bytes: int
    sha256: str
    rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedState:
    """The state of one operator.

    Attributes:
        schema: schema of the stored rows, without older tables.
        stored: one row per key (and per entry of a map) in the columns of a state table: accumulators and access times.
            An import writes these rows.
        resolved: one row per live key, finished, for people; None for state from a given table, which nothing reads.
        queries: per dialect the query that computes `resolved` from `stored`.
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
class ExportedSchema:
    """A schema by which the pipeline decodes: the name of its registry, its id there, and the stored answer."""

    registry: str
    id: int
    schema: SchemaText


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A checkpoint outside of its warehouse: everything that a pipeline needs to continue from it.

    It does not include dead letters and the rows of sinks: these are results, and stay where they are.

    Attributes:
        pipeline: the pipeline that it comes from.
        checkpoint: its id in that pipeline.
        timeline: its timeline in that pipeline.
        savepoint: the requested savepoint; empty if a checkpoint was requested.
        states: states by uid.
        operator_states: lists by uid.
        ranges: ranges of the checkpoint; reading continues at their ends. topic_ids, sources, isolation,
            logical_time_ms, watermarks, broadcast_versions, broadcast_ids, fingerprint: as in its plan.
        watermark_ms: watermark after it.
        clocks: the clocks after it.
        covered_until_ms: end of the newest interval that it covers.
        exported_at_ms: clock of the writer, for people.
        schemas: all schemas of registries that the warehouse keeps for the pipeline, because the records that follow
            may name any of them, also when the registry is gone.
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
    schemas: tuple[ExportedSchema, ...] = field(default=(), metadata=ADDED)
    clocks: Mapping[str, EventTimeClock] = field(default_factory=dict, metadata=ADDED)

    @property
    def files(self) -> Iterator[ExportedFile]:
        """Every file except the one that names them."""
        for state in self.states.values():
            yield from (*state.stored, *((state.resolved,) if state.resolved else ()), *state.queries.values())

    def below(self, folder: str) -> "Export":
        """Returns the same export with all files, except the one that names them, in a sibling folder."""

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

    def encode(self) -> bytes:
        """Returns the canonical bytes of `export.json`, with a checksum."""
        body = codec.to_json(self)
        assert isinstance(body, dict)  # noqa: S101  (for the type checker)
        return canonical.encode(_KIND, body)

    @classmethod
    def decode(cls, raw: bytes) -> "Export":
        """The inverse of `encode`.

        Raises:
            CorruptObjectError: it is damaged, not an export, or in an unknown format.
        """
        return codec.from_json(cls, canonical.decode(_KIND, NAME, raw), NAME)
