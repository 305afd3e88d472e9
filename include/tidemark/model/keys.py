"""Keys of the store's objects, below `<warehouse>/<pipeline>/` (design section 6).

Numbers are padded, so that a listing in order of names is in order of numbers.
"""

from tidemark.model.plan import Slot

FIRST_TIMELINE = "t1"
"""The timeline that a pipeline begins with; it has no genesis."""


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
