"""A pipeline of an earlier release goes on with this one: its sinks and dead letters have other columns since."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.golden.answers import PIPELINE, WAREHOUSE, unpack_warehouse
from tests.support.disk import DiskPipeline
from tidemark import Pipeline
from tidemark.coordinator.checkpoints.loop import CheckpointLoop
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.state.row_compaction import RowPolicy
from tidemark.ports import PlanRequest
from tidemark.readers.dead_letter_reader import dead_letters
from tidemark.readers.sink_reader import read_sink

HERE = Path(__file__).parent
RELEASES = sorted(p.parent for p in HERE.glob(f"*/{WAREHOUSE}"))
SALE = b'{"customer": "zoe", "item": "tea", "pieces": 7, "price": "1.00", "at": "2026-11-01T00:00:00Z"}'


@pytest.fixture(params=RELEASES, ids=lambda path: path.name)
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the warehouse of a release."""
    return unpack_warehouse(request.param, tmp_path)


def declared(topic: str) -> Pipeline:
    """The pipeline as it was declared last."""
    module = ModuleType("shop_later")
    text = (HERE / "pipelines" / "shop_later.py").read_text().replace("$topic", topic)
    sys.modules[module.__name__] = module
    exec(compile(text, "shop_later.py", "exec"), module.__dict__)  # noqa: S102
    found: Pipeline = module.shop
    return found


def go_on(line: DiskPipeline) -> Checkpoint:
    """A checkpoint over a topic that was recreated, because the broker of then is gone."""
    loop = CheckpointLoop(coordinator=line.coordinator, pipeline=line.pipeline, execute=line.execute)
    return loop.run_once(PlanRequest(origin="test", accept_loss=True, accept_time=True)).checkpoints[-1]


def stored(root: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table as its files have them."""
    files = DeltaTable(str(root / table)).file_uris()
    return [row for path in files for row in pq.read_table(path, partitioning=None).to_pylist()]


def letters(root: Path, handle: StateHandle, through: int) -> list[tuple[Any, ...]]:
    """Position, value and path of dead letters."""
    found = [dead_letters(str(root), handle, n, 1000)["rows"] for n in range(1, through + 1)]
    return sorted((r["topic"], r["partition"], r["offset"], r["value"], r["path"]) for rows in found for r in rows)


def letters_of_then(root: Path, handle: StateHandle) -> list[tuple[Any, ...]]:
    """What `letters` returns of tables of then; a renamed operator has those of its earlier name too."""
    rows = [row for segment in handle for row in stored(root, segment.path)]
    return sorted((r["topic"], r["partition"], r["offset"], r["value"], None) for r in rows)


def emitted(root: Path, made: Checkpoint) -> list[tuple[Any, ...]]:
    """Customer, position and path of the rows of the sink."""
    (table,) = made.sinks.values()
    rows = read_sink(str(root), table).to_pylist()
    return sorted((r["customer"], r["pieces"], r["_topic"], r["_partition"], r["_offset"], r["_path"]) for r in rows)


@pytest.mark.parametrize("merges", [(), ("before",), ("after",), ("before", "after")])
def test_rows_of_then_and_of_now_are_one_table(warehouse: Path, merges: tuple[str, ...]) -> None:
    then = stored(warehouse, f"{PIPELINE}/sinks/alerts/t1")
    old = sorted((r["customer"], r["pieces"], r["_topic"], r["_partition"], r["_offset"], [r["_n"]]) for r in then)
    topic = then[0]["_topic"]
    line = DiskPipeline(warehouse, declared(topic), topic, partitions=2)
    newest = next(line.coordinator.checkpoints())
    assert emitted(warehouse, newest) == old and len(old) > 5
    old_letters = {ack.uid: letters_of_then(warehouse, ack.dead_letters) for ack in newest.sealed.acks}
    for ack in newest.sealed.acks:
        assert letters(warehouse, ack.dead_letters, newest.id) == old_letters[ack.uid] != []
    if "before" in merges:
        merged = [segment.path for record in line.compact_rows(RowPolicy.everything()) for segment in record.output]
        assert {path.rpartition("/")[2] for path in merged} == {"t1~v2~base"}
    line.send([(0, SALE, 0), (0, b"{", 0)])
    made = go_on(line)
    if "after" in merges:
        assert line.compact_rows(RowPolicy.everything())
        line.send([(0, b"[", 0)])
        made = go_on(line)
    new = [("zoe", 7, topic, 0, 0, [0])]
    assert emitted(warehouse, made) == sorted([*old, *new])
    (table,) = made.sinks.values()
    assert table.path.endswith("/t1~v2")
    broken = [(topic, 0, 1, b"{", None), *([(topic, 0, 2, b"[", None)] if "after" in merges else [])]
    for ack in made.sealed.acks:
        found = letters(warehouse, ack.dead_letters, made.id)
        assert found == sorted([*old_letters[ack.uid], *broken]), ack.uid
