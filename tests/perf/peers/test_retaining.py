"""What is told of points that go; a system that lets a file go which a kept point needs voids the run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from benchmarks.peers.places import Place, RetainingPeer, WrongStateError
from benchmarks.peers.retaining import Retaining


@dataclass
class Files:
    """A system of one file per point: the n-th has n bytes. It never lets the newest go, nor `stays` of them."""

    folder: Path
    stays: int
    least: int = 1

    def needed(self, marks: Sequence[int]) -> Mapping[Path, str]:
        return {self.folder / str(mark): "results" if mark == 5 else "state" for mark in marks}

    def keep(self, marks: Sequence[int]) -> None:
        self.asked = list(marks)

    def drop(self, marks: Sequence[int]) -> None:
        assert marks == self.asked
        for path in self.folder.iterdir():
            if int(path.name) < max(marks) - self.stays:
                path.unlink()


def _retaining(folder: Path, stays: int, least: int = 1) -> Retaining:
    for n in range(1, 6):
        (folder / str(n)).write_bytes(b"x" * n)
    peer = cast(RetainingPeer, Files(folder, stays, least))
    return Retaining({"one": peer}, {"one": Place("", "", str(folder), "")}, {"one": [1, 2, 3, 4, 5]})


def test_bytes_before_and_after_stand_beside_those_that_are_needed(tmp_path: Path) -> None:
    rows = list(_retaining(tmp_path, stays=2).measured((3, 2)))
    told = [{name: row[name] for name in ("kept", "before", "left", "needed", "results")} for row in rows]
    assert told == [
        {"kept": 3, "before": 15, "left": 12, "needed": 12, "results": 5},
        {"kept": 2, "before": 12, "left": 12, "needed": 9, "results": 5},
    ]


def test_whoever_cannot_keep_so_few_is_left_out(tmp_path: Path) -> None:
    assert [row["kept"] for row in _retaining(tmp_path, stays=2, least=3).measured((3, 2))] == [3]


def test_a_needed_file_that_has_gone_voids_the_run(tmp_path: Path) -> None:
    with pytest.raises(WrongStateError, match=r"one: 3 points need .*3, which has gone"):
        list(_retaining(tmp_path, stays=1).measured((3,)))
