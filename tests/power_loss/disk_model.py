"""A disk as POSIX promises it at least, and no file system more: what a power cut may leave of recorded calls.

`fsync` of a file makes its bytes durable, `fsync` of a folder its names. Everything else that was done since may be
there or not, each by itself and in any subset: a name without its bytes, bytes without their name, half of the bytes,
zeros in their place, a deletion that did not happen beside one that did. A rename happens as a whole or not at all.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tests.power_loss.recording import Call

Tree: TypeAlias = Mapping[str, bytes | None]
"""Path below the root → bytes of a file; None = a folder."""


@dataclass(frozen=True, slots=True)
class Names:
    """Names of folders that change together: a folder's inode, a name, the inode that it leads to then (0 = none)."""

    changes: tuple[tuple[int, str, int], ...]


@dataclass(frozen=True, slots=True)
class Bytes:
    """What a file holds after a run of writes."""

    inode: int
    held: bytes


Change: TypeAlias = Names | Bytes
SHAPES: Mapping[str, Callable[[bytes], bytes]] = {
    "empty": lambda held: b"",
    "half": lambda held: held[: len(held) // 2],
    "zeros": lambda held: bytes(len(held)),
}
"""What may be left of bytes that were written."""


@dataclass
class Disk:
    """Inodes, as they are durable, and what is pending on top of that.

    Attributes:
        root: of the tree.
        durable_names: of folders; what is no folder is not in it.
        durable_bytes: of files.
        pending: in order.
    """

    root: Path
    durable_names: dict[int, dict[str, int]] = field(default_factory=lambda: {1: {}})
    durable_bytes: dict[int, bytes] = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)
    _live: dict[int, dict[str, int]] = field(default_factory=lambda: {1: {}})
    _held: dict[int, bytes] = field(default_factory=dict)
    _last: int = 1

    @classmethod
    def holding(cls, root: Path, tree: Tree) -> "Disk":
        """A tree, all of it durable."""
        disk = cls(root)
        for name, held in sorted(tree.items()):
            path, inode = root / name, disk._made(held is None)
            if held is not None:
                disk._held[inode] = held
            disk._live[disk._folder(path)][path.name] = inode
        disk.durable_names = {inode: dict(names) for inode, names in disk._live.items()}
        disk.durable_bytes = dict(disk._held)
        return disk

    def do(self, call: Call) -> None:
        """One call more."""
        getattr(self, f"_{call.name}")(call)

    def tree(self, chosen: Iterable[Change]) -> Tree:
        """What is found after a power cut of which some pending changes have survived.

        Args:
            chosen: the survivors, in order.
        """
        names = {inode: dict(held) for inode, held in self.durable_names.items()}
        held = dict(self.durable_bytes)
        for change in chosen:
            if isinstance(change, Bytes):
                held[change.inode] = change.held
                continue
            for folder, name, inode in change.changes:
                at = names.setdefault(folder, {})
                at.pop(name, None)
                if inode:
                    at[name] = inode
        found: dict[str, bytes | None] = {}
        self._walk(1, "", names, held, found)
        return found

    def _walk(
        self,
        inode: int,
        path: str,
        names: Mapping[int, Mapping[str, int]],
        held: Mapping[int, bytes],
        found: dict[str, bytes | None],
    ) -> None:
        for name, below in names.get(inode, {}).items():
            here = f"{path}/{name}" if path else name
            if below in self._live:
                found[here] = None
                self._walk(below, here, names, held, found)
            else:
                found[here] = held.get(below, b"")

    def _made(self, is_folder: bool) -> int:
        self._last += 1
        if is_folder:
            self._live[self._last] = {}
        else:
            self._held[self._last] = b""
        return self._last

    def _inode(self, path: Path) -> int:
        inode = 1
        for part in path.relative_to(self.root).parts:
            inode = self._live[inode][part]
        return inode

    def _folder(self, path: Path) -> int:
        return self._inode(path.parent)

    def _changed(self, *changes: tuple[int, str, int]) -> None:
        for folder, name, inode in changes:
            self._live[folder].pop(name, None)
            if inode:
                self._live[folder][name] = inode
        self.pending.append(Names(changes))

    def _open(self, call: Call) -> None:
        (path,) = call.paths
        folder = self._folder(path)
        if path.name not in self._live[folder]:
            assert call.creates, path
            self._changed((folder, path.name, self._made(False)))
        elif call.empties:
            self._wrote(self._live[folder][path.name], b"")

    def _write(self, call: Call) -> None:
        inode = self._inode(call.paths[0])
        self._wrote(inode, self._held[inode] + call.data)

    def _wrote(self, inode: int, held: bytes) -> None:
        self._held[inode] = held
        last = self.pending[-1] if self.pending else None
        if isinstance(last, Bytes) and last.inode == inode:
            self.pending.pop()  # writes that follow each other are one
        self.pending.append(Bytes(inode, held))

    def _rename(self, call: Call) -> None:
        old, new = call.paths
        source, target = self._folder(old), self._folder(new)
        self._changed((source, old.name, 0), (target, new.name, self._live[source][old.name]))

    def _link(self, call: Call) -> None:
        old, new = call.paths
        self._changed((self._folder(new), new.name, self._inode(old)))

    def _unlink(self, call: Call) -> None:
        (path,) = call.paths
        self._changed((self._folder(path), path.name, 0))

    _rmdir = _unlink

    def _mkdir(self, call: Call) -> None:
        (path,) = call.paths
        inode = self._made(True)
        self.durable_names[inode] = {}
        self._changed((self._folder(path), path.name, inode))

    def _fsync(self, call: Call) -> None:
        inode = self._inode(call.paths[0])
        left = list[Change]()
        for change in self.pending:
            if isinstance(change, Bytes):
                if change.inode == inode:
                    self.durable_bytes[inode] = change.held
                else:
                    left.append(change)
            elif any(folder == inode for folder, _, _ in change.changes):
                for folder, name, target in change.changes:
                    self.durable_names[folder].pop(name, None)
                    if target:
                        self.durable_names[folder][name] = target
            else:
                left.append(change)
        self.pending = left


def crashes(disk: Disk, rng: random.Random, subsets: int = 8) -> Iterator[tuple[str, Sequence[Change]]]:
    """What may have survived a power cut now: each with words for it.

    Args:
        disk: now.
        rng: for subsets.
        subsets: how many random ones, with random shapes of what was written.
    """
    pending = list(disk.pending)
    yield "nothing was lost", pending
    if not pending:
        return
    yield "all was lost", []
    for shape in SHAPES:
        yield f"all bytes are {shape}", [_shaped(c, shape) for c in pending]
    for n, change in enumerate(pending):
        yield f"pending change {n} was lost", [*pending[:n], *pending[n + 1 :]]
        yield f"only pending change {n} was not lost", [change]
        if isinstance(change, Bytes):
            for shape in SHAPES:
                yield f"pending change {n} is {shape}", [*pending[:n], _shaped(change, shape), *pending[n + 1 :]]
    for n in range(subsets):
        survivors = [c for c in pending if rng.random() < 0.5]
        yield f"subset {n} was not lost", [_shaped(c, rng.choice(["", "", *SHAPES])) for c in survivors]


def _shaped(change: Change, shape: str) -> Change:
    return change if isinstance(change, Names) or not shape else Bytes(change.inode, SHAPES[shape](change.held))
