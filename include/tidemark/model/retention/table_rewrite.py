"""New versions of a table for segments whose files were rewritten: as few as possible (adr/0015). Values only."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidemark.model.checkpoint.segments import LiveFile, Segment

Files = Mapping[Segment, Sequence[LiveFile]]
"""Returns the files of segments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedVersion:
    """A version to commit.

    Attributes:
        parent: the segment that it is made from.
        drop: paths of the files to remove.
        replacing: files to add in their place, with their own levels and checkpoints.
        live: all files that the version then has.
    """

    parent: Segment
    drop: tuple[str, ...]
    replacing: tuple[LiveFile, ...]
    live: tuple[LiveFile, ...]

    def at(self, segment: Segment, version: int) -> Segment:
        """Returns a segment in this version, after its commit."""
        found = [f.file for f in _cut(self.live, segment)]
        rows, size = sum(f.rows for f in found), sum(f.size for f in found)
        return replace(segment, version=version, rows=rows, bytes=size, files=len(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewriting:
    """The versions of one table that serve all its segments.

    Attributes:
        wanted: the versions in commit order: the newest state last.
        by_segment: the index of the version that serves each segment.
    """

    wanted: tuple[WantedVersion, ...]
    by_segment: Mapping[Segment, int]

    @classmethod
    def of(cls, files: Files, replaced: Mapping[str, LiveFile | None]) -> "Rewriting":
        """Computes the versions for the segments of one table.

        A segment is restricted to its range. So a version serves every older segment whose files it contains, if it has
        no other files in that range.

        Args:
            files: files per segment.
            replaced: the replacement of each file with rows of the key, by path; None = no rows are left.
        """
        wanted, chosen = list[WantedVersion](), dict[Segment, int]()
        order = sorted(files, key=lambda s: (s.version, s.through - s.after, s.through), reverse=True)
        for segment in order:
            left = _remaining_files(files[segment], replaced)
            paths = {f.path for f in left}
            fits = (n for n, w in enumerate(wanted) if {f.path for f in _cut(w.live, segment)} == paths)
            at = next(fits, None)
            if at is None:
                at = len(wanted)
                wanted.append(_wanted(segment, files[segment], left, replaced))
            chosen[segment] = at
        last = len(wanted) - 1
        return cls(wanted=tuple(reversed(wanted)), by_segment={s: last - n for s, n in chosen.items()})


def _remaining_files(files: Iterable[LiveFile], replaced: Mapping[str, LiveFile | None]) -> list[LiveFile]:
    found = (replaced.get(f.path, f) for f in files)
    return [f for f in found if f is not None]


def _wanted(
    segment: Segment, files: Sequence[LiveFile], left: Sequence[LiveFile], replaced: Mapping[str, LiveFile | None]
) -> WantedVersion:
    drop = tuple(f.path for f in files if f.path in replaced)
    had = {f.path for f in files}
    return WantedVersion(
        parent=segment,
        drop=drop,
        replacing=tuple(f for f in left if f.path not in had),
        live=tuple(left),
    )


def _cut(files: Iterable[LiveFile], segment: Segment) -> list[LiveFile]:
    return [f for f in files if segment.after < f.checkpoint <= segment.through]
