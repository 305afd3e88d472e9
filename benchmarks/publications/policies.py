"""`PYTHONPATH=include:. python -m benchmarks.publications.policies`: a model of policies of a mirror's upkeep.

The model has files, rows and positions, and no Parquet: each publication changes a hundredth of the keys, drawn with
replacement, writes their rows into one file, and marks their old rows in deletion vectors, which cost as much as a
roaring bitmap of these positions. A policy decides which files are merged or written again. All bytes are relative to
the changed rows. The command prints a row per policy and writes `publication-policies.json`.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.bench import SEED
from benchmarks.facts import made_by
from benchmarks.report import FOLDER

KEYS, CHURN, COUNT = 8_000_000, 100, 200
FIRST, PER_FILE, SMALL = 4, 2_000_000, 1_350_000
"""Files of the first publication, the most rows of a file, and the rows below which a file is small (16 MiB)."""
ROW_BYTES = 12.4
CHUNK, DENSE = 1 << 16, 4096
"""Positions of a container of a bitmap, and the number of them from which it has a bit for each."""


@dataclass
class File:
    """A file of the model.

    Attributes:
        keys: the key of each row.
        dead: whether each row is dead.
    """

    keys: np.ndarray
    dead: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.dead = np.zeros(len(self.keys), bool)

    @property
    def live(self) -> int:
        """The number of live rows."""
        return len(self.keys) - int(self.dead.sum())

    @property
    def vector_bytes(self) -> int:
        """Bytes of its deletion vector."""
        starts = np.arange(0, len(self.dead), CHUNK)
        counts = np.add.reduceat(self.dead, starts, dtype=np.int64)
        return int(np.where(counts < DENSE, 2 * counts, CHUNK // 8).sum()) + 8 * int((counts > 0).sum()) + 40


Merged = Callable[[Sequence[File]], Sequence[File]]
"""Chooses which of the small files are merged, from the oldest one on."""


def every(small: Sequence[File]) -> Sequence[File]:
    """All of them."""
    return small


def oldest_half(small: Sequence[File]) -> Sequence[File]:
    """The oldest half."""
    return small[: len(small) // 2]


def oldest_two_thirds(small: Sequence[File]) -> Sequence[File]:
    """The oldest two thirds."""
    return small[: 2 * len(small) // 3]


def least_live_half(small: Sequence[File]) -> Sequence[File]:
    """The half with the fewest live rows."""
    return sorted(small, key=lambda file: file.live)[: len(small) // 2]


@dataclass(frozen=True)
class Policy:
    """When files are written again.

    Attributes:
        title: for people.
        small: so many small files are merged.
        merged: which of them.
        live: a file with a smaller share of live rows is written again.
        shares: whether rewritten rows of several files go into one.
    """

    title: str
    small: int
    merged: Merged
    live: float
    shares: bool = True


POLICIES = (
    Policy("all of 32 small files merge, a file below 40 % live rows is rewritten alone", 32, every, 0.4, shares=False),
    Policy("rewritten rows share files", 32, every, 0.4),
    Policy("in addition, 64 small files", 64, every, 0.4),
    Policy("in addition, only the oldest half of them, and 30 %", 64, oldest_half, 0.3),
    Policy("the half with the fewest live rows instead: kept", 64, least_live_half, 0.3),
    Policy("the same with 32 small files", 32, least_live_half, 0.3),
    Policy("the oldest two thirds of 96, and 25 %", 96, oldest_two_thirds, 0.25),
    Policy("the oldest half of 128, and 25 %", 128, oldest_half, 0.25),
)


@dataclass
class Table:
    """A mirror of the model.

    Attributes:
        policy: its policy.
        files: from the oldest one on.
    """

    policy: Policy
    files: list[File] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = np.random.default_rng(SEED)
        self.files = [File(np.arange(n, KEYS, FIRST)) for n in range(FIRST)]
        self.file_of, self.row_of = np.zeros(KEYS, np.int64), np.zeros(KEYS, np.int64)
        self.numbers = dict[int, File]()
        for file in self.files:
            self._place(file)

    def publish(self) -> dict[str, float]:
        """Changes a hundredth of the keys; returns bytes relative to their rows, and what the table holds."""
        keys = np.unique(self.chance.integers(0, KEYS, KEYS // CHURN))
        touched = dict.fromkeys(self.file_of[keys].tolist())
        for number in touched:
            self.numbers[number].dead[self.row_of[keys[self.file_of[keys] == number]]] = True
        again = [f for n in touched if (f := self.numbers[n]).live and f.live < self.policy.live * len(f.keys)]
        gone = [f for n in touched if not (f := self.numbers[n]).live]
        rest = [file for file in self.files if not _among(file, (*again, *gone))]
        small = [file for file in rest if len(file.keys) < SMALL]
        merged = self.policy.merged(small) if len(small) + 1 >= self.policy.small else []
        rewritten = sum(file.live for file in (*again, *merged))
        vectors = sum(f.vector_bytes for n in touched if not _among(f := self.numbers[n], (*again, *merged, *gone)))
        self.files = [file for file in rest if not _among(file, (*again, *merged))]
        groups = [[*again, *merged]] if self.policy.shares else [merged, *([file] for file in again)]
        for made in (keys, *(part for group in groups for part in _written(group))):
            self.files.append(File(made))
            self._place(self.files[-1])
        return {
            "vectors": vectors / (len(keys) * ROW_BYTES),
            "rewritten": rewritten / len(keys),
            "files": len(self.files),
            "stored": sum(len(file.keys) for file in self.files) / KEYS,
        }

    def _place(self, file: File) -> None:
        self.file_of[file.keys], self.row_of[file.keys] = id(file), np.arange(len(file.keys))
        self.numbers = {id(f): f for f in self.files}


def _written(files: Sequence[File]) -> Iterator[np.ndarray]:
    """The live rows of some files in new ones."""
    whole = np.sort(np.concatenate([np.zeros(0, np.int64), *(file.keys[~file.dead] for file in files)]))
    for start in range(0, len(whole), PER_FILE):
        yield whole[start : start + PER_FILE]


def _among(file: File, files: Sequence[File]) -> bool:
    return any(file is other for other in files)


def measure(policy: Policy) -> dict[str, object]:
    """Publishes to a table of a policy, and returns the means of all publications."""
    table = Table(policy)
    rows = [table.publish() for _ in range(COUNT)]

    def mean(what: str, first: int = 0) -> float:
        return round(sum(row[what] for row in rows[first:]) / len(rows[first:]), 3)

    late = 1 + mean("vectors", COUNT // 2) + mean("rewritten", COUNT // 2)
    return {
        "policy": policy.title,
        "vectors": mean("vectors"),
        "rewritten": mean("rewritten"),
        "all": round(1 + mean("vectors") + mean("rewritten"), 3),
        "late": round(late, 3),
        "files": max(row["files"] for row in rows),
        "stored": mean("stored"),
        "most_stored": round(max(row["stored"] for row in rows), 3),
    }


def line_of(row: dict[str, object]) -> str:
    """The row of the table in the README."""
    figures = " | ".join(f"{row[what]:.2f}" for what in ("vectors", "rewritten", "all", "late"))
    return f"| {row['policy']} | {figures} | {row['files']} | {row['stored']:.2f} ({row['most_stored']:.2f}) |"


def main() -> int:
    """Measures all policies."""
    found = []
    for policy in POLICIES:
        found.append(measure(policy))
        sys.stdout.write(line_of(found[-1]) + "\n")
        sys.stdout.flush()
    facts = made_by("PYTHONPATH=include:. python -m benchmarks.publications.policies", SEED)
    facts |= {"keys": KEYS, "publications": COUNT}
    (FOLDER / "publication-policies.json").write_text(json.dumps({"facts": facts, "rows": found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
