"""Jars are exactly those of the list."""

import hashlib
from pathlib import Path

import pytest

from devstack import jars
from tests.stack.homes import ROOT
from tidemark.errors import TidemarkError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two jars, one per profile, that agree with `<folder>/sums`."""
    lines = []
    for name in ("kafka/a.jar", "spark/b.jar"):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_bytes(name.encode())
        lines.append(f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n")
    (tmp_path / "sums").write_text("".join(lines))
    return tmp_path


def test_the_committed_list_has_the_nine_jars_of_spark_and_the_broker() -> None:
    names = jars.expected_sums()
    assert len([name for name in names if name.startswith("spark/")]) == 9
    assert len([name for name in names if name.startswith("kafka/")]) == 46
    assert all(len(digest) == 64 for digest in names.values())


def test_this_checkout_has_the_jars_of_the_list() -> None:
    jars.check(ROOT / ".jars")


def test_right_jars_pass(folder: Path) -> None:
    jars.check(folder, folder / "sums")


def test_a_wrong_sum_names_the_file_and_takes_it_away(folder: Path) -> None:
    (folder / "spark/b.jar").write_bytes(b"altered")
    with pytest.raises(TidemarkError, match=r"spark/b\.jar: wrong SHA-256 sum") as caught:
        jars.check(folder, folder / "sums")
    assert caught.value.code == 1
    assert "kafka/a.jar" not in str(caught.value)
    assert not (folder / "spark/b.jar").exists()
    assert (folder / "quarantine/spark-b.jar").read_bytes() == b"altered"


def test_an_unexpected_jar_is_an_error(folder: Path) -> None:
    (folder / "spark/extra.jar").touch()
    with pytest.raises(TidemarkError, match=r"spark/extra\.jar: not in the list"):
        jars.check(folder, folder / "sums")
    assert not (folder / "spark/extra.jar").exists()


def test_a_missing_jar_is_named(folder: Path) -> None:
    (folder / "kafka/a.jar").unlink()
    with pytest.raises(TidemarkError, match=r"kafka/a\.jar: missing"):
        jars.check(folder, folder / "sums")


def test_a_mirror_of_the_user_s_maven_settings_is_used_and_never_a_blocked_one(tmp_path: Path) -> None:
    maven = tmp_path / "home" / ".m2" / "settings.xml"
    maven.parent.mkdir(parents=True)
    blocked = "<mirror><url>x:blocked</url><blocked>true</blocked></mirror>"
    maven.write_text(f"<settings><mirrors>{blocked}<mirror><url>x:mine</url></mirror></mirrors></settings>")
    assert jars._write_settings(tmp_path, tmp_path / "home") == ("-settings", str(tmp_path / "ivy-settings.xml"))
    assert 'root="x:mine"' in (tmp_path / "ivy-settings.xml").read_text()
    assert jars._write_settings(tmp_path, tmp_path / "elsewhere") == ()
