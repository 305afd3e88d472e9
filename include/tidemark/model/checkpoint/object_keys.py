"""Keys of the store's objects, below `<warehouse>/<pipeline>/` (design section 6).

Numbers are padded, so that a listing in order of names is in order of numbers.
"""

from collections.abc import Iterable
from hashlib import sha256

from tidemark.model.checkpoint.plan import Slot

FIRST_TIMELINE = "t1"
"""The timeline that a pipeline begins with; it has no genesis."""


def number_of(key: str) -> int:
    """The number that its last part begins with: of an id, a place, a delivery, a stop, a revision, a tombstone."""
    return int(key.rpartition("/")[2].partition(".")[0])


def greatest(listed: Iterable[str]) -> int:
    """The greatest of their numbers; 0 where nothing is listed."""
    return max(map(number_of, listed), default=0)


def id_key(number: int) -> str:
    """Allocation of a checkpoint id."""
    return f"ids/{number:012d}.json"


def plan_key(slot: Slot) -> str:
    """The k-th plan of a slot."""
    return f"plans/{slot.timeline}/{slot.sequence:012d}.{slot.k:04d}.json"


def abort_key(slot: Slot) -> str:
    """Its abort record."""
    return f"plans/{slot.timeline}/{slot.sequence:012d}.{slot.k:04d}.abort.json"


def outcome_key(slot: Slot, attempt: int) -> str:
    """Outcome of one of its attempts."""
    return f"plans/{slot.timeline}/{slot.sequence:012d}.{slot.k:04d}/{attempt:06d}.outcome.json"


def slot_key(timeline: str, sequence: int) -> str:
    """The place in a timeline that manifest, genesis and closing compete for."""
    return f"timelines/{timeline}/{sequence:012d}.json"


def external_path(pipeline: str, slot: Slot) -> str:
    """The manifest of a slot's checkpoint, relative to the warehouse (Flink's external path)."""
    return f"{pipeline}/{slot_key(slot.timeline, slot.sequence)}"


def revision_key(timeline: str, sequence: int, revision: int) -> str:
    """What stands in place of the manifest, or the genesis, of a slot."""
    return f"timelines/{timeline}/{sequence:012d}.r{revision}.json"


def place_of(key: str) -> tuple[str, int]:
    """Timeline and sequence of a `slot_key`, or of a `revision_key`."""
    return key.split("/")[1], number_of(key)


def revision_of(key: str) -> int:
    """The revision of a `revision_key`; 0 of a `slot_key`."""
    part = key.rpartition("/")[2].split(".")[1]
    return int(part[1:]) if part.startswith("r") else 0


def places(listed: Iterable[str]) -> list[tuple[str, int]]:
    """The places that listed keys are of, each once."""
    return list(dict.fromkeys(map(place_of, listed)))


def compaction_key(uid: str, job: str) -> str:
    """Result of a compaction."""
    return f"compactions/{uid}/{job}.json"


def job_key(job: str) -> str:
    """An open job."""
    return f"jobs/{job}.json"


def job_end_key(job: str) -> str:
    """The end of a job."""
    return f"jobs/{job}.end.json"


def delivery_key(sink: str, checkpoint: int) -> str:
    """What a checkpoint emitted to a Kafka sink was sent."""
    return f"deliveries/{sink}/{checkpoint:012d}.json"


def delivery_failure_key(sink: str, number: int) -> str:
    """Why a sink could not send."""
    return f"delivery_failures/{sink}/{number:08d}.json"


def skip_key(sink: str, record: str) -> str:
    """A record that a sink leaves out; its id holds slashes, so the key is a hash."""
    return f"skips/{sink}/{sha256(record.encode()).hexdigest()}.json"


def report_key(name: str, checkpoint: int) -> str:
    """What came of reporting a checkpoint's offsets for an input."""
    return f"reports/{name}/{checkpoint:012d}.json"


def query_key(sha256: str) -> str:
    """A text of SQL, under the hash of its bytes."""
    return f"queries/{sha256}.sql"


def stop_key(number: int) -> str:
    """A stop or resume of the pipeline."""
    return f"stops/{number:08d}.json"


def savepoint_key(name: str, revision: int) -> str:
    """A revision of a savepoint."""
    return f"savepoints/{name}/{revision:06d}.json"


def tombstone_key(kind: str, name: str, number: int) -> str:
    """A tombstone of a checkpoint (`chk-17`) or of a savepoint, or its withdrawal."""
    return f"tombstones/{kind}s/{name}/{number:06d}.json"


def fate_key(timeline: str, number: int) -> str:
    """A promote or an end of a timeline that is announced."""
    return f"fates/{timeline}/{number:06d}.json"


def retention_key(number: int) -> str:
    """A retention rule of the pipeline; the newest one counts."""
    return f"retention/{number:06d}.json"


def hold_key(savepoint: str, revision: int) -> str:
    """A legal hold on a savepoint, or its end."""
    return f"holds/{savepoint}/{revision:06d}.json"


def erasure_key(number: int) -> str:
    """A key that is erased, and whose records are blocked."""
    return f"erasures/{number:06d}.json"


def erasure_end_key(number: int) -> str:
    """The end of an erasure."""
    return f"erasures/{number:06d}.end.json"


def sweep_key(number: int) -> str:
    """What a sweep has decided."""
    return f"sweeps/{number:08d}.json"


def swept_key(number: int) -> str:
    """What became of it."""
    return f"swept/{number:08d}.json"
