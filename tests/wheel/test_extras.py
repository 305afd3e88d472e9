"""What each extra of the wheel is enough for: nothing imports, `read` reads a warehouse, `cli` has the command."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden.answers import ANSWERS, PIPELINE, unpack_warehouse
from tests.support.wheels import (
    Installation,
    build_wheel,
    install_lowest,
    install_wheel,
    plain_environment,
    pythons,
)
from tidemark.extras import EXTRAS

pytestmark = pytest.mark.slow
RELEASE = Path(__file__).resolve().parents[1] / "golden" / "0.1.0"
OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"
READ = """
import json, sys, tidemark
history = tidemark.open({warehouse!r})[{pipeline!r}]
print(json.dumps(history.state("buyers").to_arrow().to_pylist(), default=str))
heavy = {{"pyspark", "airflow", "confluent_kafka", "great_expectations", "boto3"}}
assert not heavy & {{name.partition(".")[0] for name in sys.modules}}, "reading imports more than it needs"
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Installation]:
    """`installed("read", "3.12")`: a new environment with some extras."""

    def make(extras: str, version: str = OWN) -> Installation:
        return install_wheel(wheel, extras, tmp_path_factory.mktemp("venv") / "env", pythons()[version])

    return make


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return unpack_warehouse(RELEASE, tmp_path)


def test_the_wheel_alone_declares_pipelines_and_names_what_reading_needs(
    installed: Callable[..., Installation], tmp_path: Path
) -> None:
    bare = installed("")
    assert not {name.replace("_", "-") for name in EXTRAS} & bare.packages()
    declare = "from tidemark import Fold, KafkaSource, Pipeline, state"
    assert bare.run("python", "-c", declare).returncode == 0
    for command, package, extra in (
        (["bin/python", "-c", "import tidemark; tidemark.open('x')"], "deltalake", "read"),
        (["bin/tidemark", "checkpoint", "list", "shop"], "typer", "cli"),
    ):
        done = subprocess.run(
            [str(bare.folder / command[0]), *command[1:]], env=plain_environment(), cwd=tmp_path,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode, done.stdout
        wanted = [f"the package {package} is not installed", "Safe: nothing was read or written."]
        assert [line.rpartition("UsageError: ")[2] for line in done.stderr.splitlines()[-3:]] == [
            *wanted,
            f"Next: pip install 'tidemark[{extra}]'",
        ]


RIDES = """
from dataclasses import dataclass
from tidemark import Fold, KafkaSource, Pipeline, state

@dataclass(frozen=True)
class Ride:
    bus: str

class Bus(state.Keyed):
    rides: int = state.count()

rides = Pipeline(name="rides", source=KafkaSource("rides", Ride), operators=[Fold("buses", key_by="bus", state=Bus)])
"""


def test_a_run_that_cannot_send_its_events_names_the_extra(
    installed: Callable[..., Installation], tmp_path: Path
) -> None:
    shell = installed("cli")
    assert "openlineage-python" not in shell.packages()
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "rides.py").write_text(RIDES)
    done = subprocess.run(
        [str(shell.folder / "bin/tidemark"), "run", "rides"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env=plain_environment() | {"TIDEMARK_OPENLINEAGE": "file:events.jsonl"},
    )  # fmt: skip
    assert done.returncode, done.stdout
    assert [line.rpartition("UsageError: ")[2] for line in done.stderr.splitlines()[-3:]] == [
        "the package openlineage is not installed",
        "Safe: nothing was read or written.",
        "Next: pip install 'tidemark[openlineage]'",
    ]
    assert not (tmp_path / ".tidemark" / "warehouse").exists()


@pytest.mark.parametrize("version", sorted(pythons()))
def test_read_reads_a_warehouse_without_spark_and_airflow(
    version: str, installed: Callable[..., Installation], warehouse: Path
) -> None:
    reader = installed("read", version)
    assert not {"apache-airflow", "pyspark", "confluent-kafka", "typer"} & reader.packages()
    _assert_reads(reader, warehouse)


def test_the_lowest_versions_that_are_allowed_read_a_warehouse_too(
    wheel: Path, warehouse: Path, tmp_path: Path
) -> None:
    oldest = install_lowest(wheel, "cli", tmp_path / "env")
    _assert_reads(oldest, warehouse)
    # It exits with another code if anything is damaged.
    oldest.run("tidemark", "verify", PIPELINE, env={"TIDEMARK_WAREHOUSE": str(warehouse)})


def _assert_reads(reader: Installation, warehouse: Path) -> None:
    done = reader.run("python", "-c", READ.format(warehouse=str(warehouse), pipeline=PIPELINE))
    right = json.loads((RELEASE / ANSWERS).read_text())
    wanted = right[f"chk-{len(right)}"]["state"]["buyers"]
    found = {row["customer"]: row for row in json.loads(done.stdout)}
    assert {name: row["spent"] for name, row in found.items()} == {row["customer"]: row["spent"] for row in wanted}
    assert found, "an empty state would prove nothing"


def test_the_command_line_needs_neither_spark_nor_airflow(
    installed: Callable[..., Installation], warehouse: Path
) -> None:
    shell = installed("cli")
    assert not {"apache-airflow", "pyspark"} & shell.packages()
    env = {"TIDEMARK_WAREHOUSE": str(warehouse)}
    listed = json.loads(shell.run("tidemark", "checkpoint", "list", PIPELINE, "--json", env=env).stdout)
    assert {checkpoint["id"] for checkpoint in listed} == set(json.loads((RELEASE / ANSWERS).read_text()))
    assert "Usage" in shell.run("tidemark", "--help").stdout
