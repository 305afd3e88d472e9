"""Jobs that may still read or commit, and results of compactions that the next plan may still adopt.

A job that was killed never reports its end. A job that can no longer have a result is over: a compaction whose result
no plan could adopt, an import whose slot is taken. A job that only reads may be given up after a while: a record ends
it, and it fails when it finds a file gone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from tidemark.coordinator.plans.inputs import absorbed_through, adopt, read_checkpoint
from tidemark.coordinator.records.manifest_index import ManifestIndex, stamps_of
from tidemark.coordinator.records.objects import Objects
from tidemark.coordinator.records.timelines import Erasures, is_void
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.row_tables import compacted_handles, row_tables
from tidemark.model.checkpoint.segments import BASE, Segment, StateHandle
from tidemark.model.checkpoint.store_objects import CompactionRecord, Genesis, IdRecord, JobRecord
from tidemark.model.retention.manifest_lines import ManifestLine

LONGEST = timedelta(days=7)
"""How long a job that only reads may be open before a sweep gives it up."""
_END = ".end.json"
_READING = frozenset({"export", "publication", "query"})
BEGINNING = frozenset({"import", "patch", "transform"})
"""Kinds of jobs that begin a timeline; they are over once another plan has taken the slot of their id."""

Heads = Mapping[str, Checkpoint | Genesis]
"""The newest entry of each timeline that is not closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenJobs:
    """The jobs of a pipeline.

    Attributes:
        known: every job that ever existed, by its id.
        open: jobs that may still read or commit.
        recorded: jobs that have put the result of a compaction or of an import.
        overdue: open jobs that only read and have been open for too long.
        adoptable: records whose output the next plan of a timeline may adopt.
    """

    known: Mapping[str, JobRecord]
    open: frozenset[str]
    recorded: frozenset[str]
    overdue: tuple[JobRecord, ...]
    adoptable: tuple[CompactionRecord, ...]


def listed_jobs(objects: Objects, index: ManifestIndex) -> tuple[dict[str, JobRecord], set[str]]:
    """Every job by its id, and the ids of those that have reported their end."""
    stamps = stamps_of(objects, "jobs/")
    ended = {key.removeprefix("jobs/").removesuffix(_END) for key in stamps if key.endswith(_END)}
    opened = {key: stamp for key, stamp in stamps.items() if not key.endswith(_END)}
    found = {record.job: record for record in index.jobs(objects, opened)}
    # Listed before manifests: if an erasure has ended by now, revisions of these manifests name the files that it
    # wrote.
    killed = [job for job, record in found.items() if record.kind == "erasure" and job not in ended]
    return found, ended | {job for job in killed if Erasures(objects).has_ended(erasure_of(job))}


def erasure_job(number: int, write_id: str) -> str:
    """Id of the job of an erasure."""
    return f"erasure.{number}.{write_id}"


def erasure_of(job: str) -> int:
    """Number of the erasure that a job belongs to."""
    return int(job.split(".")[1])


def open_jobs(
    objects: Objects,
    listed: tuple[dict[str, JobRecord], set[str]],
    heads: Heads,
    read: Mapping[int, ManifestLine],
    now_ms: int,
) -> OpenJobs:
    """Classifies jobs.

    Args:
        objects: the store.
        listed: from `listed_jobs`, before timelines are read: a job may end and its result be adopted in the meantime.
        heads: heads of the timelines.
        read: completed checkpoints that were not released, by id.
        now_ms: the current time.
    """
    known, ended = listed
    # First the ended jobs, then their results: a job that ends in between still counts as open.
    done = {key.rpartition("/")[2].removesuffix(".json") for key in objects.list("compactions/")}
    records = dict(_records(objects, heads))
    candidates = [j for j in known.values() if j.job not in ended and j.job not in done]
    running = [j for j in candidates if _may_matter(objects, j, heads, read)]
    oldest = now_ms - LONGEST // timedelta(milliseconds=1)
    return OpenJobs(
        known=known,
        open=frozenset(j.job for j in running),
        recorded=frozenset(done),
        overdue=tuple(j for j in running if j.kind in _READING and j.opened_at_ms < oldest),
        adoptable=tuple(record for record in _waiting(records, heads) if not is_void(objects, record)),
    )


def _records(objects: Objects, heads: Heads) -> Iterator[tuple[str, CompactionRecord]]:
    """Results of compactions, without those that are older than the one that every timeline has adopted."""
    least: dict[str, int] = {}
    for head in heads.values():
        for uid, handle in compacted_handles(head).items():
            base = absorbed_through(handle)
            least[uid] = min(base, least.get(uid, base))
    for uid, adopted in least.items():
        for key in objects.list(f"compactions/{uid}/"):
            is_old = read_checkpoint(key, adopted) < adopted
            record = None if is_old else objects.read(CompactionRecord, key)
            if record is not None:
                yield key, record


def _waiting(records: Mapping[str, CompactionRecord], heads: Heads) -> Iterator[CompactionRecord]:
    """Results that a plan may adopt. It reads the newest first, and stops at the one that it has adopted already."""
    ended: set[tuple[str, str]] = set()
    of_heads = {timeline: compacted_handles(head) for timeline, head in heads.items()}
    newest_first = sorted(records.items(), key=lambda kr: (kr[1].input.through, kr[1].checkpoint, kr[0]), reverse=True)
    for _, record in newest_first:
        of = (record.timeline, record.uid)
        handle = of_heads.get(record.timeline, {}).get(record.uid)
        if handle is None or of in ended:
            continue
        if adopt(handle, record) == handle:
            ended.add(of)
        elif adopt(handle, record) is not None:
            yield record


def _adoptable(record: CompactionRecord, heads: Heads) -> bool:
    head = heads.get(record.timeline)
    handle = None if head is None else compacted_handles(head).get(record.uid)
    merged = None if handle is None else adopt(handle, record)
    return merged is not None and merged != handle


def _may_matter(objects: Objects, job: JobRecord, heads: Heads, read: Mapping[int, ManifestLine]) -> bool:
    if job.kind in BEGINNING:
        record = objects.read(IdRecord, keys.id_key(job.checkpoint))
        return record is None or objects.store.get(keys.slot_key(record.slot.timeline, record.slot.sequence)) is None
    if job.kind != "compaction":
        return True
    found = read.get(job.checkpoint)
    if found is None or found.revision != job.revision:
        return False
    handle, base = _input_of(objects, job, found)
    return bool(handle) and _adoptable(_result_if_ended_now(job, found, handle, base), heads)


def _input_of(objects: Objects, job: JobRecord, found: ManifestLine) -> tuple[StateHandle, str]:
    """What a compaction reads, and the table that it commits to."""
    if job.uid in found.handles:
        return found.handles[job.uid], f"{found.tables[job.uid]}/{BASE}"
    # Lines of the index do not say which sink a handle belongs to.
    entry = objects.slot(found.timeline, found.sequence)
    tables = row_tables(entry) if isinstance(entry, Checkpoint) else ()
    return next(((table.handle, table.base) for table in tables if table.owner == job.uid), (StateHandle(), ""))


def _result_if_ended_now(job: JobRecord, found: ManifestLine, handle: StateHandle, base: str) -> CompactionRecord:
    """The record that the job would put if it ended now; only the range of its output counts."""
    segment = Segment(after=handle.after, through=handle.through, path=base, version=2**31, rows=0, bytes=0, files=0)
    return CompactionRecord(
        uid=job.uid,
        job=job.job,
        checkpoint=found.id,
        timeline=found.timeline,
        input=handle,
        output=StateHandle((segment,)),
        commits=(),
        write_id=job.write_id,
    )
