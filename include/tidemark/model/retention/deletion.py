"""What retention would delete, file by file, and what keeps the rest (Q9). Values only."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidemark.model.retention.delta_logs import LogPrefix
from tidemark.model.retention.shared_state import StoredFile


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeFile:
    """A file that nothing needs.

    Attributes:
        path: relative to the warehouse.
        bytes: its size.
        why: why it is free, in words.
        since_ms: since when, as sweeps have recorded it; None where none has seen it yet: its grace time has not begun.
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
        checkpoints: names of the holders, `chk-3` mostly, for that reason.
        files: files that it keeps, perhaps with others.
        bytes: their bytes.
        alone: bytes that nothing else keeps: what would be free without it.
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
        name: `chk-17`, or its place where no plan tells its id.
        key: of the object.
        why: what is wrong with it.
        blocks: timelines whose files it may name: nothing of them is released or deleted.
    """

    name: str
    key: str
    why: str
    blocks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionPlan:
    """What a sweep would do now.

    Attributes:
        pipeline: its name.
        rule: text of the rule; empty = none, and every checkpoint is kept.
        released: names of the checkpoints that would be released.
        disposed: savepoints that have expired and would be disposed.
        ended: jobs that would be given up.
        free: files that would go once their grace time is over, the largest first.
        kept: what keeps the rest, the most bytes first.
        kept_files: how many files that is.
        kept_bytes: their bytes.
        unknown: files that lie among the tables and that nobody of ours wrote; they are left alone.
        logs: prefixes of logs that would go.
        damaged: manifests that cannot be read; of the timelines that they may name files of nothing goes.
        now_ms: when it was made.
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
        """Of the files that would go."""
        return sum(f.bytes for f in self.free)

    def due(self, grace_ms: int) -> tuple[FreeFile, ...]:
        """Those whose grace time is over."""
        return tuple(f for f in self.free if f.is_due(self.now_ms, grace_ms))


def grouped(
    keeping: Mapping[str, tuple[str, ...]], whys: Mapping[str, tuple[str, ...]], sizes: Mapping[str, int]
) -> tuple[KeptBytes, ...]:
    """What every reason keeps.

    Args:
        keeping: per file its holders.
        whys: per holder its reasons.
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
    """Names of checkpoints for people: `chk-1 to chk-9, chk-11`; as they are where they are others. "none" for none."""
    found: list[list[str]] = []
    for name in _in_order(names):
        number = found[-1][-1].removeprefix("chk-") if found else ""
        if number.isdecimal() and name == f"chk-{int(number) + 1}":
            found[-1].append(name)
        else:
            found.append([name])
    return ", ".join(span[0] if len(span) == 1 else f"{span[0]} to {span[-1]}" for span in found) or "none"


def _in_order(names: Iterable[str]) -> list[str]:
    """`chk-2` ahead of `chk-10`."""
    return sorted(names, key=lambda name: (name.rstrip("0123456789"), len(name), name))
