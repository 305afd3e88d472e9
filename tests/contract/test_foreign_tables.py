"""The port `ForeignTables`: versions and rows of somebody else's tables, on Delta Lake and in the in-memory twin."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Table
from deltalake import write_deltalake

from tidemark.declare.sources import Broadcast, DeltaTable
from tidemark.errors import DataLostError, DeclarationError, NotFoundError, StateOverflowError
from tidemark.model.checkpoint.broadcast_copies import TableVersion
from tidemark.ports import ForeignTables
from tidemark.tables.foreign_tables import DeltaForeignTables
from tidemark.testing.twin.memory import MemoryForeignTables

AT = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Place:
    """A struct inside a row."""

    city: str
    floor: int | None


@dataclass(frozen=True)
class Plane:
    """A row."""

    tail: str
    seats: int
    maker: str | None = None
    built: datetime | None = None
    price: Decimal | None = None
    home: Place | None = None
    tags: list[str] | None = None


@dataclass(frozen=True)
class Seats:
    """Fewer columns of the same table."""

    tail: str
    seats: int


COLUMNS = pa.schema(
    [
        ("tail", pa.string()),
        ("seats", pa.int32()),
        ("maker", pa.string()),
        ("built", pa.timestamp("us", tz="UTC")),
        ("price", pa.decimal128(20, 2)),
        ("home", pa.struct([("city", pa.string()), ("floor", pa.int64()), ("more", pa.string())])),
        ("tags", pa.list_(pa.string())),
    ]
)


class Driver(Protocol):
    """What the tests do to a table."""

    path: str

    @property
    def tables(self) -> ForeignTables: ...

    def overwrite(self, rows: Sequence[Any]) -> None: ...

    def roll_back(self) -> None: ...

    def recreate(self, rows: Sequence[Any]) -> None: ...


class MemoryDriver:
    """The twin."""

    path = "/planes"

    def __init__(self) -> None:
        self.tables = MemoryForeignTables()

    def overwrite(self, rows: Sequence[Any]) -> None:
        self.tables.overwrite(self.path, rows)

    def roll_back(self) -> None:
        self.tables.roll_back(self.path)

    def recreate(self, rows: Sequence[Any]) -> None:
        self.tables.drop(self.path)
        self.overwrite(rows)


class DeltaDriver:
    """Delta Lake, written as another team would."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path, self.tables = folder / "planes", str(folder / "planes"), DeltaForeignTables()

    def overwrite(self, rows: Sequence[Any]) -> None:
        write_deltalake(self.path, pa.Table.from_pylist([asdict(r) for r in rows], schema=COLUMNS), mode="overwrite")

    def roll_back(self) -> None:
        log = self.folder / "_delta_log"
        sorted(log.glob("*.json"))[-1].unlink()

    def recreate(self, rows: Sequence[Any]) -> None:
        self.folder.rename(self.folder.with_suffix(".old"))
        self.overwrite(rows)


@pytest.fixture(params=["memory", "delta"])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Driver:
    """Each implementation in turn."""
    return MemoryDriver() if request.param == "memory" else DeltaDriver(tmp_path)


def planes(driver: Driver, record: type = Plane, **options: int) -> Broadcast:
    """The broadcast state over the driver's table."""
    return Broadcast("planes", DeltaTable(driver.path, record), key_by="tail", **options)


def test_a_version_is_read_as_it_was_whatever_came_later(driver: Driver) -> None:
    one = Plane("N1", 10, "Airbus", AT, Decimal("1.50"), home=Place("Oslo", 3), tags=["a", "b"])
    driver.overwrite([one, Plane("N2", 20)])
    first = driver.tables.newest(planes(driver))
    driver.overwrite([Plane("N3", 30)])
    second = driver.tables.newest(planes(driver))
    assert (second.id, second.version) == (first.id, first.version + 1)
    rows = {row["tail"]: row for row in driver.tables.rows(planes(driver), first)}
    assert rows["N1"] == asdict(one)
    assert rows["N2"]["maker"] is None
    assert [row["tail"] for row in driver.tables.rows(planes(driver), second)] == ["N3"]


def test_a_table_that_is_not_there_is_not_found(driver: Driver) -> None:
    with pytest.raises(NotFoundError, match="no Delta table at"):
        driver.tables.newest(planes(driver))


def test_a_version_that_was_rolled_back_is_lost(driver: Driver) -> None:
    driver.overwrite([Plane("N1", 1)])
    driver.overwrite([Plane("N1", 2)])
    at = driver.tables.newest(planes(driver))
    driver.roll_back()
    assert driver.tables.newest(planes(driver)).version == at.version - 1
    with pytest.raises(DataLostError, match=f"version {at.version} of the table of broadcast state planes"):
        driver.tables.rows(planes(driver), at)


def test_a_table_that_was_made_again_has_another_id(driver: Driver) -> None:
    driver.overwrite([Plane("N1", 1)])
    at = driver.tables.newest(planes(driver))
    driver.recreate([Plane("N1", 2)])
    assert driver.tables.newest(planes(driver)).id != at.id
    with pytest.raises(DataLostError, match="planes"):
        driver.tables.rows(planes(driver), at)


def test_two_rows_of_one_key_are_refused(driver: Driver) -> None:
    driver.overwrite([Plane("N1", 1), Plane("N2", 2), Plane("N1", 3)])
    with pytest.raises(DeclarationError, match=r"2 rows have the key \(N1\)"):
        driver.tables.rows(planes(driver), driver.tables.newest(planes(driver)))


def test_more_rows_than_max_keys_are_refused(driver: Driver) -> None:
    driver.overwrite([Plane("N1", 1), Plane("N2", 2)])
    at = driver.tables.newest(planes(driver))
    assert len(driver.tables.rows(planes(driver, max_keys=2), at)) == 2
    with pytest.raises(StateOverflowError, match="planes has more than 1 keys"):
        driver.tables.rows(planes(driver, max_keys=1), at)


class TestDelta:
    """What only a real table can have."""

    def refused(self, tmp_path: Path, rows: pa.Table, record: type = Seats) -> str:
        """The message of the refusal of a table."""
        write_deltalake(str(tmp_path / "t"), rows)
        broadcast = Broadcast("planes", DeltaTable(str(tmp_path / "t"), record), key_by="tail")
        with pytest.raises(DeclarationError) as error:
            DeltaForeignTables().rows(broadcast, DeltaForeignTables().newest(broadcast))
        return error.value.what

    def test_a_missing_column_is_named(self, tmp_path: Path) -> None:
        assert "there is no column seats" in self.refused(tmp_path, pa.table({"tail": ["N1"]}))

    def test_a_column_of_another_type_is_named(self, tmp_path: Path) -> None:
        assert "seats is string, declared BIGINT" in self.refused(tmp_path, pa.table({"tail": ["N1"], "seats": ["1"]}))

    def test_a_null_is_refused_where_none_may_be(self, tmp_path: Path) -> None:
        rows = pa.table({"tail": ["N1"], "seats": pa.array([None], pa.int64())})
        assert "seats is null in some row" in self.refused(tmp_path, rows)

    def test_a_key_may_not_be_null(self, tmp_path: Path) -> None:
        rows = pa.table({"tail": pa.array([None], pa.string()), "seats": [1]})
        assert "tail is null in some row" in self.refused(tmp_path, rows)

    def test_other_columns_are_left_alone(self, tmp_path: Path) -> None:
        driver = DeltaDriver(tmp_path)
        driver.overwrite([Plane("N1", 7)])
        broadcast = planes(driver, Seats)
        assert driver.tables.rows(broadcast, driver.tables.newest(broadcast)) == [{"tail": "N1", "seats": 7}]

    def test_a_vacuumed_version_is_lost(self, tmp_path: Path) -> None:
        driver = DeltaDriver(tmp_path)
        driver.overwrite([Plane("N1", 1)])
        at = driver.tables.newest(planes(driver))
        driver.overwrite([Plane("N1", 2)])
        Table(driver.path).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
        with pytest.raises(DataLostError, match="version 0"):
            driver.tables.rows(planes(driver), at)

    def test_a_planned_version_of_another_table_is_lost(self, tmp_path: Path) -> None:
        driver = DeltaDriver(tmp_path)
        driver.overwrite([Plane("N1", 1)])
        with pytest.raises(DataLostError, match="not another"):
            driver.tables.rows(planes(driver), TableVersion(id="another", version=0))


CHILD = """
import sys
from dataclasses import dataclass
from tidemark.tables.foreign_tables import DeltaForeignTables
from tidemark.errors import StateOverflowError
from tidemark.declare.sources import Broadcast, DeltaTable

@dataclass(frozen=True)
class Seats:
    tail: str
    seats: int

tables, planes = DeltaForeignTables(), Broadcast("planes", DeltaTable(sys.argv[1], Seats), key_by="tail", max_keys=10)
try:
    tables.rows(planes, tables.newest(planes))
except StateOverflowError:
    print("too many")
"""


def test_a_process_that_has_met_too_large_a_table_ends_well(tmp_path: Path) -> None:
    """Its read stops early; by deltalake's own file system the process then hung, or died of a signal, at its exit."""
    path = str(tmp_path / "planes")
    for n in range(12):
        rows = {"tail": [f"N{n}-{m}" for m in range(500)], "seats": pa.array(range(500), pa.int64())}
        write_deltalake(path, pa.table(rows), mode="append")
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", CHILD, path], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stdout) == (0, "too many\n"), done.stderr
