"""The history of a pipeline's checkpoints: what every id came to, each object read once (adr/0014).

For pages that ask every few seconds. Ids are listed, and what is new is read; what is completed or has failed never
changes, so it is never read again. It decides nothing: verbs go by `Timelines` and `Objects`.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tidemark.errors import CorruptObjectError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import rejected_records
from tidemark.model.checkpoint.plan import Slot
from tidemark.model.core import canonical
from tidemark.ports import CheckpointStore


class CheckpointStatus(Enum):
    """What became of a checkpoint (Flink's CheckpointStatsStatus), and one more: its manifest cannot be read."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    DAMAGED = "DAMAGED"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """A line of the history: small, because thousands are kept in memory.

    Attributes:
        id, slot, parent, origin, fingerprint, trigger_ms: as its plan says; trigger is when it was planned.
        status: what became of it.
        uids: its operators.
        work_ms: the steps of the attempt that was sealed, added up.
        ack_ms: when it was sealed, after the last acknowledgement, gate and fsync; None where it was not.
        run_bytes: of the runs that it wrote (Flink's checkpointed size).
        full_bytes: of all state that it names.
        records, record_bytes, dead_letters, keys, emitted: counts over all operators; records are read once, and a
            record that several operators rejected is one dead letter.
        at_most: whether `dead_letters` is an upper bound, as of some manifests of 0.1.
        offsets: per topic how many partitions have a range, and how many offsets the ranges span.
        spans: per partition the offsets that its range spans, where there are any.
        pending: per partition the offsets beyond its range when it was planned, where there were any.
        gate: expectations that held, and all of them; None where it was not judged.
        attempt: the one that was sealed; of a failed one how many there were.
        replays: ids that it repeats on a fork.
        failure: reason, message and what to do; of a damaged one what is wrong.
        failed_ms: when it failed.
    """

    id: int
    slot: Slot
    status: CheckpointStatus
    parent: int | None = None
    origin: str = ""
    fingerprint: str = ""
    trigger_ms: int = 0
    logical_time_ms: int | None = None
    uids: tuple[str, ...] = ()
    work_ms: int = 0
    ack_ms: int | None = None
    run_bytes: int = 0
    full_bytes: int = 0
    records: int = 0
    record_bytes: int = 0
    dead_letters: int = 0
    at_most: bool = False
    keys: int = 0
    emitted: int = 0
    offsets: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    spans: Mapping[str, int] = field(default_factory=dict)
    pending: Mapping[str, int] = field(default_factory=dict)
    gate: tuple[int, int] | None = None
    attempt: int = 0
    replays: tuple[int, ...] = ()
    failure: tuple[str, str, str] = ("", "", "")
    failed_ms: int | None = None

    @property
    def name(self) -> str:
        """`chk-17`."""
        return f"chk-{self.id}"

    @property
    def key(self) -> str:
        """Where its manifest is, or would be."""
        return keys.slot_key(self.slot.timeline, self.slot.sequence)

    @property
    def duration_ms(self) -> int:
        """From the trigger to the last acknowledgement (Flink's end-to-end duration); 0 where it was not sealed."""
        return 0 if self.ack_ms is None else max(0, self.ack_ms - self.trigger_ms)

    @property
    def is_empty(self) -> bool:
        """Whether it read nothing and touched no key: it says nothing of how long work takes."""
        return self.records == 0 and self.keys == 0

    @property
    def is_final(self) -> bool:
        """Whether nothing can become of it any more; a damaged object may be put back from a backup."""
        return self.status in (CheckpointStatus.COMPLETED, CheckpointStatus.FAILED)


class History:
    """Reads a store's history in portions; not safe for several threads at once.

    Args:
        store: below the pipeline's folder.
    """

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._final: dict[int, HistoryEntry] = {}
        self._void: set[int] = set()
        self._tombs: dict[str, tuple[int, bool]] = {}
        self._unread: list[int] = []
        self.entries: tuple[HistoryEntry, ...] = ()
        self.discarded: frozenset[int] = frozenset()
        self.total = 0

    @property
    def unread(self) -> int:
        """How many ids were listed and are not read yet; they are older than those that are."""
        return len(self._unread)

    def refresh(self, most: int) -> None:
        """Reads what is new, newest first, at most so many ids; a later call goes on.

        Raises:
            StoreError: the store could not be listed or read; what was read stays.
        """
        listed = {keys.number_of(key): key for key in self._store.list("ids/")}
        self.total = len(listed)
        for gone in self._final.keys() - listed.keys():
            del self._final[gone]
        waiting = sorted(listed.keys() - self._final.keys() - self._void, reverse=True)
        changing: list[HistoryEntry] = []
        for number in waiting[:most]:
            self._take(number, listed[number], changing)
        self._unread = waiting[most:]
        self.entries = tuple(sorted([*self._final.values(), *changing], key=lambda e: -e.id))
        self._bury(most)

    def entry(self, number: int) -> HistoryEntry | None:
        """The line of an id, read now where it was not read yet; None where it was never planned, or came to nothing.

        Raises:
            StoreError: the store could not be read.
        """
        return self._final.get(number) or self._read(number, keys.id_key(number))

    def beside(self, number: int) -> tuple[int | None, int | None]:
        """Ids of the checkpoints before and after one, of those that came to something.

        Raises:
            StoreError: the store could not be read.
        """
        listed = sorted(keys.number_of(key) for key in self._store.list("ids/"))
        at = bisect_left(listed, number)
        after = listed[at + 1 :] if listed[at : at + 1] == [number] else listed[at:]
        return (
            next((n for n in reversed(listed[:at]) if self.entry(n) is not None), None),
            next((n for n in after if self.entry(n) is not None), None),
        )

    def completed(self, number: int) -> HistoryEntry | None:
        """The line of a completed checkpoint, if it was read already."""
        found = self._final.get(number)
        return found if found is not None and found.status is CheckpointStatus.COMPLETED else None

    def _take(self, number: int, key: str, changing: list[HistoryEntry]) -> None:
        found = self._read(number, key)
        if found is None:
            return
        if found.is_final:
            self._final[number] = found
        else:
            changing.append(found)

    def _read(self, number: int, key: str) -> HistoryEntry | None:
        """What an id came to; None where nothing did, for good or so far."""
        slot = Slot(timeline="unknown", sequence=0)
        try:
            record = self._body("id", key)
            if record is None:
                return None
            slot = Slot(**record["slot"])
            return self._completed(number, slot) or self._planned(number, slot)
        except CorruptObjectError as error:
            failure = ("DAMAGED", error.what, error.next)
            return HistoryEntry(id=number, slot=slot, status=CheckpointStatus.DAMAGED, failure=failure)

    def _completed(self, number: int, slot: Slot) -> HistoryEntry | None:
        key = keys.slot_key(slot.timeline, slot.sequence)
        raw = self._store.get(key)
        if raw is None:
            return None
        if canonical.kind_of(key, raw) == "manifest":
            body = canonical.decode("manifest", key, raw)
            if body["plan"]["id"] == number:
                return _completed(body, slot, self._sealed_ms(body["sealed"], slot, body["plan"]))
        # Another plan's manifest, or the timeline's end, took the place: a plan without an abort record is void.
        if self._store.get(keys.abort_key(slot)) is None:
            self._void.add(number)
        return None

    def _sealed_ms(self, sealed: Mapping[str, Any], slot: Slot, plan: Mapping[str, Any]) -> int:
        """When it was sealed: by the manifest; of one of 0.1 by its outcome, or by its steps where that is gone."""
        if at := sealed.get("sealed_at_ms"):
            return int(at)
        try:
            outcome = self._body("outcome", keys.outcome_key(Slot(**plan["slot"]), sealed["attempt"]))
        except CorruptObjectError:
            outcome = None  # it is read for its time only
        at = plan["planned_at_ms"] + sum(sealed["timings_ms"].values()) if outcome is None else outcome["at_ms"]
        return int(at)

    def _planned(self, number: int, slot: Slot) -> HistoryEntry | None:
        plan = None if number in self._void else self._body("plan", keys.plan_key(slot))
        if plan is None or plan["id"] != number:
            return None
        abort = self._body("abort", keys.abort_key(slot))
        known = _planned(plan, slot)
        if abort is None:
            return HistoryEntry(status=CheckpointStatus.IN_PROGRESS, **known)
        told = abort["failure"]
        return HistoryEntry(
            status=CheckpointStatus.FAILED,
            attempt=abort["attempts"],
            failure=(told["reason"], told["message"], told["next"]),
            failed_ms=abort["at_ms"],
            gate=_gate(told["verdict"]),
            **known,
        )

    def _bury(self, most: int) -> None:
        """Looks which checkpoints are released: their tombstone is confirmed. Each record is read once."""
        newest: dict[str, str] = {}
        for key in self._store.list("tombstones/checkpoints/"):
            newest[key.split("/")[2]] = key
        for name, key in newest.items():
            number = keys.number_of(key)
            if most and self._tombs.get(name, (0, False))[0] != number:
                most -= 1
                body = self._body("tombstone", key)
                self._tombs[name] = (number, body is not None and body.get("confirmed", False))
        standing = (name.removeprefix("chk-") for name, (_, stands) in self._tombs.items() if stands)
        self.discarded = frozenset(int(digits) for digits in standing if digits.isdecimal())

    def _body(self, kind: str, key: str) -> dict[str, Any] | None:
        raw = self._store.get(key)
        return None if raw is None else canonical.decode(kind, key, raw)


def _completed(body: Mapping[str, Any], slot: Slot, ack_ms: int) -> HistoryEntry:
    sealed = body["sealed"]
    acks = sealed["acks"]

    def total(name: str) -> int:
        return sum(ack[name] for ack in acks)

    letters = rejected_records(
        sealed.get("rejected", 0), [ack["dead_lettered"] for ack in acks], sealed["facts"]["records"]
    )
    return HistoryEntry(
        status=CheckpointStatus.COMPLETED,
        work_ms=sum(sealed["timings_ms"].values()),
        ack_ms=ack_ms,
        run_bytes=total("run_bytes"),
        full_bytes=sum(s["bytes"] for ack in acks for s in ack["handle"]["segments"]),
        records=sealed["facts"]["records"],
        record_bytes=sealed["facts"]["bytes"],
        dead_letters=letters[0],
        at_most=letters[1],
        keys=total("keys"),
        emitted=total("emitted"),
        gate=_gate(sealed["verdict"]),
        attempt=sealed["attempt"],
        **_planned(body["plan"], slot),
    )


def _planned(plan: Mapping[str, Any], slot: Slot) -> dict[str, Any]:
    spans = {partition: bounds["end"] - bounds["start"] for partition, bounds in plan["ranges"].items()}
    offsets: dict[str, tuple[int, int]] = {}
    for partition, span in spans.items():
        topic = partition.rpartition("-")[0]
        partitions, before = offsets.get(topic, (0, 0))
        offsets[topic] = (partitions + 1, before + span)
    return {
        "id": plan["id"],
        "slot": slot,
        "parent": plan["parent"],
        "origin": plan["origin"],
        "fingerprint": plan["fingerprint"],
        "trigger_ms": plan["planned_at_ms"],
        "logical_time_ms": plan["logical_time_ms"],
        "uids": tuple(plan["handles"]),
        "offsets": offsets,
        "spans": {partition: span for partition, span in spans.items() if span},
        "pending": plan.get("pending", {}),
        "replays": tuple(plan.get("replays", ())),
    }


def _gate(verdict: Mapping[str, Any] | None) -> tuple[int, int] | None:
    if verdict is None or not verdict["expectations"]:
        return None
    return sum(e["success"] for e in verdict["expectations"]), len(verdict["expectations"])


Quantiles = Mapping[str, float]
"""`min`, `max`, `avg`, `p50`, `p90`, `p95`, `p99`, `p999` of a measure."""


def quantiles(measured: Iterable[int]) -> Quantiles:
    """Those of a measure; zeros where nothing was measured.

    Between two values they are interpolated, as DuckDB's `quantile_cont` does.
    """
    values = sorted(measured) or [0]

    def at(share: float) -> float:
        place = share * (len(values) - 1)
        below = int(place)
        above = min(below + 1, len(values) - 1)
        return values[below] + (values[above] - values[below]) * (place - below)

    shares = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
    middle = sum(values) / len(values)
    return {"min": values[0], "max": values[-1], "avg": middle} | {name: at(share) for name, share in shares.items()}
