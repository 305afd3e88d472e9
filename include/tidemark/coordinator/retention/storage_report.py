"""The storage of a pipeline: bytes per operator or sink and timeline, kept, free or unknown, and bytes per pin."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.retention.deletion_plan import DeletionPlanner, list_files
from tidemark.coordinator.retention.root_set import collect_roots
from tidemark.declare.retention import Retention
from tidemark.model.retention.deletion import KeptBytes
from tidemark.model.retention.file_paths import TableFilePath, place_of
from tidemark.ports import TableFiles

Owner = tuple[str, str, str]
"""Kind (`state`, `sinks`, …), uid or name of the sink, and timeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Bytes of one operator or sink on one timeline.

    Attributes:
        kept: bytes of files that a restore point, a plan or a job needs.
        waiting: bytes of files that an attempt or a job in progress has written and no object names yet.
        free: bytes of files that the rule frees, once checkpoints are released.
        unknown: bytes of files that no plan or job of this pipeline wrote.
        log: bytes of logs.
        files: number of these files, without logs.
    """

    kept: int = 0
    waiting: int = 0
    free: int = 0
    unknown: int = 0
    log: int = 0
    files: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The storage of the whole pipeline.

    Attributes:
        rule: text of the rule; empty = none.
        owners: bytes per kind, owner and timeline.
        kept: the reasons that keep files, with the bytes that no other reason keeps.
        fates: status of each timeline: `live`, `fork`, `closed for t2`, `closed`.
    """

    rule: str
    owners: Mapping[Owner, Stored]
    kept: tuple[KeptBytes, ...]
    fates: Mapping[str, str]

    @property
    def total(self) -> Stored:
        """The sum over all owners."""
        return sum_of(self.owners.values())


def sum_of(parts: Iterable[Stored]) -> Stored:
    """The sum of several parts."""
    found = list(parts)
    return Stored(
        kept=sum(p.kept for p in found),
        waiting=sum(p.waiting for p in found),
        free=sum(p.free for p in found),
        unknown=sum(p.unknown for p in found),
        log=sum(p.log for p in found),
        files=sum(p.files for p in found),
    )


def storage(coordinator: CheckpointCoordinator, files: TableFiles, rule: Retention | None) -> Storage:
    """Reads the size of every file; writes nothing.

    Raises:
        StoreError, CorruptObjectError: it is unknown which files are needed.
    """
    found = list_files(files, coordinator.name)
    judge = DeletionPlanner(coordinator=coordinator, files=files, survey=collect_roots(coordinator, rule))
    plan = judge.plan(found, after_release=True)
    free, unknown = {f.path for f in plan.free}, {f.path for f in plan.unknown}
    registry = judge.registry(after_release=True)
    counts: dict[Owner, dict[str, int]] = {}
    for f in found:
        place = place_of(f.path)
        mine = counts.setdefault(_owner(place, f.path), dict.fromkeys(Stored.__slots__, 0))
        if place is not None and place.is_log:
            mine["log"] += f.bytes
            continue
        word = "free" if f.path in free else "unknown" if f.path in unknown else "waiting"
        mine["kept" if f.path in registry else word] += f.bytes
        mine["files"] += 1
    owners = {owner: Stored(**held) for owner, held in sorted(counts.items())}
    return Storage(rule=plan.rule, owners=owners, kept=plan.kept, fates=judge.survey.lines.fates)


def _owner(place: TableFilePath | None, path: str) -> Owner:
    return (path.split("/")[1], "", "") if place is None else (place.kind, place.owner, place.timeline)
