"""Typed access to every object of the store: each read is verified, and each key is put once.

An uncertain put is settled by reading back: equal bytes mean that it won, other bytes that it lost.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

from tidemark.errors import CorruptObjectError, StoreError, UsageError
from tidemark.model.checkpoint import codec
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan, Slot
from tidemark.model.checkpoint.redrive import RedriveRecord, RedriveWithdrawal
from tidemark.model.checkpoint.refused_records import DeliveryFailure, SkippedRecord
from tidemark.model.checkpoint.store_objects import (
    AbortRecord,
    AnnouncementRecord,
    Closing,
    CompactionRecord,
    DeliveryRecord,
    Genesis,
    IdRecord,
    JobEnd,
    JobRecord,
    OffsetReport,
    Outcome,
    RunRecord,
    StopRecord,
)
from tidemark.model.core import canonical
from tidemark.model.retention.erasure import ErasureEnd, ErasureRecord
from tidemark.model.retention.promotion_claims import PromotionClaim
from tidemark.model.retention.publication_records import PublicationBegun, PublicationDone
from tidemark.model.retention.savepoint import SavepointRecord, TombstoneRecord
from tidemark.model.retention.sweep_records import HoldRecord, RetentionRecord, SweepRecord, SweptRecord
from tidemark.model.schema.registry_schemas import StoredSchema
from tidemark.ports import CheckpointStore, PutOutcome, UncertainPut
from tidemark.ports.caching import Prefetches, Reading, ReadsAhead
from tidemark.sinks import known_sinks as known_sinks  # manifests ask for the traits that it registers

T = TypeVar("T")

SlotEntry = Checkpoint | Genesis | Closing
"""The types that can take a slot of a timeline."""

KINDS: dict[type, str] = {
    AbortRecord: "abort",
    AnnouncementRecord: "announcement",
    Checkpoint: "manifest",
    CheckpointPlan: "plan",
    Closing: "closing",
    CompactionRecord: "compaction",
    DeliveryFailure: "delivery_failure",
    DeliveryRecord: "delivery",
    ErasureEnd: "erasure_end",
    ErasureRecord: "erasure",
    PromotionClaim: "fate",
    PublicationBegun: "publication",
    PublicationDone: "publication_done",
    Genesis: "genesis",
    HoldRecord: "hold",
    IdRecord: "id",
    JobEnd: "job_end",
    JobRecord: "job",
    OffsetReport: "report",
    Outcome: "outcome",
    RedriveRecord: "redrive",
    RedriveWithdrawal: "redrive_withdrawal",
    RetentionRecord: "retention",
    RunRecord: "run",
    SavepointRecord: "savepoint",
    SkippedRecord: "skip",
    StoredSchema: "schema",
    StopRecord: "stop",
    SweepRecord: "sweep",
    SweptRecord: "swept",
    TombstoneRecord: "tombstone",
}
"""The `kind` under which each type is written."""

_TYPES = {kind: cls for cls, kind in KINDS.items()}
_PUT_TRIES = 5


class Objects:
    """Typed access to one pipeline's store.

    Attributes:
        store: the object store, rooted at the pipeline's folder.
        pipeline: the pipeline's name, for the commands in error messages.
    """

    def __init__(self, store: CheckpointStore, pipeline: str = "PIPELINE") -> None:
        self.store = store
        self.pipeline = pipeline

    def ahead(
        self, keys: Collection[str], folders: Collection[str] = (), *, over_puts: int = 0
    ) -> AbstractContextManager[Callable[[], None] | None]:
        """Within the block, objects and listings may be as of its beginning, up to the next put (adr/0068).

        The block gets a function that ends this earlier; None if the store reads nothing ahead. The first `over_puts`
        puts in the block do not end it: they are made at the same time as the reads (adr/0071).
        """
        if not isinstance(self.store, ReadsAhead):
            return nullcontext()
        return self.store.ahead(keys, folders, over_puts=over_puts)

    def seen_head(self, timeline: str) -> int:
        """The highest slot of a timeline that this process has seen taken in a store that is far away; 0 = none."""
        return self.store.heads.get(timeline, 0) if isinstance(self.store, ReadsAhead) else 0

    def see_head(self, timeline: str, sequence: int) -> None:
        """Remembers that a slot is taken, see `seen_head`."""
        if isinstance(self.store, ReadsAhead):
            self.store.heads[timeline] = sequence

    def start(self, key: str) -> Reading[bytes | None]:
        """Starts to read a key that is decoded later with `parse`; a store that is near is read at once.

        Raises:
            StoreError: a store that is near could not be read; the error of one that is far away comes with the result.
        """
        if isinstance(self.store, ReadsAhead):
            return self.store.start(key)
        return _Answered(self.store.get(key))

    def parse(self, cls: type[T], key: str, raw: bytes | None) -> T | None:
        """Returns the object in the bytes under a key; None if there are none.

        Raises:
            CorruptObjectError: the object is damaged; the message names the key.
        """
        if raw is None:
            return None
        made = decode(KINDS[cls], key, raw)
        assert isinstance(made, cls)  # noqa: S101  (for the type checker; the codec made it)
        return made

    def read(self, cls: type[T], key: str) -> T | None:
        """Returns the object under a key, or None.

        Raises:
            CorruptObjectError: the object is damaged; the message names the key.
            StoreError: the store could not be read.
        """
        return self.parse(cls, key, self.store.get(key))

    def put(self, key: str, value: object) -> PutOutcome:
        """Puts an object unless its key is taken.

        Raises:
            StoreError: the object was certainly not written, or the outcome is still unknown after several tries.
        """
        return self._put(key, encode(value))

    def put_text(self, key_of: Callable[[str], str], text: str) -> str:
        """Puts a text under its hash and returns the hash. An existing text is left alone.

        Args:
            key_of: returns the key of a hash: `query_key` for SQL, `schema_text_key` for schemas.
            text: the text.

        Raises:
            StoreError: as in `put`.
        """
        body = text.encode()
        name = canonical.sha256_of(body)
        key = key_of(name)
        if self.store.get(key) is None:
            self._put(key, body)
        return name

    def text(self, key_of: Callable[[str], str], name: str) -> str:
        """Returns the text with a hash.

        Raises:
            CorruptObjectError: the text is gone or damaged.
        """
        key = key_of(name)
        body = self.store.get(key)
        if body is None or canonical.sha256_of(body) != name:
            raise _corrupt(key, "it is gone" if body is None else "its content does not match its name")
        return body.decode()

    def _put(self, key: str, body: bytes) -> PutOutcome:
        unsure = False
        for _ in range(_PUT_TRIES):
            try:
                outcome = self.store.put_if_absent(key, body)
            except UncertainPut:
                unsure = True
                found = self.store.get(key)
                if found is not None:
                    return _won_if(found == body)
                continue
            if outcome is PutOutcome.LOST and unsure:
                # An earlier put whose reply was lost may have arrived after all.
                return _won_if(self.store.get(key) == body)
            return outcome
        raise StoreError(
            f"the store did not confirm {key} in {_PUT_TRIES} tries",
            safe="every completed checkpoint is intact; the object is either absent or whole.",
            next="check the store's health, then run the same command again.",
        )

    def slot(self, timeline: str, sequence: int) -> SlotEntry | None:
        """Returns the entry of a slot: a manifest or genesis in its highest revision, a closing, or None if it is free.

        Raises:
            CorruptObjectError: the entry is damaged; the message names the key.
        """
        found = self.first_entry(timeline, sequence)
        if found is None or isinstance(found, Closing):
            return found
        while (later := self.entry(keys.revision_key(timeline, sequence, found.revision + 1))) is not None:
            assert isinstance(later, Checkpoint | Genesis)  # noqa: S101  (a closing names another key)
            found = later
        return found

    def first_entry(self, timeline: str, sequence: int) -> SlotEntry | None:
        """Returns the entry that took a slot first, ignoring later revisions. For publishers; not for reading state.

        Raises:
            CorruptObjectError: the entry is damaged; the message names the key.
        """
        return self.entry(keys.slot_key(timeline, sequence))

    def entry(self, key: str) -> SlotEntry | None:
        """Returns the entry under one key of a timeline, ignoring later revisions; None if there is none.

        Raises:
            CorruptObjectError: the entry is damaged; the message names the key.
        """
        raw = self.store.get(key)
        if raw is None:
            return None
        kind = _kind(key, raw)
        made = decode(kind if kind in ("genesis", "closing") else "manifest", key, raw)
        assert isinstance(made, Checkpoint | Genesis | Closing)  # noqa: S101  (for the type checker)
        return made

    def plan(self, slot: Slot) -> CheckpointPlan | None:
        """Returns the plan of a slot."""
        return self.read(CheckpointPlan, keys.plan_key(slot))

    def outcome(self, slot: Slot, attempt: int) -> Outcome | None:
        """Returns the outcome of an attempt; None while it runs."""
        return self.read(Outcome, keys.outcome_key(slot, attempt))

    def abort(self, slot: Slot) -> AbortRecord | None:
        """Returns the abort record of a plan."""
        return self.read(AbortRecord, keys.abort_key(slot))

    def list(self, prefix: str) -> Sequence[str]:
        """Lists the keys below a folder. The listing may be stale, but every key in it exists."""
        return self.store.list(prefix)

    def greatest(self, folder: str) -> int:
        """The greatest number of the keys below a folder, by a listing like `list`; 0 if there are none."""
        return keys.greatest(self.store.newest(folder)[0] if isinstance(self.store, Prefetches) else self.list(folder))

    def folders(self, folder: str) -> Sequence[str]:
        """The names of the folders directly below a top folder, by a listing like `list`, in order."""
        if isinstance(self.store, Prefetches):
            return self.store.folders(folder)
        return sorted({key.split("/")[1] for key in self.list(folder)})


@dataclass(frozen=True, slots=True)
class _Answered:
    """A read that has been made; see `ports.caching.Reading`."""

    body: bytes | None

    def done(self) -> bool:
        return True

    def result(self) -> bytes | None:
        return self.body


def encode(value: object) -> bytes:
    """The canonical bytes of an object of the store."""
    body = codec.to_json(value)
    assert isinstance(body, dict)  # noqa: S101  (for the type checker; every kind is a dataclass)
    return canonical.encode(KINDS[type(value)], body)


@lru_cache(maxsize=1024)
def _kind(key: str, raw: bytes) -> str:
    return canonical.kind_of(key, raw)


@lru_cache(maxsize=1024)
def decode(kind: str, key: str, raw: bytes) -> object:
    """The object of a kind in `raw`; cached, because objects are immutable and read again and again.

    Raises:
        CorruptObjectError: the object is damaged, of another kind, or belongs under another key.
    """
    body = canonical.decode(kind, key, raw)
    try:
        made: object = codec.from_json(_TYPES[kind], body, key)
    except UsageError as error:
        raise _corrupt(key, error.what) from error
    belongs = key_of(made)
    if belongs is not None and belongs != key:
        raise _corrupt(key, f"it belongs under {belongs}")
    return made


def key_of(value: object) -> str | None:
    """The key that an object itself determines; None if it determines none."""
    match value:
        case CheckpointPlan():
            return keys.plan_key(value.slot)
        case Checkpoint() | Genesis() | Closing():
            return _key_of_entry(value)
        case AbortRecord():
            return keys.abort_key(value.slot)
        case IdRecord():
            return keys.id_key(value.id)
    return _key_of_named(value)


def _key_of_named(value: object) -> str | None:
    """The key of a record that belongs to a name and has a number there."""
    match value:
        case SavepointRecord():
            return keys.savepoint_key(value.name, value.revision)
        case TombstoneRecord():
            return keys.tombstone_key(value.kind.value, value.name, value.number)
        case PromotionClaim():
            return keys.promotion_claim_key(value.timeline, value.number)
        case HoldRecord():
            return keys.hold_key(value.savepoint, value.revision)
        case PublicationBegun():
            return keys.publication_key(value.name, value.number)
        case PublicationDone():
            return keys.publication_done_key(value.name, value.number)
        case RedriveRecord():
            return keys.redrive_key(value.number)
        case RedriveWithdrawal():
            return keys.redrive_withdrawal_key(value.number)
        case StoredSchema():
            return keys.schema_key(value.registry, value.id)
    return None


def _key_of_entry(entry: SlotEntry) -> str:
    slot = entry.plan.slot if isinstance(entry, Checkpoint) else entry
    if isinstance(entry, Closing) or not entry.revision:
        return keys.slot_key(slot.timeline, slot.sequence)
    return keys.revision_key(slot.timeline, slot.sequence, entry.revision)


def _won_if(ours: bool) -> PutOutcome:
    return PutOutcome.WON if ours else PutOutcome.LOST


def _corrupt(key: str, why: str) -> CorruptObjectError:
    return CorruptObjectError(
        f"object damaged: {key}: {why}",
        safe="nothing was written.",
        next="restore the object from a backup of the warehouse.",
    )


# Records numbered from 1 in one folder, of which the newest counts: stops, revisions, tombstones.
#
# The number is the compare-and-set: a process that has read n and puts n + 1 wins only if no other process put it
# first.
@dataclass(frozen=True, slots=True)
class Series(Generic[T]):
    """One log of numbered records.

    Attributes:
        objects: the store.
        kind: type of the records.
        folder: the folder of the records, with its final `/`; it holds nothing else.
        key: returns the key of a number.
    """

    objects: Objects
    kind: type[T]
    folder: str
    key: Callable[[int], str]

    def newest(self) -> tuple[int, T | None]:
        """The greatest number with its record; (0, None) if there is none. A stale listing costs only reads."""
        number = self.objects.greatest(self.folder)
        found = self.objects.read(self.kind, self.key(number)) if number else None
        while (later := self.objects.read(self.kind, self.key(number + 1))) is not None:
            number, found = number + 1, later
        return number, found

    def put(self, number: int, value: T) -> PutOutcome:
        """Puts the record of a number; LOST if another process put it first."""
        return self.objects.put(self.key(number), value)
