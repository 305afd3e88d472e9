"""Keys of the store's objects, below `<warehouse>/<pipeline>/`.

Numbers are padded, so that a listing ordered by name is ordered by number.
"""

from collections.abc import Iterable
from hashlib import sha256

from tidemark.model.checkpoint.plan import Slot

FIRST_TIMELINE = "t1"
"""The first timeline of a pipeline; it has no genesis."""


def number_of(key: str) -> int:
    """Returns the number at the start of a key's last part, such as an id, a sequence, or a revision."""
    return int(key.rpartition("/")[2].partition(".")[0])


def greatest(listed: Iterable[str]) -> int:
    """Returns the greatest of their numbers; 0 if there are none."""
    return max(map(number_of, listed), default=0)


def id_key(number: int) -> str:
    """Returns the key that allocates a checkpoint id."""
    return f"ids/{number:012d}.json"


def plan_key(slot: Slot) -> str:
    """Returns the key of the k-th plan of a slot."""
    return f"plans/{slot.timeline}/{slot.sequence:012d}.{slot.k:04d}.json"


def abort_key(slot: Slot) -> str:
    """Returns the key of a plan's abort record."""
    return f"plans/{slot.timeline}/{slot.sequence:012d}.{slot.k:04d}.abort.json"


def outcome_key(slot: Slot, attempt: int) -> str:
    """Returns the key of an attempt's outcome."""
    return f"plans/{slot.timeline}/{slot.sequence:012d}.{slot.k:04d}/{attempt:06d}.outcome.json"


def slot_key(timeline: str, sequence: int) -> str:
    """Returns the key of a place in a timeline, for which manifest, genesis and closing compete."""
    return f"timelines/{timeline}/{sequence:012d}.json"


def external_path(pipeline: str, slot: Slot) -> str:
    """Returns the key of the manifest of a slot's checkpoint (Flink's external path)."""
    return f"{pipeline}/{slot_key(slot.timeline, slot.sequence)}"


def revision_key(timeline: str, sequence: int, revision: int) -> str:
    """Returns the key of a revision that replaces the manifest, or the genesis, of a slot."""
    return f"timelines/{timeline}/{sequence:012d}.r{revision}.json"


def read_ahead_of(slot: Slot) -> tuple[str, ...]:
    """Returns the keys that decide a plan of a slot in most cases: what took the slot, its parent, and two outcomes."""
    parent = (slot.timeline, slot.sequence - 1)
    before = (slot_key(*parent), revision_key(*parent, 1)) if slot.sequence > 1 else ()
    return (*before, slot_key(slot.timeline, slot.sequence), outcome_key(slot, 0), outcome_key(slot, 1))


def place_of(key: str) -> tuple[str, int]:
    """Returns the timeline and sequence of a `slot_key` or a `revision_key`."""
    return key.split("/")[1], number_of(key)


def revision_of(key: str) -> int:
    """Returns the revision of a `revision_key`; 0 for a `slot_key`."""
    part = key.rpartition("/")[2].split(".")[1]
    return int(part[1:]) if part.startswith("r") else 0


def places(listed: Iterable[str]) -> list[tuple[str, int]]:
    """Returns the places of the listed keys, each once."""
    return list(dict.fromkeys(map(place_of, listed)))


def compaction_key(uid: str, job: str) -> str:
    """Returns the key of a compaction's result."""
    return f"compactions/{uid}/{job}.json"


def job_key(job: str) -> str:
    """Returns the key of an open job."""
    return f"jobs/{job}.json"


def job_end_key(job: str) -> str:
    """Returns the key of the end of a job."""
    return f"jobs/{job}.end.json"


def delivery_key(sink: str, checkpoint: int) -> str:
    """Returns the key that records the delivery of a checkpoint to a Kafka sink."""
    return f"deliveries/{sink}/{checkpoint:012d}.json"


def announcement_key(checkpoint: int) -> str:
    """Returns the key that records that Airflow has events of a checkpoint, and of all before it."""
    return f"announcements/{checkpoint:012d}.json"


def delivery_failure_key(sink: str, number: int) -> str:
    """Returns the key that records why a sink could not send."""
    return f"delivery_failures/{sink}/{number:08d}.json"


def skip_key(sink: str, record: str) -> str:
    """Returns the key of a record that a sink skips; a hash, because the id of the record contains slashes."""
    return f"skips/{sink}/{sha256(record.encode()).hexdigest()}.json"


def report_key(name: str, checkpoint: int) -> str:
    """Returns the key of a report of a checkpoint's offsets for an input."""
    return f"reports/{name}/{checkpoint:012d}.json"


def run_folder(run: str) -> str:
    """Returns the folder of a run's records (`Runs.id_of`)."""
    return f"runs/{run}/"


def run_key(run: str, number: int) -> str:
    """Returns the key of the ends that a run was given; the number counts how often it was given some."""
    return f"{run_folder(run)}{number:04d}.json"


def publication_key(name: str, number: int) -> str:
    """Returns the key of a step of a publication."""
    return f"publications/{name}/begun/{number:08d}.json"


def publication_done_key(name: str, number: int) -> str:
    """Returns the key that records that a step of a publication is done."""
    return f"publications/{name}/done/{number:08d}.json"


def redrive_key(number: int) -> str:
    """Returns the key of a request to redrive dead letters."""
    return f"redrives/{number:08d}.json"


def redrive_withdrawal_key(number: int) -> str:
    """Returns the key of the withdrawal of a request to redrive dead letters."""
    return f"redrives/{number:08d}.withdrawn.json"


def query_key(sha256: str) -> str:
    """Returns the key of a stored query, which contains the hash of its bytes."""
    return f"queries/{sha256}.sql"


def schema_folder(registry: str) -> str:
    """Returns the folder of the schemas of a registry."""
    return f"schemas/{registry}/"


def schema_key(registry: str, id: int) -> str:
    """Returns the key of what a registry answered for an id."""
    return f"{schema_folder(registry)}{id:010d}.json"


def schema_text_key(sha256: str) -> str:
    """Returns the key of the text of a schema, which contains the hash of its bytes."""
    return f"schemas/{sha256}.json"


def stop_key(number: int) -> str:
    """Returns the key of a stop or resume of the pipeline."""
    return f"stops/{number:08d}.json"


def savepoint_key(name: str, revision: int) -> str:
    """Returns the key of a revision of a savepoint."""
    return f"savepoints/{name}/{revision:06d}.json"


def tombstone_key(kind: str, name: str, number: int) -> str:
    """Returns the key of a tombstone of a checkpoint (`chk-17`) or a savepoint, or of its withdrawal."""
    return f"tombstones/{kind}s/{name}/{number:06d}.json"


def promotion_claim_key(timeline: str, number: int) -> str:
    """Returns the key of a claim: the announcement of a timeline's promote or end."""
    return f"fates/{timeline}/{number:06d}.json"


def retention_key(number: int) -> str:
    """Returns the key of a retention rule of the pipeline; the newest one counts."""
    return f"retention/{number:06d}.json"


def hold_key(savepoint: str, revision: int) -> str:
    """Returns the key of a legal hold on a savepoint, or of its end."""
    return f"holds/{savepoint}/{revision:06d}.json"


def erasure_key(number: int) -> str:
    """Returns the key of an erasure: an erased key whose records are blocked."""
    return f"erasures/{number:06d}.json"


def erasure_end_key(number: int) -> str:
    """Returns the key of the end of an erasure."""
    return f"erasures/{number:06d}.end.json"


def sweep_key(number: int) -> str:
    """Returns the key of the decision of a sweep."""
    return f"sweeps/{number:08d}.json"


def swept_key(number: int) -> str:
    """Returns the key of the result of a sweep."""
    return f"swept/{number:08d}.json"
