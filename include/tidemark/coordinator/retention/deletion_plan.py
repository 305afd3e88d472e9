"""The plan of a sweep: every file below the tables, classified as kept, free or unknown, each with its reason.

A file is free if no live segment names it and the plan or job that wrote it has ended for good. Age is no reason. A
file that no plan or job of this pipeline wrote is left alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.records.objects import Series
from tidemark.coordinator.records.states import Aborted, Completed, PlanState, Subsumed
from tidemark.coordinator.retention.open_jobs import BEGINNING
from tidemark.coordinator.retention.root_set import Survey, collect_roots
from tidemark.declare.retention import Retention
from tidemark.errors import NotFoundError
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.retention.deletion import DeletionPlan, FreeFile, LogPrefix, group_by_reason, log_prefix
from tidemark.model.retention.file_paths import FOLDERS, TableFilePath, place_of
from tidemark.model.retention.manifest_lines import ManifestLine
from tidemark.model.retention.shared_state import SharedStateRegistry, StoredFile
from tidemark.model.retention.sweep_records import SweepRecord
from tidemark.ports import TableFiles

KEPT, UNKNOWN = "kept", "unknown"


def sweeps_of(coordinator: CheckpointCoordinator) -> Series[SweepRecord]:
    """The sweeps of a pipeline, numbered."""
    return Series(coordinator.objects, SweepRecord, "sweeps/", keys.sweep_key)


def list_files(files: TableFiles, pipeline: str) -> list[StoredFile]:
    """Every file of a pipeline's tables. Call this before the references are collected."""
    return [f for folder in FOLDERS for f in files.files(f"{pipeline}/{folder}")]


def plan(coordinator: CheckpointCoordinator, files: TableFiles, rule: Retention | None) -> DeletionPlan:
    """Returns what a sweep by a rule would do now; writes nothing.

    Raises:
        StoreError, CorruptObjectError: it is unknown which files are needed; nothing may be deleted.
    """
    found = list_files(files, coordinator.name)
    survey = collect_roots(coordinator, rule)
    return DeletionPlanner(coordinator=coordinator, files=files, survey=survey).plan(found, after_release=True)


@dataclass(kw_only=True)
class DeletionPlanner:
    """Classifies files by one survey.

    Attributes:
        coordinator: of the pipeline.
        files: the files of its tables.
        survey: made after the files were listed.
    """

    coordinator: CheckpointCoordinator
    files: TableFiles
    survey: Survey
    _states: dict[int, PlanState | int | None] = field(default_factory=dict)
    _registries: dict[bool, SharedStateRegistry] = field(default_factory=dict)

    def plan(self, found: Sequence[StoredFile], *, after_release: bool) -> DeletionPlan:
        """Makes the plan for listed files.

        Args:
            found: the files that `list_files` returned.
            after_release: treat everything that nothing keeps as released already, for a dry run.
        """
        survey, registry = self.survey, self.registry(after_release=after_release)
        _, last = sweeps_of(self.coordinator).newest()
        before = {} if last is None else last.free
        free, unknown = list[FreeFile](), list[StoredFile]()
        for f in found:
            place = place_of(f.path)
            if place is not None and place.is_log:
                continue
            why = UNKNOWN if place is None else self._why(f, place, registry)
            if why is UNKNOWN:
                unknown.append(f)
            elif why is not KEPT:
                free.append(FreeFile(path=f.path, bytes=f.bytes, why=why, since_ms=before.get(f.path)))
        return DeletionPlan(
            pipeline=self.coordinator.name,
            rule="" if survey.rule is None else str(survey.rule),
            released=tuple(c.name for c in survey.subsumed),
            disposed=tuple(record.name for record in (*survey.names.expired, *survey.names.void)),
            ended=tuple(job.job for job in survey.jobs.overdue),
            free=tuple(sorted(free, key=lambda f: (-f.bytes, f.path))),
            kept=group_by_reason(registry.by_file, {n: h.why for n, h in registry.holders.items()}, registry.sizes),
            kept_files=len(registry.by_file),
            kept_bytes=sum(registry.sizes.values()),
            unknown=tuple(unknown),
            logs=self.prefixes(found, registry),
            damaged=survey.damage.manifests,
            now_ms=survey.now_ms,
        )

    def registry(self, *, after_release: bool) -> SharedStateRegistry:
        """Which holder holds which file, by the survey; see `plan`."""
        if after_release not in self._registries:
            holders = self.survey.holders(after_release=after_release)
            self._registries[after_release] = SharedStateRegistry.of(holders, self.files.history)
        return self._registries[after_release]

    def prefixes(
        self, found: Sequence[StoredFile], registry: SharedStateRegistry, grace_ms: int = 0
    ) -> tuple[LogPrefix, ...]:
        """The prefixes of logs that neither a holder nor a checkpoint released within the grace time needs."""
        oldest = dict(registry.oldest)
        for path, version in self._recent(grace_ms):
            oldest[path] = min(version, oldest.get(path, version))
        logs: dict[str, list[StoredFile]] = {}
        for f in found:
            place = place_of(f.path)
            if place is not None and place.is_log and place.timeline not in self.survey.damage.timelines:
                logs.setdefault(place.table, []).append(f)
        made = []
        for table, log in logs.items():
            newest = self.files.history(table).newest
            made.append(log_prefix(table, log, min(oldest.get(table, newest), newest)))
        return tuple(prefix for prefix in made if prefix is not None)

    def _recent(self, grace_ms: int) -> list[tuple[str, int]]:
        """Tables and versions of recently released checkpoints, which may still be read."""
        since = self.survey.now_ms - grace_ms
        recent = [t for t in self.survey.tombstones.values() if t.confirmed and t.at_ms > since]
        places = (keys.place_of(t.place) for t in recent if t.place)
        entries = (self.coordinator.timelines.entry(*place) for place in places)
        return [
            (s.path, s.version)
            for e in entries
            if isinstance(e, Checkpoint)
            for handle in ManifestLine.of(e).named
            for s in handle
        ]

    def _why(self, f: StoredFile, place: TableFilePath, registry: SharedStateRegistry) -> str:
        """KEPT, UNKNOWN, or the reason why the file is free."""
        folder = f"{place.table}/{place.folder}"
        beside = place.data
        if f.path in registry or beside in registry or (beside == folder and folder in registry.folders):
            return KEPT
        if place.timeline in self.survey.damage.timelines:
            return KEPT
        if place.attempt is not None:
            return self._why_attempt(*place.attempt)
        return UNKNOWN if place.job is None else self._why_job(place.job)

    def _why_attempt(self, number: int, attempt: int) -> str:
        if any(plan.id == number for plan in self.survey.plans.values()):
            # Its state may have changed since, but the survey has not read its manifest.
            return KEPT
        tombstone = self.survey.tombstones.get(f"chk-{number}")
        if tombstone is not None and tombstone.given_up and tombstone.confirmed:
            return f"written for chk-{number}, which was given up; no restore point that is kept names it"
        state = self._state(number)
        if isinstance(state, int):
            if state != attempt:
                return f"orphan: attempt {attempt} of chk-{number} was revoked"
            return f"written for chk-{number}; no restore point that is kept names it"
        if isinstance(state, Aborted):
            return f"orphan: chk-{number} was aborted"
        if isinstance(state, Subsumed):
            return f"orphan: timeline {state.closing.timeline} was closed before chk-{number}"
        return UNKNOWN if state is None else KEPT

    def _why_job(self, job: str) -> str:
        jobs = self.survey.jobs
        if job in jobs.open:
            return KEPT
        if job in jobs.recorded:
            return f"made by compaction {job}; no restore point that is kept names it"
        if job not in jobs.known:
            return UNKNOWN
        kind = jobs.known[job].kind
        if kind == "erasure":
            return f"written by {job}; no restore point that is kept names it"
        if kind in BEGINNING:
            return f"imported by {kind} {job}; no restore point that is kept names it"
        return f"orphan: {kind} {job} ended without a result"

    def _state(self, number: int) -> PlanState | int | None:
        """The state of a plan; for a completed one, the attempt that was sealed; None if the plan never existed."""
        if not self._states:
            self._states |= {c.id: c.attempt for c in self.survey.lines.all()}
        if number not in self._states:
            self._states[number] = self._look_up(number)
        return self._states[number]

    def _look_up(self, number: int) -> PlanState | int | None:
        tombstone = self.survey.tombstones.get(f"chk-{number}")
        if tombstone is not None and tombstone.place:
            entry = self.coordinator.objects.slot(*keys.place_of(tombstone.place))
            if isinstance(entry, Checkpoint) and entry.id == number:
                return entry.sealed.attempt
        try:
            found = self.coordinator.state(self.coordinator.plan_of(number))
        except NotFoundError:
            return None
        return found.checkpoint.sealed.attempt if isinstance(found, Completed) else found
