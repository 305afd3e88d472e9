"""Workers import pyspark from a folder if it is the one that Spark's zips belong to."""

from pathlib import Path

from tidemark.engine.session.worker_daemon import leave_zips


def _spark(home: Path) -> list[str]:
    """A pyspark wheel in a folder; returns what Spark adds to the path of its workers."""
    lib = home / "python" / "lib"
    lib.mkdir(parents=True)
    (home / "__init__.py").write_text("")
    for name in ("pyspark.zip", "py4j-0.10-src.zip"):
        (lib / name).write_bytes(b"")
    return [str(lib / "pyspark.zip"), str(lib / "py4j-0.10-src.zip"), str(home / "jars" / "spark-core.jar")]


def test_zips_of_the_installed_wheel_are_left_out(tmp_path: Path) -> None:
    """The folder of the wheel has the same modules."""
    added, installed = _spark(tmp_path / "site" / "pyspark"), str(tmp_path / "site")
    assert leave_zips(["", *added, installed]) == ["", installed]


def test_zips_of_another_release_stay(tmp_path: Path) -> None:
    """A Spark of its own has other modules than the wheel next to Tidemark, and its workers must be of its release."""
    added = _spark(tmp_path / "spark")
    _spark(tmp_path / "site" / "pyspark")
    path = [*added, str(tmp_path / "site")]
    assert leave_zips(path) == path


def test_zips_stay_where_nothing_else_is(tmp_path: Path) -> None:
    """Without a wheel, the zips are the only pyspark; without zips there is nothing to leave."""
    added = _spark(tmp_path / "spark")
    assert leave_zips(added) == added
    assert leave_zips([str(tmp_path)]) == [str(tmp_path)]
