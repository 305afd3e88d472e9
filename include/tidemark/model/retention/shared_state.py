"""The registry of shared state: the holders of each file, computed from logs and manifests, never counted.

Flink's SharedStateRegistry maps a key to a handle and a reference count. Here a file maps to its holders, by name, and
every use computes the registry again: no count can be wrong. This module reads and deletes no file.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tidemark.errors import StoreError
from tidemark.model.checkpoint.segments import Segment, StateHandle


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """An existing file: path relative to the warehouse, size in bytes."""

    path: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFile:
    """A data file between two commits of its table; a file that was added again has several of these.

    Attributes:
        path: path relative to the warehouse.
        bytes: size as committed.
        checkpoint: its `_checkpoint`.
        added: version that added it.
        removed: version that removed it; None = the newest version still has it.
    """

    path: str
    bytes: int
    checkpoint: int
    added: int
    removed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHistory:
    """The files in the versions of one table.

    Attributes:
        table: path relative to the warehouse.
        oldest: oldest version that can be read.
        newest: newest version that can be read; -1 = nothing was committed there.
        files: in order of `added`.
        ends: why later versions than `newest` exist but cannot be read; empty if there are none. A power cut causes
            this after a killed attempt or job has committed; versions in use were fsynced.
    """

    table: str
    oldest: int
    newest: int
    files: tuple[TableFile, ...]
    ends: str = ""

    def live(self, versions: Iterable[int]) -> Iterator[tuple[int, Sequence[TableFile]]]:
        """Returns the files of several versions, oldest version first, in one pass over all versions.

        Raises:
            StoreError: a version is not, or no longer, in the log.
        """
        following, active = 0, list[TableFile]()
        for version in sorted(set(versions)):
            if not self.oldest <= version <= self.newest:
                log = f"its log ({self.oldest} to {self.newest}{self.ends and f': {self.ends}'})"
                raise registry_error(f"version {version} of {self.table} is not in {log}")
            while following < len(self.files) and self.files[following].added <= version:
                active.append(self.files[following])
                following += 1
            active = [f for f in active if f.removed is None or f.removed > version]
            yield version, tuple(active)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A holder of files: a checkpoint, a timeline without one, a plan, a job, the result of a compaction.

    Attributes:
        name: `chk-3`, `timeline t2`, `plan chk-4`.
        why: the reason that keeps the holder itself.
        handles: the handles that it names.
    """

    name: str
    why: tuple[str, ...]
    handles: tuple[StateHandle, ...]

    @property
    def segments(self) -> Iterator[Segment]:
        """The segments of all handles."""
        return (segment for handle in self.handles for segment in handle)


@dataclass(frozen=True, kw_only=True)
class SharedStateRegistry:
    """File → holders.

    Attributes:
        holders: holders by name.
        by_file: names of the holders per file, relative to the warehouse.
        sizes: bytes of the same files.
        oldest: oldest version that a holder names, per table.
    """

    holders: Mapping[str, Holder]
    by_file: Mapping[str, tuple[str, ...]]
    sizes: Mapping[str, int]
    oldest: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, holders: Sequence[Holder], history: Callable[[str], TableHistory]) -> "SharedStateRegistry":
        """Computes the registry of some holders.

        Args:
            holders: the holders, with unique names.
            history: returns the history of a table.

        Raises:
            StoreError: files that a holder names are not in the log, or differ from its manifest. Then its needs are
                unknown, and nothing may be deleted.
        """
        wanted: dict[str, dict[int, dict[Segment, list[str]]]] = {}
        for holder in holders:
            for s in holder.segments:
                wanted.setdefault(s.path, {}).setdefault(s.version, {}).setdefault(s, []).append(holder.name)
        by_file: dict[str, dict[str, None]] = {}
        sizes: dict[str, int] = {}
        for table, versions in wanted.items():
            for version, files in history(table).live(versions):
                for segment, names in versions[version].items():
                    for f in _within(segment, files):
                        by_file.setdefault(f.path, {}).update(dict.fromkeys(names))
                        sizes[f.path] = f.bytes
        return cls(
            holders={holder.name: holder for holder in holders},
            by_file={path: tuple(names) for path, names in by_file.items()},
            sizes=sizes,
            oldest={table: min(versions) for table, versions in wanted.items()},
        )

    def __contains__(self, path: object) -> bool:
        return path in self.by_file

    def why(self, path: str) -> tuple[str, ...]:
        """Returns the reasons that keep a file, each once."""
        return tuple(dict.fromkeys(why for name in self.by_file.get(path, ()) for why in self.holders[name].why))

    @cached_property
    def folders(self) -> frozenset[str]:
        """Returns the folders of the held files."""
        return frozenset(path.rpartition("/")[0] for path in self.by_file)


def _within(segment: Segment, files: Sequence[TableFile]) -> list[TableFile]:
    found = [f for f in files if segment.after < f.checkpoint <= segment.through]
    if (len(found), sum(f.bytes for f in found)) != (segment.files, segment.bytes):
        raise registry_error(
            f"version {segment.version} of {segment.path} has {len(found)} files of {sum(f.bytes for f in found)} bytes"
            f" in ({segment.after}, {segment.through}]; the manifest names {segment.files} of {segment.bytes}"
        )
    return found


def registry_error(what: str) -> StoreError:
    """Returns the error for a registry that cannot be computed."""
    return StoreError(
        f"the files in use are unknown: {what}",
        safe="nothing was deleted.",
        next="run tidemark verify on the pipeline, restore the files that it lists, then run this command again.",
    )
