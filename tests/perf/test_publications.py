"""The benchmark of publications counts every byte, and its oracle finds a wrong row."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.publications.upkeep import AgingMirror


@pytest.fixture
def aging(tmp_path: Path) -> AgingMirror:
    made = AgingMirror(tmp_path / "mirror", 3_000, more=1)
    made.load()
    return made


def test_the_bytes_of_a_publication_are_those_that_the_folder_gained(aging: AgingMirror) -> None:
    for number in (1, 2, 3):
        before = _bytes(aging.folder)
        found = aging.publish()
        assert found["publication"] == number
        assert found["data"] + found["vectors"] + found["log"] == _bytes(aging.folder) - before
        assert found["data"] == found["changed"], "neither merged nor rewritten"
    assert aging.check() == 3_000


def test_a_wrong_row_voids_the_run(aging: AgingMirror) -> None:
    aging.publish()
    aging.values[0, 17] += 1
    with pytest.raises(SystemExit, match="this run is void"):
        aging.check()


def test_the_first_publication_has_four_files(aging: AgingMirror) -> None:
    rows = [pq.ParquetFile(path).metadata.num_rows for path in aging.folder.glob("*.parquet")]
    assert rows == [750] * 4


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
