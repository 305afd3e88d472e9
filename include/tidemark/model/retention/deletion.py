"""The files that retention would delete, and the reasons that keep the others. Values only."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidemark.model.checkpoint.segments import log_version
from tidemark.model.retention.shared_state import StoredFile

# The names in a table's log, and the prefix of a log that is no longer needed.
#
# To read a version you need the newest Delta log checkpoint that is not above it, and the later commits up to it. So a
# prefix ends at a Delta log checkpoint that is not above the oldest version in use. The commit of that version itself
# stays: Spark finds no history in a log that begins with a Delta log checkpoint alone.
INTERVAL = 20
"""Commits between two Delta log checkpoints; a log is trimmed in steps of this size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPrefix:
    """The part of a log that may be deleted.

    Attributes:
        table: path relative to the warehouse.
        until: version up to which files are deleted, exclusive; it has a Delta log checkpoint, or gets one.
        lacks_checkpoint: whether that checkpoint must be written first.
        files: the files to delete.
    """

    table: str
    until: int
    lacks_checkpoint: bool
    files: tuple[StoredFile, ...]

    @property
    def bytes(self) -> int:
        """Bytes of the files to delete."""
        return sum(f.bytes for f in self.files)


def log_prefix(table: str, log: Sequence[StoredFile], oldest: int) -> LogPrefix | None:
    """Returns the prefix that may be deleted; None if there is none, or if deleting it is not worth it.

    Args:
        table: path relative to the warehouse.
        log: the files of its log.
        oldest: oldest version in use, or the newest version if none is.
    """
    numbered = [(log_version(f.path.rpartition("/")[2]), f) for f in log]
    found = sorted(((v, f) for v, f in numbered if v is not None), key=lambda pair: (pair[0], pair[1].path))
    commits = {v for v, f in found if f.path.endswith(".json")}
    checkpoints = [v for v, f in found if f.path.endswith(".parquet") and v <= oldest and v in commits]
    until = max(checkpoints, default=-1)
    lacks = oldest in commits and oldest - max(until, min(commits, default=0)) >= INTERVAL
    until = oldest if lacks else until
    gone = tuple(f for v, f in found if v < until)
    return LogPrefix(table=table, until=until, lacks_checkpoint=lacks, files=gone) if gone else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeFile:
    """A file that nothing needs.

    Attributes:
        path: path relative to the warehouse.
        bytes: size of the file.
        why: why it is free, in words.
        since_ms: when a sweep first recorded it as free; None if no sweep has yet, so its grace time has not begun.
    """

    path: str
    bytes: int
    why: str
    since_ms: int | None

    def is_due(self, now_ms: int, grace_ms: int) -> bool:
        """Whether its grace time is over."""
        return (now_ms if self.since_ms is None else self.since_ms) + grace_ms <= now_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptBytes:
    """Files that one reason keeps.

    Attributes:
        why: `savepoint june`, `keep_last(2)`, `timeline t2, …`.
        checkpoints: names of the holders with that reason, mostly `chk-3`.
        files: files that it keeps, perhaps together with others.
        bytes: bytes of these files.
        alone: bytes that no other reason keeps: they would be free without this one.
    """

    why: str
    checkpoints: tuple[str, ...]
    files: int
    bytes: int
    alone: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedManifest:
    """A manifest that cannot be read.

    Attributes:
        name: `chk-17`, or its place if no plan gives its id.
        key: key of the object.
        why: the damage, in words.
        blocks: timelines whose files it may name: none of their checkpoints are released and no file is deleted.
    """

    name: str
    key: str
    why: str
    blocks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionPlan:
    """The deletions that a sweep would do now.

    Attributes:
        pipeline: name of the pipeline.
        rule: text of the rule; empty = none, and every checkpoint is kept.
        released: names of the checkpoints that would be released.
        disposed: expired savepoints that would be disposed.
        ended: jobs that would be given up.
        free: files that would be deleted once their grace time is over, the largest first.
        kept: the reasons that keep the other files, the one with the most bytes first.
        kept_files: number of these files.
        kept_bytes: bytes of these files.
        unknown: files among the tables that Tidemark did not write; they are left alone.
        logs: prefixes of logs that would be deleted.
        damaged: unreadable manifests; no files of the timelines that they may belong to are deleted.
        now_ms: time of the preview.
    """

    pipeline: str
    rule: str
    released: tuple[str, ...]
    disposed: tuple[str, ...]
    ended: tuple[str, ...]
    free: tuple[FreeFile, ...]
    kept: tuple[KeptBytes, ...]
    kept_files: int
    kept_bytes: int
    unknown: tuple[StoredFile, ...]
    logs: tuple[LogPrefix, ...]
    damaged: tuple[DamagedManifest, ...]
    now_ms: int

    @property
    def bytes(self) -> int:
        """Bytes of the files that would be deleted."""
        return sum(f.bytes for f in self.free)

    def due(self, grace_ms: int) -> tuple[FreeFile, ...]:
        """The files whose grace time is over."""
        return tuple(f for f in self.free if f.is_due(self.now_ms, grace_ms))


def group_by_reason(
    keeping: Mapping[str, tuple[str, ...]], whys: Mapping[str, tuple[str, ...]], sizes: Mapping[str, int]
) -> tuple[KeptBytes, ...]:
    """Returns the files that each reason keeps.

    Args:
        keeping: holders per file.
        whys: reasons per holder.
        sizes: bytes per file.
    """
    found: dict[str, tuple[dict[str, None], list[int]]] = {}
    for path, names in keeping.items():
        reasons = {why: None for name in names for why in whys[name]}
        for why in reasons:
            holders, counts = found.setdefault(why, ({}, [0, 0, 0]))
            holders.update(dict.fromkeys(name for name in names if why in whys[name]))
            counts[0] += 1
            counts[1] += sizes[path]
            counts[2] += sizes[path] if len(reasons) == 1 else 0
    made = [
        KeptBytes(why=why, checkpoints=tuple(_in_order(holders)), files=n, bytes=size, alone=alone)
        for why, (holders, (n, size, alone)) in found.items()
    ]
    return tuple(sorted(made, key=lambda k: (-k.bytes, k.why)))


def spans(names: Sequence[str]) -> str:
    """Returns names of checkpoints for people: `chk-1 to chk-9, chk-11`; other names unchanged. "none" for none."""
    found: list[list[str]] = []
    for name in _in_order(names):
        number = found[-1][-1].removeprefix("chk-") if found else ""
        if number.isdecimal() and name == f"chk-{int(number) + 1}":
            found[-1].append(name)
        else:
            found.append([name])
    return ", ".join(span[0] if len(span) == 1 else f"{span[0]} to {span[-1]}" for span in found) or "none"


def _in_order(names: Iterable[str]) -> list[str]:
    """Sorts `chk-2` before `chk-10`."""
    return sorted(names, key=lambda name: (name.rstrip("0123456789"), len(name), name))
