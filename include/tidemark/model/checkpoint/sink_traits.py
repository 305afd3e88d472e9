"""The ways in which emitted rows reach a sink, and the traits of every kind that manifests store."""

from dataclasses import dataclass

from tidemark.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkTraits:
    """How rows reach a sink.

    Attributes:
        keeps_rows: attempts write emitted rows to a table of the sink in the warehouse.
        is_transactional: readers read the rows from that table, from the manifest on; they are not sent anywhere else.
        needs_delivery: `Sink.write` gets the rows of completed checkpoints from that table, after the manifest. A sink
            that neither needs delivery nor keeps rows gets them from the attempt, before its seal.
        goes_back_on_restore: a restore may remove rows, because manifests name them.
        needs_topic: release 0.1 planned it on forks without a topic, and such a sink is not written to.
        guarantee: shown by `tidemark sink list`; None for a table that is committed with the checkpoint.
    """

    keeps_rows: bool
    is_transactional: bool
    needs_delivery: bool
    goes_back_on_restore: bool
    guarantee: str | None
    needs_topic: bool = False


COMMITTED = SinkTraits(
    keeps_rows=True, is_transactional=True, needs_delivery=False, goes_back_on_restore=True, guarantee=None
)
"""Rows go to a table that is committed with the checkpoint: exactly once."""
OUTBOX = SinkTraits(
    keeps_rows=True,
    is_transactional=False,
    needs_delivery=True,
    goes_back_on_restore=False,
    guarantee="exactly_once_by_id",
)
"""Rows of completed checkpoints are written from an outbox table; see `sinks.outbox`."""
AHEAD = SinkTraits(
    keeps_rows=False,
    is_transactional=False,
    needs_delivery=False,
    goes_back_on_restore=False,
    guarantee="at_least_once",
)
"""The attempt writes the rows before its seal; nothing is stored, and nothing can be taken back."""


SINK_KINDS: dict[str, SinkTraits] = {}
"""Traits by kind. `sinks.known_sinks` registers them: sinks build on the model."""


def traits_of(kind: str) -> SinkTraits:
    """Returns how rows reach a sink of a kind.

    Raises:
        UsageError: this release has no such sink.
    """
    if kind not in SINK_KINDS:
        raise UsageError(
            f"this release has no sink of kind {kind!r}; there are {', '.join(sorted(SINK_KINDS))}",
            next="use the release of Tidemark that wrote this checkpoint.",
        )
    return SINK_KINDS[kind]
