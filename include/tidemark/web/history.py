"""The history of a pipeline's checkpoints, with each object read once (adr/0014).

Pages poll it every few seconds. It lists the ids and reads new ones; completed and failed checkpoints never change, so
they are never read again. No verb depends on it: verbs read `Timelines` and `Objects`.
"""

from bisect import bisect_left
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from tidemark.answers.checkpoint_overview import MeasureSummary
from tidemark.errors import CorruptObjectError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import rejected_records
from tidemark.model.checkpoint.plan import Slot
from tidemark.model.core import canonical
from tidemark.ports import CheckpointStore
from tidemark.ports.caching import Prefetches

RECENT, MOST_TOMBS = 100, 32
"""New or unfinished ids, and tombstones, that one call of `History.refresh` reads at most."""


class CheckpointStatus(Enum):
    """The status of a checkpoint: Flink's CheckpointStatsStatus, and DAMAGED if its manifest cannot be read."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    DAMAGED = "DAMAGED"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """A checkpoint of the history. It is small, because thousands of them are kept in memory.

    Attributes:
        id, slot, parent, origin, fingerprint, trigger_ms: from its plan; the trigger is the time of planning.
        interval_ms: start and end of its data interval; None if its run had none.
        status: see `CheckpointStatus`.
        uids: its operators.
        work_ms: the sum over the steps of the sealed attempt.
        ack_ms: when it was sealed, after the last acknowledgement, the gate and fsync; None if it was not.
        run_bytes: of the runs that it wrote (Flink's checkpointed size).
        full_bytes: of all state that it names.
        records, record_bytes, dead_letters, keys, emitted: counts over all operators. A record counts once, and so does
            a dead letter that several operators rejected.
        at_most: whether `dead_letters` is an upper bound, as for some manifests of 0.1.
        offsets: per topic the number of partitions with a range, and the offsets that the ranges span.
        spans: per partition the offsets that its range spans; partitions without any are left out.
        pending: likewise the offsets that the log held beyond the range when it was planned.
        gate: the number of expectations that held, and of all; None if the gate has not run.
        attempt: the sealed one; if the checkpoint failed, the number of attempts.
        replays: ids that it repeats on a fork.
        compacted: uids of the operators whose compactions it adopted.
        failure: reason, message and next step.
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
    interval_ms: tuple[int, int] | None = None
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
    compacted: tuple[str, ...] = ()
    failure: tuple[str, str, str] = ("", "", "")
    failed_ms: int | None = None

    @property
    def name(self) -> str:
        """`chk-17`."""
        return f"chk-{self.id}"

    @property
    def key(self) -> str:
        """Key of its manifest, whether it exists yet or not."""
        return keys.slot_key(self.slot.timeline, self.slot.sequence)

    @property
    def duration_ms(self) -> int:
        """From the trigger to the last acknowledgement (Flink's end-to-end duration); 0 if it was not sealed."""
        return 0 if self.ack_ms is None else max(0, self.ack_ms - self.trigger_ms)

    @property
    def is_empty(self) -> bool:
        """Whether it read no record and touched no key; its durations measure no work."""
        return self.records == 0 and self.keys == 0

    @property
    def is_final(self) -> bool:
        """Whether its status can never change. A damaged object may be restored from a backup."""
        return self.status in (CheckpointStatus.COMPLETED, CheckpointStatus.FAILED)


class History:
    """Reads the history of a store in portions. Not thread-safe.

    Attributes:
        store: rooted at the pipeline's folder; each answer may set its own view of the same one.
        total: how many ids there are; while old ones are not listed yet, at most.
        unread: how many of them are not read yet: the oldest ones.
    """

    def __init__(self, store: CheckpointStore) -> None:
        self.store = store
        self._final: dict[int, HistoryEntry] = {}
        self._void: set[int] = set()
        self._tombs: dict[str, tuple[int, bool]] = {}
        self._oldest: int | None = None
        self._old: list[int] = []
        self._changing: list[HistoryEntry] = []
        self._left, self._below = 0, 0
        self.unread = 0
        self.entries: tuple[HistoryEntry, ...] = ()
        self.discarded: frozenset[int] = frozenset()
        self.total = 0

    def refresh(self, most: int) -> None:
        """Reads new ids, and at most `most` old ones, newest first; the next call continues.

        Raises:
            StoreError: the store could not be listed or read; entries read before are kept.
        """
        old = self.look(most)
        self.keep(old, self.read(old))

    def look(self, most: int) -> list[int]:
        """Reads new ids. Returns at most `most` old ones to `read` and `keep`, newest first.

        Raises:
            StoreError: the store could not be listed or read; entries read before are kept.
        """
        listed, below = self._list(most)
        if not self._final:
            self._prefetch([*map(keys.id_key, sorted(listed)[-most:]), *self._newest_slots(most)])
        lowest = min(listed, default=0) if below else 0
        for gone in [n for n in self._final if n >= lowest and n not in listed]:
            del self._final[gone]
        waiting = sorted(listed - self._final.keys() - self._void, reverse=True)
        recent = [n for n in waiting if self._oldest is not None and n >= self._oldest]
        self._old = waiting[len(recent) :]
        self._below = below - sum(n < lowest for n in self._final)
        self._left, self.total = len(recent[RECENT:]), len(listed) + below
        self._changing = []
        self.keep((), self.read(recent[:RECENT]))
        self._bury(max(most, MOST_TOMBS))
        return self._old[:most]

    def read(self, numbers: Sequence[int]) -> Iterator[HistoryEntry]:
        """Reads ids, and keeps nothing: another thread may call it on a history `over` another view of the store."""
        return self._read(numbers)

    def keep(self, numbers: Sequence[int], found: Iterable[HistoryEntry]) -> None:
        """Adds what `read` has found of the old ids that `look` has returned."""
        for entry in found:
            if entry.is_final:
                self._final[entry.id] = entry
            else:
                self._changing.append(entry)
        if numbers:
            self._oldest = min([*numbers, *([] if self._oldest is None else [self._oldest])])
            self._old = [n for n in self._old if n < self._oldest]
        self.unread = self._left + len(self._old) + self._below
        self.entries = tuple(sorted([*self._final.values(), *self._changing], key=lambda e: -e.id))

    def _list(self, most: int) -> tuple[set[int], int]:
        """The newest ids, with `most` old ones if there are so many; and how many older ones at most."""
        if isinstance(self.store, Prefetches):
            found, is_all = self.store.newest("ids/")
            numbers = set(map(keys.number_of, found))
            if is_all or sum(self._oldest is None or n < self._oldest for n in numbers) >= most:
                return numbers, 0 if is_all else min(numbers, default=1) - 1
        return set(map(keys.number_of, self.store.list("ids/"))), 0

    def _newest_slots(self, most: int) -> Sequence[str]:
        """Keys that are likely to be the manifests of the newest ids."""
        if not isinstance(self.store, Prefetches):
            return ()
        found = [k for name in self.store.folders("timelines/") for k in self.store.newest(f"timelines/{name}/")[0]]
        return sorted(found, key=keys.number_of)[-most:]

    def over(self, store: CheckpointStore) -> "History":
        """The same history over another view of its store, which reads single entries at any time."""
        made = History(store)
        made._final, made._void = self._final, self._void
        return made

    def entry(self, number: int) -> HistoryEntry | None:
        """The entry of an id, read now if necessary; None if it was never planned, or its plan was void.

        Raises:
            StoreError: the store could not be read.
        """
        return self.entries_of([number]).get(number)

    def entries_of(self, numbers: Sequence[int]) -> dict[int, HistoryEntry]:
        """The entries of ids, as `entry` gives them; those that were never planned, or void, are left out.

        Raises:
            StoreError: the store could not be read.
        """
        known = {number: found for number in numbers if (found := self._final.get(number)) is not None}
        return known | {found.id: found for found in self._read([n for n in numbers if n not in known])}

    def beside(self, number: int) -> tuple[int | None, int | None]:
        """Ids of the checkpoints before and after one; void plans are left out.

        Raises:
            StoreError: the store could not be read.
        """
        if isinstance(self.store, Prefetches):
            found, is_first, is_last = self.store.around(keys.id_key(number))
            before, after = self._beside(number, found)
            if (before or is_first) and (after or is_last):
                return before, after
        return self._beside(number, self.store.list("ids/"))

    def _beside(self, number: int, names: Iterable[str]) -> tuple[int | None, int | None]:
        listed = sorted(map(keys.number_of, names))
        at = bisect_left(listed, number)
        before, after = listed[:at][::-1], listed[at + 1 :] if listed[at : at + 1] == [number] else listed[at:]
        near = self.entries_of([*before[:1], number, *after[:1]])  # the details of it follow
        return (
            next((n for n in before if n in near or self.entry(n) is not None), None),
            next((n for n in after if n in near or self.entry(n) is not None), None),
        )

    def is_discarded(self, number: int) -> bool:
        """Whether a checkpoint is released at this moment.

        Raises:
            StoreError: the store could not be read.
        """
        found = max(self.store.list(f"tombstones/checkpoints/chk-{number}/"), default=None)
        body = None if found is None else self._body("tombstone", found)
        return body is not None and bool(body.get("confirmed", False))

    def completed_entry(self, number: int) -> HistoryEntry | None:
        """The entry of a completed checkpoint, if it was read already."""
        found = self._final.get(number)
        return found if found is not None and found.status is CheckpointStatus.COMPLETED else None

    def _read(self, numbers: Sequence[int]) -> Iterator[HistoryEntry]:
        """The entries of ids; all are read at the same time, step by step, from a store that can do so."""
        waiting = {number: self._steps(number) for number in numbers}
        while waiting:
            needed = list[str]()
            for number, steps in list(waiting.items()):
                try:
                    needed += next(steps)
                except StopIteration as end:
                    del waiting[number]
                    if end.value is not None:
                        yield end.value
            self._prefetch(needed)

    def _steps(self, number: int) -> Generator[Sequence[str], None, HistoryEntry | None]:
        """Reads an entry and yields the keys of each step before it; None if its plan is void, or not written yet."""
        slot = Slot(timeline="unknown", sequence=0)
        try:
            yield [keys.id_key(number)]
            record = self._body("id", keys.id_key(number))
            if record is None:
                return None
            slot = Slot(**record["slot"])
            yield [keys.slot_key(slot.timeline, slot.sequence)]
            raw, damage = self.store.get(keys.slot_key(slot.timeline, slot.sequence)), None
            try:
                if raw is not None and (found := self._completed(number, slot, raw)) is not None:
                    return found
            except CorruptObjectError as error:
                damage = error
            yield [keys.plan_key(slot), keys.abort_key(slot)]
            if damage is not None:
                return self._damaged(number, slot, damage)
            # Another plan's manifest or a closing took the slot: a plan without an abort record is void.
            if raw is not None and self.store.get(keys.abort_key(slot)) is None:
                self._void.add(number)
            return self._planned(number, slot)
        except CorruptObjectError as error:
            return _damaged_entry(HistoryEntry(id=number, slot=slot, status=CheckpointStatus.DAMAGED), error)

    def _prefetch(self, names: Collection[str]) -> None:
        if names and isinstance(self.store, Prefetches):
            self.store.prefetch(names)

    def _completed(self, number: int, slot: Slot, raw: bytes) -> HistoryEntry | None:
        key = keys.slot_key(slot.timeline, slot.sequence)
        if canonical.kind_of(key, raw) == "manifest":
            body = canonical.decode("manifest", key, raw)
            if body["plan"]["id"] == number:
                return _completed(body, slot, self._sealed_ms(body["sealed"], slot, body["plan"]))
        return None

    def _sealed_ms(self, sealed: Mapping[str, Any], slot: Slot, plan: Mapping[str, Any]) -> int:
        """When it was sealed. Manifests of 0.1 do not say: their outcome does, or, if that is gone, their steps."""
        if at := sealed.get("sealed_at_ms"):
            return int(at)
        try:
            outcome = self._body("outcome", keys.outcome_key(Slot(**plan["slot"]), sealed["attempt"]))
        except CorruptObjectError:
            outcome = None  # only its time is needed
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
        failure = abort["failure"]
        return HistoryEntry(
            status=CheckpointStatus.FAILED,
            attempt=abort["attempts"],
            failure=(failure["reason"], failure["message"], failure["next"]),
            failed_ms=abort["at_ms"],
            gate=_gate(failure["verdict"]),
            **known,
        )

    def _damaged(self, number: int, slot: Slot, damage: CorruptObjectError) -> HistoryEntry | None:
        """What the plan says if the manifest in its slot is damaged; a plan with an abort record completed nothing."""
        found = self._planned(number, slot)
        if number in self._void or (found is not None and found.status is CheckpointStatus.FAILED):
            return found
        return _damaged_entry(found or HistoryEntry(id=number, slot=slot, status=CheckpointStatus.DAMAGED), damage)

    def _bury(self, most: int) -> None:
        """Finds the released checkpoints: those with a confirmed tombstone. Each record is read once."""
        newest: dict[str, str] = {}
        for key in self.store.list("tombstones/checkpoints/"):
            newest[key.split("/")[2]] = key
        self._prefetch([k for n, k in newest.items() if self._tombs.get(n, (0, False))[0] != keys.number_of(k)][:most])
        for name, key in newest.items():
            number = keys.number_of(key)
            if most and self._tombs.get(name, (0, False))[0] != number:
                most -= 1
                body = self._body("tombstone", key)
                self._tombs[name] = (number, body is not None and body.get("confirmed", False))
        standing = (name.removeprefix("chk-") for name, (_, stands) in self._tombs.items() if stands)
        self.discarded = frozenset(int(digits) for digits in standing if digits.isdecimal())

    def _body(self, kind: str, key: str) -> dict[str, Any] | None:
        raw = self.store.get(key)
        return None if raw is None else canonical.decode(kind, key, raw)


def _damaged_entry(known: HistoryEntry, damage: CorruptObjectError) -> HistoryEntry:
    return replace(known, status=CheckpointStatus.DAMAGED, failure=("DAMAGED", damage.what, damage.next))


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
        emitted=total("emitted") + sum(of["emitted"] for ack in acks for of in ack.get("outputs", {}).values()),
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
        "interval_ms": _interval(plan.get("interval")),
        "uids": tuple(plan["handles"]),
        "offsets": offsets,
        "spans": {partition: span for partition, span in spans.items() if span},
        "pending": plan.get("pending", {}),
        "replays": tuple(plan.get("replays", ())),
        "compacted": tuple(plan.get("adopted", {})),
    }


def _interval(interval: Mapping[str, int] | None) -> tuple[int, int] | None:
    return None if interval is None else (interval["start_ms"], interval["end_ms"])


def _gate(verdict: Mapping[str, Any] | None) -> tuple[int, int] | None:
    if verdict is None or not verdict["expectations"]:
        return None
    return sum(e["success"] for e in verdict["expectations"]), len(verdict["expectations"])


def quantiles(measured: Iterable[int]) -> MeasureSummary:
    """Summarises a measure; zeros if nothing was measured.

    Quantiles are interpolated between two values, as DuckDB's `quantile_cont` does.
    """
    values = sorted(measured) or [0]

    def at(share: float) -> float:
        place = share * (len(values) - 1)
        below = int(place)
        above = min(below + 1, len(values) - 1)
        return float(values[below] + (values[above] - values[below]) * (place - below))

    return MeasureSummary(
        min=float(values[0]),
        max=float(values[-1]),
        avg=sum(values) / len(values),
        p50=at(0.5),
        p90=at(0.9),
        p95=at(0.95),
        p99=at(0.99),
        p999=at(0.999),
    )
