"""Publications of operators whose key is computed, and of one that has a single row."""

import os
import random
from collections.abc import Callable
from pathlib import Path

from deltalake import DeltaTable, QueryBuilder

from tests.publications.published_ward import NAME, PublishedWard, rows_by
from tidemark.operations.publications import publishing
from tidemark.readers.checkpoint_reader import read_checkpoint

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", "20261127"))


class ComputedWard(PublishedWard):
    """Sensors by an expression of their name, and one row over all readings."""

    def declare(self, change: Callable[[str], str] = str) -> None:
        """Declares the pipeline with other keys."""
        super().declare(lambda text: change(_with_keys(text)))


def _with_keys(text: str) -> str:
    before, sensors, fresh, kept = text.split('key_by="sensor"')
    first = before + 'key_by={"sensor": "CASE WHEN sensor < \'d\' THEN upper(sensor) ELSE sensor END"}'
    return f'{first}{sensors}key_by=(){fresh}key_by="sensor"{kept}'


def _one_row(world: ComputedWard) -> None:
    """The mirror of the single row has the state of its checkpoint."""
    table = DeltaTable(str(world.mirror("fresh")))
    found = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    checkpoint = world.line.coordinator.checkpoint(world.told("fresh")[1])
    wanted = read_checkpoint(str(world.line.root), checkpoint, "fresh").to_pylist(maps_as_pydicts="strict")
    (row,) = [dict(zip(found.schema.names, values, strict=True)) for values in zip(*_columns(found), strict=True)]
    assert [row] == wanted and row["all_records"] is True


def _columns(found: object) -> list[list[object]]:
    import pyarrow as pa

    table = pa.table(found)
    return [column.to_pylist() for column in table.columns]


def test_mirrors_follow_computed_keys_and_the_row_of_a_global_fold(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    world = ComputedWard(tmp_path, random.Random(SEED))
    modes = set()
    for _ in range(6):
        world.checkpoint()
        modes |= set(world.published("sensors"))
        publishing.publish(world.context, NAME, world.publication("fresh"))
        _one_row(world)
    assert modes == {"rebuild", "difference"}
    world.check()
    assert world.keys("sensors") <= {*"ABC", *"def"} and world.keys("sensors") & {*"ABC"}


def test_an_erased_computed_key_leaves_the_mirror(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    world = ComputedWard(tmp_path, random.Random(SEED))
    while "A" not in world.keys("sensors") if world.versions else True:
        world.checkpoint()
        world.published("sensors")
    world.erase("A", "sensors")
    world.published("sensors")
    assert "A" not in world.keys("sensors")
    world.checkpoint()
    world.published("sensors")
    assert set(rows_by(world.expected(world.told("sensors")[1], "sensors"))) == world.keys("sensors")
