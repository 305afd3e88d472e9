"""Readers that do not know Tidemark read every version of a mirror, with its deletion vectors."""

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from uuid import uuid4

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from tests.publications.daft_reader import DaftError, read_with_daft
from tests.publications.mirror_walk import COLUMNS, MirrorWalk, State
from tidemark.engine.session.session import SparkSettings, open_session

Reader = Callable[[Path, int], pa.Table]


def _deltalake(path: Path, version: int) -> pa.Table:
    table = DeltaTable(str(path), version=version)
    return pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())


def _polars(path: Path, version: int) -> pa.Table:
    return polars.scan_delta(str(path), version=version).collect().to_arrow()


def _duckdb(path: Path, version: int) -> pa.Table:
    with duckdb.connect() as connection:
        connection.register("rows_of_version", _deltalake(path, version))
        return connection.sql("FROM rows_of_version").to_arrow_table()


READERS: Mapping[str, Reader] = {"deltalake": _deltalake, "polars": _polars, "duckdb": _duckdb}


PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/publish-a-delta-table.md"


def _published(path: Path, *, deletion_vectors: bool) -> MirrorWalk:
    walk = MirrorWalk(path, random.Random(7), deletion_vectors)
    walk.state = {(b, n): n for b in "abc" for n in range(40)}
    walk.rebuild()
    for _ in range(12):  # with a Delta log checkpoint in between
        walk.publish()
    return walk


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> MirrorWalk:
    walk = _published(tmp_path_factory.mktemp("strangers") / "mirror", deletion_vectors=True)
    assert walk.mirror.log.newest().has_vectors
    assert any(file.vector for file in walk.mirror.log.newest().files.values())
    return walk


@pytest.fixture(scope="module")
def spark(spark_server: str) -> Iterator[SparkSession]:
    session = open_session(SparkSettings(master=spark_server), f"tests/{uuid4().hex}", 1)
    yield session
    session.stop()


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_sees_the_state_at_every_version(mirror: MirrorWalk, reader: str) -> None:
    for version, state in mirror.states.items():
        assert _state(READERS[reader](mirror.path, version)) == state, f"version {version}"


@pytest.mark.slow
def test_daft_sees_the_state_at_every_version_without_deletion_vectors(tmp_path: Path) -> None:
    walk = _published(tmp_path / "mirror", deletion_vectors=False)
    found = read_with_daft(walk.path, list(walk.states))
    assert {version: _state(pa.Table.from_pylist(rows)) for version, rows in found.items()} == walk.states


@pytest.mark.slow
def test_daft_refuses_deletion_vectors_unless_it_is_told_to_return_deleted_rows(mirror: MirrorWalk) -> None:
    refusal = "Delta Lake deletion vectors are not yet supported"
    for version in (min(mirror.states), mirror.version):
        with pytest.raises(DaftError, match=refusal):
            read_with_daft(mirror.path, [version])
    wrong = read_with_daft(mirror.path, [mirror.version], ignore_deletion_vectors=True)[mirror.version]
    assert len(wrong) > len(mirror.state)
    page = " ".join(PAGE.read_text().split())
    assert refusal in page
    assert "`ignore_deletion_vectors=True` returns deleted rows" in page


@pytest.mark.slow
@pytest.mark.spark
def test_spark_sees_the_state_and_its_own_maintenance_breaks_nothing(mirror: MirrorWalk, spark: SparkSession) -> None:
    def read(version: int) -> State:
        rows = spark.read.format("delta").option("versionAsOf", version).load(str(mirror.path)).collect()
        return {(row["bank"], row["n"]): int(row["balance"]) for row in rows}

    for version in list(mirror.states)[:: len(mirror.states) // 4]:
        assert read(version) == mirror.states[version], f"version {version}"
    before = mirror.version
    spark.sql(f"OPTIMIZE delta.`{mirror.path}`").collect()
    assert mirror.version > before
    assert read(mirror.version) == mirror.state
    mirror.publish()
    assert read(mirror.version) == mirror.state


def _state(rows: pa.Table) -> State:
    assert rows.column_names == [name for name, _ in COLUMNS]
    return {(row["bank"], row["n"]): int(row["balance"]) for row in rows.to_pylist()}
