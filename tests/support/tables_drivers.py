"""Drivers for the contract suite of the port `StateTables`: Delta tables on disk and in a bucket, and the twin."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from tests.support.s3 import Bucket
from tidemark.model.checkpoint.commits import CommitRequest
from tidemark.model.checkpoint.segments import LiveFile, Segment, WrittenFile
from tidemark.ports import PutOutcome, StateTables, UncertainPut
from tidemark.storage.s3_folder import S3Folder
from tidemark.tables.delta_tables import PARTITION_COLUMNS, DeltaTables, delta_schema
from tidemark.testing.twin.memory import ManualClock, MemoryTables

COLUMNS = (("key", "STRING"), ("n", "BIGINT"), ("_key_group", "INT"))
TABLE = "p/state/u/t1-1/runs"


class Fence:
    """A fence that counts its calls, and calls `between` after the version is read and before the commit."""

    def __init__(self, between: Callable[[int], None] = lambda call: None) -> None:
        self.calls, self.between = 0, between

    def check(self) -> None:
        self.calls += 1
        self.between(self.calls)


class TablesDriver(Protocol):
    """The operations that the contract suite needs in addition to the port."""

    @property
    def tables(self) -> StateTables: ...

    def write(self, checkpoint: int, attempt: int, rows: int = 3) -> tuple[WrittenFile, ...]: ...
    def foreign_removal(self, path: str) -> None: ...
    def foreign_addition(self, checkpoint: int) -> None: ...
    def live(self, version: int | None = None) -> dict[str, tuple[str, str]]: ...


def request(
    files: Sequence[WrittenFile], checkpoint: int, parent: Segment | None = None, **options: Any
) -> CommitRequest:
    """A request to commit a run."""
    given: dict[str, Any] = {
        "table": TABLE,
        "parent": parent,
        "files": tuple(files),
        "rows": sum(f.rows for f in files),
        "level": 0,
        "checkpoint": checkpoint,
        "after": parent.after if parent else 0,
        "schema": COLUMNS,
        "write_id": f"{checkpoint:032x}",
        "metadata": {"tidemark_uid": "u"},
        "app": ("p/t1/u", checkpoint * 2**20),
    }
    return CommitRequest(**{**given, **options})


@dataclass
class DeltaTablesDriver:
    """Drives real tables. `live` replays the JSON of the Delta log, without product code."""

    root: Path
    tables: DeltaTables = field(init=False)

    def __post_init__(self) -> None:
        self.tables = DeltaTables(warehouse=str(self.root), clock=ManualClock())

    def write(self, checkpoint: int, attempt: int, rows: int = 3) -> tuple[WrittenFile, ...]:
        name = f"{checkpoint}.{attempt}/part-0.parquet"
        path = self.root / TABLE / name
        path.parent.mkdir(parents=True)
        held = {"key": [f"k{n}" for n in range(rows)], "n": [checkpoint] * rows}
        pq.write_table(pa.table({**held, "_key_group": pa.array([1] * rows, pa.int32())}), path)
        stats = {"numRecords": rows, "minValues": {"key": "k0"}, "maxValues": {"key": f"k{rows - 1}"}, "nullCount": {}}
        return (WrittenFile(path=name, size=path.stat().st_size, rows=rows, stats=json.dumps(stats)),)

    def foreign_removal(self, path: str) -> None:
        self.table().create_write_transaction(
            [RemoveAction(path, True, 0)], "append", delta_schema(COLUMNS), PARTITIONS
        )

    def foreign_addition(self, checkpoint: int) -> None:
        (file,) = self.write(checkpoint, 99)
        values = {"_level": "0", "_checkpoint": str(checkpoint)}
        added = AddAction(file.path, file.size, values, 0, True, file.stats)
        self.table().create_write_transaction([added], "append", delta_schema(COLUMNS), PARTITIONS)

    def live(self, version: int | None = None) -> dict[str, tuple[str, str]]:
        found: dict[str, tuple[str, str]] = {}
        for log in self.logs()[: None if version is None else version + 1]:
            for line in log.splitlines():
                action = json.loads(line)
                if add := action.get("add"):
                    values = add["partitionValues"]
                    found[add["path"]] = (values["_level"], values["_checkpoint"])
                if remove := action.get("remove"):
                    found.pop(remove["path"])
        return found

    def fail_commits(self, patch: pytest.MonkeyPatch, why: str, *, after: bool) -> None:
        """From now on, commits fail: before anything is written, or after the entry was."""
        really = DeltaTable.create_write_transaction

        def fails(table: DeltaTable, *args: Any, **options: Any) -> None:
            if after:
                really(table, *args, **options)
            raise OSError(why)

        patch.setattr(DeltaTable, "create_write_transaction", fails)

    def gone(self, path: str) -> None:
        (self.root / TABLE / path).unlink()

    def table(self) -> DeltaTable:
        return DeltaTable(str(self.root / TABLE))

    def overwrite(self, path: str, body: bytes) -> None:
        (self.root / TABLE / path).write_bytes(body)

    def logs(self) -> list[bytes]:
        return [path.read_bytes() for path in sorted((self.root / TABLE / "_delta_log").glob("*.json"))]


@dataclass
class BucketTablesDriver(DeltaTablesDriver):
    """Drives real tables in a bucket, through the proxy. `live` reads the Delta log directly from the bucket."""

    folder: S3Folder = field(kw_only=True)
    bucket: Bucket = field(kw_only=True)

    def __post_init__(self) -> None:
        self.tables = DeltaTables(warehouse=self.folder, clock=ManualClock())

    def write(self, checkpoint: int, attempt: int, rows: int = 3) -> tuple[WrittenFile, ...]:
        written = super().write(checkpoint, attempt, rows)
        for f in written:
            self.bucket.put(f"house/{TABLE}/{f.path}", (self.root / TABLE / f.path).read_bytes())
        return written

    def fail_commits(self, patch: pytest.MonkeyPatch, why: str, *, after: bool) -> None:
        really = S3Folder.put_if_absent

        def fails(folder: S3Folder, path: str, body: bytes) -> PutOutcome:
            if after:
                really(folder, path, body)
            raise UncertainPut(f"{path}: {why}")

        patch.setattr(S3Folder, "put_if_absent", fails)

    def gone(self, path: str) -> None:
        self.bucket.remove(f"house/{TABLE}/{path}")

    def table(self) -> DeltaTable:
        return DeltaTable(
            f"s3://{self.bucket.name}/house/{TABLE}", storage_options=self.folder.access.storage_options()
        )

    def overwrite(self, path: str, body: bytes) -> None:
        self.bucket.put(f"house/{TABLE}/{path}", body)

    def logs(self) -> list[bytes]:
        found = self.bucket.objects(f"house/{TABLE}/_delta_log/")
        return [found[name] for name in sorted(found) if name.endswith(".json")]


PARTITIONS = [name for name, _ in PARTITION_COLUMNS]


@dataclass
class MemoryTablesDriver:
    """Drives the in-memory twin."""

    tables: MemoryTables = field(default_factory=MemoryTables)

    def write(self, checkpoint: int, attempt: int, rows: int = 3) -> tuple[WrittenFile, ...]:
        held = [{"key": f"k{n}", "n": checkpoint} for n in range(rows)]
        return self.tables.write(f"{TABLE}/{checkpoint}.{attempt}", held).files

    def foreign_removal(self, path: str) -> None:
        self._foreign(lambda live: {p: f for p, f in live.items() if p != path})

    def foreign_addition(self, checkpoint: int) -> None:
        (file,) = self.write(checkpoint, 99)
        self._foreign(lambda live: {**live, file.path: LiveFile(file=file, level=0, checkpoint=checkpoint)})

    def live(self, version: int | None = None) -> dict[str, tuple[str, str]]:
        history = self.tables.tables[TABLE]
        live = history[-1 if version is None else version].live
        return {path: (str(f.level), str(f.checkpoint)) for path, f in live.items()}

    def _foreign(self, change: Callable[[dict[str, LiveFile]], dict[str, LiveFile]]) -> None:
        history = self.tables.tables[TABLE]
        newest = history[-1]
        commit = replace(newest.commit, version=len(history), write_id="foreign", sha256="foreign")
        history.append(replace(newest, live=change(dict(newest.live)), commit=commit))
