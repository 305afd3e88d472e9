"""The index of manifests: what is read once, what anew, and what becomes of a file that lies (E15, adr/0017)."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.support.retention import DiskRetentionPipeline, MemoryCache, MemoryRetentionPipeline
from tidemark.coordinator.records.manifest_index import ManifestIndex
from tidemark.coordinator.retention.root_set import Survey, collect_roots
from tidemark.declare.retention import Retention
from tidemark.model.core import canonical
from tidemark.model.retention.manifest_index_file import KIND
from tidemark.storage.object_cache import LocalCache
from tidemark.testing.twin.memory import MemoryStore

RULE = Retention.keep_last(2)


@dataclass
class Reads(MemoryStore):
    """A store that notes what is read."""

    read: list[str] = field(default_factory=list)

    def get(self, key: str) -> bytes | None:
        self.read.append(key)
        return super().get(key)


def surveyed(retained: MemoryRetentionPipeline | DiskRetentionPipeline, index: ManifestIndex) -> Survey:
    return collect_roots(replace(retained.coordinator, index=index), RULE)


def manifests(retained: MemoryRetentionPipeline) -> list[str]:
    """Manifests, tombstones and jobs that were read since it was asked last."""
    found = [key for key in retained.store.read if key.startswith(("timelines/", "tombstones/", "jobs/"))]
    retained.store.read.clear()
    return found


def test_a_look_behind_one_more_checkpoint_reads_one_manifest_however_many_there_are() -> None:
    costs = []
    for count in (10, 40):
        retained, cache = MemoryRetentionPipeline(store=Reads()), MemoryCache()
        for _ in range(count):
            retained.checkpoint("a")
        surveyed(retained, ManifestIndex(cache))
        retained.checkpoint("b")
        retained.store.read.clear()
        found = surveyed(retained, ManifestIndex(cache))
        assert len(found.lines.all()) == count + 1
        costs.append(len(manifests(retained)))
    assert 1 <= costs[0] == costs[1] <= 5, "a head, a look behind it, and the new manifest"


def test_a_released_checkpoint_costs_no_read_of_its_tombstone_the_next_time() -> None:
    costs = []
    for count in (5, 30):
        retained = MemoryRetentionPipeline(store=Reads())
        for _ in range(count):
            retained.checkpoint("a")
        retained.sweep(RULE)
        surveyed(retained, retained.index)
        manifests(retained)
        found = surveyed(retained, ManifestIndex(retained.index.cache))
        assert len(found.tombstones) == count - 2
        costs.append(len(manifests(retained)))
    assert costs[0] == costs[1]


def test_a_revision_is_met_and_a_manifest_without_one_is_not_read_again() -> None:
    retained = MemoryRetentionPipeline(store=Reads())
    for account in ("a", "b", "b"):
        retained.checkpoint(account)
    surveyed(retained, retained.index)
    retained.erase("accounts", "a")
    manifests(retained)
    found = surveyed(retained, ManifestIndex(retained.index.cache))
    assert {c.revision for c in found.lines.all()} == {1}
    assert found == surveyed(retained, ManifestIndex())


@pytest.mark.parametrize("harm", ["torn", "flipped", "of another release", "of another shape", "empty"])
def test_a_file_that_cannot_be_trusted_is_as_good_as_none(harm: str) -> None:
    retained, cache = MemoryRetentionPipeline(), MemoryCache()
    for account in "abc":
        retained.checkpoint(account)
    surveyed(retained, ManifestIndex(cache))
    ((name, raw),) = cache.held.items()
    body = canonical.decode(KIND, name, raw)
    cache.held[name] = {
        "torn": raw[: len(raw) // 2],
        "flipped": raw.replace(b"chk-1", b"chk-9").replace(b'"segments"', b'"sagments"'),
        "of another release": canonical.encode(KIND, body | {"version": 99}),
        "of another shape": canonical.encode(KIND, body | {"manifests": {"timelines/t1/1.json": ["x", [1, 2]]}}),
        "empty": b"",
    }[harm]
    assert surveyed(retained, ManifestIndex(cache)) == surveyed(retained, ManifestIndex())
    assert cache.held[name] == raw, "it is written anew"


def test_a_warehouse_that_was_made_anew_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    cache = LocalCache(tmp_path / "cache")
    old = DiskRetentionPipeline(tmp_path / "warehouse")
    old.checkpoint("a", "b")
    old.checkpoint("a")
    surveyed(old, ManifestIndex(cache))
    shutil.rmtree(tmp_path / "warehouse")
    new = DiskRetentionPipeline(tmp_path / "warehouse")
    new.checkpoint("c")
    found = surveyed(new, ManifestIndex(cache))
    assert found == surveyed(new, ManifestIndex())
    assert len(found.lines.all()) == 1


def test_a_manifest_that_was_damaged_since_it_was_read_is_found_and_keeps_what_it_may_name(tmp_path: Path) -> None:
    cache, retained = LocalCache(tmp_path / "cache"), DiskRetentionPipeline(tmp_path / "warehouse")
    retained.checkpoint("a")
    surveyed(retained, ManifestIndex(cache))
    (manifest,) = (tmp_path / "warehouse").glob("*/timelines/t1/*1.json")
    at, raw = manifest.stat(), manifest.read_bytes()
    manifest.write_bytes(raw.replace(b"payments", b"paymants", 1))
    os.utime(manifest, ns=(at.st_atime_ns, at.st_mtime_ns))
    found = surveyed(retained, ManifestIndex(cache)).damage
    assert ([bad.name for bad in found.manifests], found.timelines) == (["chk-1"], frozenset({"t1"}))


def test_of_two_that_write_at_once_one_stays_and_nobody_fails(tmp_path: Path) -> None:
    retained, cache = MemoryRetentionPipeline(), LocalCache(tmp_path / "cache")
    first, second = ManifestIndex(cache), ManifestIndex(cache)
    retained.checkpoint("a")
    surveyed(retained, first)
    retained.checkpoint("b")
    surveyed(retained, second)
    surveyed(retained, first)
    assert surveyed(retained, ManifestIndex(cache)) == surveyed(retained, ManifestIndex())
    assert [path.name for path in cache.folder.iterdir()] == ["manifests.json"]


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, not a folder")
    retained = MemoryRetentionPipeline()
    retained.checkpoint("a")
    assert surveyed(retained, ManifestIndex(LocalCache(tmp_path / "cache"))) == surveyed(retained, ManifestIndex())


def test_who_reads_while_others_write_gets_one_of_the_files_whole(tmp_path: Path) -> None:
    cache, bodies = LocalCache(tmp_path), [bytes([n]) * 100_000 for n in range(1, 5)]
    cache.put("x", bodies[0])
    with ThreadPoolExecutor(8) as pool:
        written = [pool.submit(cache.put, "x", body) for body in bodies * 10]
        read = [pool.submit(cache.get, "x") for _ in range(200)]
        assert {future.result() for future in read} <= {*bodies}
        assert [future.result() for future in written] == [None] * 40
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
