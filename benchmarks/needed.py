"""Finds the files that a restore point needs in each system's own metadata, without using the code of any system.

The sum of their bytes is the minimum that must stay; logs, manifests and other records of points add to it.
"""

import base64
import json
import re
import uuid
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tidemark.model.checkpoint.manifest import Checkpoint

_SHARED = re.compile(rb"/shared/([0-9a-f-]{36})")
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_PYTHON = str.maketrans(_Z85, _B85)
"""Delta encodes the UUID of a deletion vector file in ZeroMQ's base 85; Python decodes that of RFC 1924."""


def named(root: Path, found: Checkpoint) -> Iterator[Path]:
    """Yields the data files of a Tidemark checkpoint, found by a plain replay of its tables' logs.

    Args:
        root: the folder of the warehouse.
        found: the checkpoint.
    """
    for ack in found.sealed.acks:
        for s in (*ack.handle, *ack.dead_letters, *ack.sink):
            for add in _live(root / s.path, s.version).values():
                if s.after < int(add["partitionValues"]["_checkpoint"]) <= s.through:
                    yield root / s.path / add["path"]


def delta_files(table: Path, versions: Iterable[int]) -> set[Path]:
    """The data files and deletion vectors of some versions of a Delta table, whose log must reach back to version 0."""
    adds = [add for version in versions for add in _live(table, version).values()]
    vectors = (add["deletionVector"] for add in adds if "deletionVector" in add)
    return {table / add["path"] for add in adds} | {table / _file_of(vector) for vector in vectors}


def _live(table: Path, version: int) -> dict[str, dict[str, Any]]:
    """The `add` actions of a version's files, by path; giving a file a new deletion vector removes and adds it."""
    live: dict[str, dict[str, Any]] = {}
    for n in range(version + 1):
        actions = [json.loads(text) for text in (table / "_delta_log" / f"{n:020d}.json").read_text().splitlines()]
        for action in actions:
            if "remove" in action:
                live.pop(action["remove"]["path"], None)
        live |= {action["add"]["path"]: action["add"] for action in actions if "add" in action}
    return live


def _file_of(vector: dict[str, Any]) -> str:
    assert vector["storageType"] == "u", "only vectors in files of the table's own folder are expected"
    prefix, name = vector["pathOrInlineDv"][:-20], vector["pathOrInlineDv"][-20:]
    number = uuid.UUID(bytes=base64.b85decode(name.translate(_TO_PYTHON)))
    return f"{prefix}/deletion_vector_{number}.bin".lstrip("/")


def rocksdb_files(operator: Path, versions: Iterable[int]) -> set[Path]:
    """The files of some versions of a Spark operator's RocksDB: snapshots, and the files that their metadata names.

    Args:
        operator: the operator's folder, which has a subfolder for every partition.
        versions: the versions, each of which must have a full snapshot.
    """
    snapshots = {part / f"{n}.zip" for part in operator.iterdir() if part.name.isdigit() for n in versions}
    found = set(snapshots)
    for snapshot in snapshots:
        with zipfile.ZipFile(snapshot) as archive:
            metadata = json.loads(archive.read("metadata").decode().partition("\n")[2])
        found |= {snapshot.parent / "SSTs" / file["dfsSstFileName"] for file in metadata["sstFiles"]}
        found |= {snapshot.parent / "logs" / file["dfsLogFileName"] for file in metadata.get("logFiles") or ()}
    return found


def flink_files(checkpoints: Iterable[Path]) -> set[Path]:
    """The files of some Flink checkpoints: those in their folders, and the shared ones that their metadata names.

    Flink stores small files inside the metadata, so names without a file on disk are left out.
    """
    found = set()
    for folder in checkpoints:
        own = set(folder.iterdir())
        shared = _SHARED.findall(next(path for path in own if path.name == "_metadata").read_bytes())
        found |= own | {folder.parent / "shared" / name.decode() for name in shared}
    return {path for path in found if path.exists()}
