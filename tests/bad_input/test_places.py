"""Places that fail: a warehouse that cannot be written, a full disk, damaged objects. What is complete stays so."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bad_input.conftest import SEED, BadInputPipeline, MakeLine
from tests.support.cli import Answer
from tests.support.prerequisites import missing, needs

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

MOUNT, UMOUNT = "/bin/mount", "/bin/umount"
NEEDS_ROOT = needs(os.geteuid() == 0, "only root may mount a tmpfs")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 4 MB."""
    where = tmp_path / "disk"
    where.mkdir()
    done = subprocess.run(
        [MOUNT, "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(where)], capture_output=True, check=False
    )
    if done.returncode:
        missing(f"this machine mounts no tmpfs: {done.stderr.decode().strip()}")
    try:
        yield where
    finally:
        subprocess.run([UMOUNT, "--lazy", str(where)], check=True)


def test_a_file_in_the_place_of_the_warehouse(make_line: MakeLine, tmp_path: Path) -> None:
    place = tmp_path / "warehouse"
    place.write_text("a file")
    line = make_line("misplaced", warehouse=place)
    line.send(1)
    line.run().failed(1, "warehouse")
    assert place.read_text() == "a file"


@NEEDS_ROOT
def test_a_read_only_warehouse_and_a_full_one_fail_cleanly_and_go_on_later(
    make_line: MakeLine, small_disk: Path
) -> None:
    line = make_line("cramped", warehouse=small_disk / "warehouse")
    line.send(1, 2)
    line.run().ok()
    line.send(3)
    _remount(small_disk, "ro")
    before = line.tidemark.objects(line.name)
    line.run().failed(1, "Read-only file system", "Safe: ")
    assert line.shops() == {"north": (2, 3)}
    _remount(small_disk, "rw")
    assert line.tidemark.objects(line.name) == before
    filler = small_disk / "filler"
    _fill(filler, keep=0)
    line.run().failed(1, "No space left on device")
    assert line.shops() == {"north": (2, 3)}
    for keep in (24_576, 49_152, 65_536):
        # Room for the plan and the attempt, then for some of the data: it ends in another step each time.
        _fill(filler, keep=keep)
        answer = line.run()
        if answer.code:
            _failed_by_the_disk(answer)
            assert line.shops() == {"north": (2, 3)}
        else:
            break
    filler.unlink()
    line.send(4)
    while sum(c["records"] for c in line.checkpoints()) < 4:
        line.run().ok()
    assert line.shops() == {"north": (4, 10)}
    assert line.shops("--checkpoint", "1") == {"north": (2, 3)}


@pytest.fixture(scope="module")
def whole(make_line: MakeLine) -> BadInputPipeline:
    """A line with two checkpoints."""
    line = make_line("damaged")
    for amounts in ((1, 2), (3,)):
        line.send(*amounts)
        line.run().ok()
    return line


@pytest.mark.parametrize("place", [0.2, 0.5, 0.9])
def test_a_manifest_with_a_flipped_byte_is_named_on_the_next_read(whole: BadInputPipeline, place: float) -> None:
    newest = whole.manifests()[-1]
    key = newest.relative_to(whole.tidemark.warehouse / whole.name)
    sound = newest.read_bytes()
    at = int(len(sound) * place)
    print(f"seed {SEED}: byte {at} of {key}")
    newest.write_bytes(sound[:at] + bytes([sound[at] ^ 0x01]) + sound[at + 1 :])
    try:
        before = whole.tidemark.objects(whole.name)
        for arguments in (("checkpoint", "list"), ("checkpoint", "abort"), ("run",)):
            whole.tidemark(*arguments, whole.name, "--json").failed(1, "object damaged", str(key))
        whole.tidemark("state", "show", whole.name, "shops", "--json").failed(1, "object damaged", str(key))
        whole.tidemark("checkpoint", "show", whole.name, "2", "--json").failed(1, "object damaged", str(key))
        # An older restore point is intact, as the message says.
        assert whole.shops("--checkpoint", "1") == {"north": (2, 3)}
        assert whole.tidemark.objects(whole.name) == before
    finally:
        newest.write_bytes(sound)
    assert whole.shops() == {"north": (3, 6)}


@pytest.mark.parametrize("damage", [b"", b"{", b"null", b"\xff" * 40], ids=["empty", "torn", "null", "garbage"])
def test_a_torn_manifest_is_named(whole: BadInputPipeline, damage: bytes) -> None:
    newest = whole.manifests()[-1]
    sound = newest.read_bytes()
    newest.write_bytes(damage)
    try:
        whole.tidemark("checkpoint", "list", whole.name).failed(1, "object damaged", newest.name)
    finally:
        newest.write_bytes(sound)


def test_a_damaged_plan_and_a_damaged_outcome_are_named_before_anything_is_written(whole: BadInputPipeline) -> None:
    whole.send(4)
    whole.crash("read:before")
    plans = whole.tidemark.warehouse / whole.name / "plans"
    newest = max(plans.rglob("*.json"), key=lambda p: (p.stat().st_mtime_ns, p.name))
    plan = max((p for p in plans.rglob("*.json") if "outcome" not in p.name), key=lambda p: p.stat().st_mtime_ns)
    assert "outcome" in newest.name
    for damaged in (plan, newest):
        sound = damaged.read_bytes()
        damaged.write_bytes(sound.replace(b'"', b"'", 1))
        before = whole.tidemark.objects(whole.name)
        whole.run().failed(1, "object damaged", damaged.name)
        assert whole.tidemark.objects(whole.name) == before
        damaged.write_bytes(sound)
    assert whole.run().ok().json["records"] == 1
    assert whole.shops() == {"north": (4, 10)}


def test_a_data_file_that_is_gone_is_named(whole: BadInputPipeline) -> None:
    files = sorted(
        (whole.tidemark.warehouse / whole.name / "state").rglob("*.parquet"), key=lambda p: p.stat().st_mtime
    )
    newest = files[-1]
    sound = newest.read_bytes()
    newest.unlink()
    try:
        whole.tidemark("state", "show", whole.name, "shops", "--json").failed(1, newest.name)
        assert whole.shops("--checkpoint", "1") == {"north": (2, 3)}
    finally:
        newest.write_bytes(sound)


def _failed_by_the_disk(answer: Answer) -> None:
    answer.failed(1, "Next: ")
    assert "No space left on device" in answer.err or "Disk quota" in answer.err, answer.err


def _fill(filler: Path, *, keep: int) -> None:
    """Fills the disk up to `keep` bytes."""
    filler.unlink(missing_ok=True)
    left = os.statvfs(filler.parent)
    filler.write_bytes(b"\0" * (left.f_bavail * left.f_frsize - keep))


def _remount(where: Path, how: str) -> None:
    subprocess.run([MOUNT, "-o", f"remount,{how}", str(where)], check=True)
