"""Tests of the architecture: rooms, homes of third-party packages, sizes, names, docstrings, clocks.

Every rule is a pure function of `tests.rules`. One test per rule lists all of its findings; further tests prove that
each rule catches a planted violation and accepts a clean file.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.rules import imports, shape, whole
from tests.rules.rooms import STANDS_ON, rooms_below
from tests.rules.source import Finding, Module

ROOT = Path(__file__).resolve().parents[1]
Rule = Callable[[Module], list[Finding]]


def _modules(*folders: str) -> list[Module]:
    found = []
    for folder in folders:
        base = ROOT / folder
        above = ROOT / "include" if folder.startswith("include") else ROOT
        for path in sorted(base.rglob("*.py")):
            parts = path.relative_to(above).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            found.append(Module(name, path.read_text(encoding="utf-8"), is_package))
    return found


PACKAGE = _modules("include/tidemark")
ENTRIES = _modules("include/devstack", "spark_jobs", "plugins")
AUTHORS = _modules("include/pipelines", "dags")
EVERYTHING = [*PACKAGE, *ENTRIES, *AUTHORS]
TESTS = _modules("tests")


@dataclass(frozen=True, slots=True)
class Held:
    """A rule, the files that it covers, and the remedy for a finding."""

    rule: Rule
    modules: Sequence[Module]
    remedy: str


COORDINATOR = [m for m in PACKAGE if m.folder == "coordinator"]
RULES = [
    Held(imports.upward_imports, EVERYTHING, "pass the value as an argument, or declare what you need in ports."),
    Held(imports.homeless_imports, EVERYTHING, "move the call into the package's home, behind a port."),
    Held(imports.several_worlds, PACKAGE, "split it into two modules and let the context join them."),
    Held(imports.clocks_and_chance, PACKAGE, "take a ports.Clock or ports.WriteIds; the context passes the real one."),
    Held(shape.long_files, EVERYTHING, "split it by noun; give each half its own docstring."),
    Held(shape.dag_logic, _modules("dags"), "move logic to tidemark.airflow, declarations to pipelines."),
    Held(shape.entry_point_logic, _modules("spark_jobs"), "move the work to tidemark.operations or tidemark.engine."),
    Held(shape.long_functions, EVERYTHING, "extract a step into a function and name it."),
    Held(shape.many_arguments, EVERYTHING, "group related arguments in a frozen dataclass."),
    Held(shape.many_bases, EVERYTHING, "replace bases with functions of a context, or with objects that it holds."),
    Held(shape.large_context, PACKAGE, "move a part of it to the room that it belongs to."),
    Held(shape.ignored_types, EVERYTHING, "name the type; for an untyped package add an override to pyproject.toml."),
    Held(shape.loose_types, COORDINATOR, "name the type, or use `object` and narrow it."),
    Held(shape.swallowed_errors, EVERYTHING, "name the class and handle it, or use contextlib.suppress with a reason."),
    Held(shape.banned_names, EVERYTHING, "use a noun or a verb of docs/glossary.md."),
    Held(shape.undocumented, EVERYTHING, "say which code calls it, when, and how it fails."),
]


@pytest.mark.parametrize("held", RULES, ids=lambda held: held.rule.__name__)
def test_every_file_keeps_the_rule(held: Held) -> None:
    found = [f"  {m.name}:{f.line}: {f.what}" for m in held.modules for f in held.rule(m)]
    assert not found, "\n" + "\n".join(found) + f"\nDo: {held.remedy}"


def test_every_room_of_the_picture_exists() -> None:
    rooms = {m.room for m in EVERYTHING} - {"tidemark"}
    assert set(STANDS_ON) == rooms, f"tests/rules/rooms.py differs: {sorted(set(STANDS_ON) ^ rooms)}"


def test_the_picture_has_no_circle() -> None:
    assert all(room not in rooms_below(room) for room in STANDS_ON)


def _only_gets_shorter(found: list[str], allowed: int, remedy: str) -> None:
    listed = "\n".join(f"  {line}" for line in found)
    assert len(found) <= allowed, f"{len(found)} findings, allowed are {allowed}:\n{listed}\nDo: {remedy}"
    assert len(found) == allowed, f"only {len(found)} are left: lower the number in this test"


def test_no_folder_is_crowded() -> None:
    _only_gets_shorter(whole.crowded_folders(PACKAGE), 0, "split it by topic.")


def test_small_files_have_two_importers() -> None:
    _only_gets_shorter(whole.lonely_files(PACKAGE), 0, "merge it into the file that imports it.")


def test_file_names_have_one_meaning() -> None:
    _only_gets_shorter(whole.repeated_stems(PACKAGE), 0, "rename one of them after its noun.")


def test_class_names_have_one_meaning() -> None:
    _only_gets_shorter(whole.repeated_classes(PACKAGE), 0, "rename one of them after its noun.")


def test_helpers_of_tests_have_one_vocabulary() -> None:
    found = [*whole.repeated_helpers(TESTS), *whole.retired_classes(TESTS), *whole.support_that_leans_on_tests(TESTS)]
    remedy = "move shared helpers to tests/support; name each module and class after its one meaning."
    assert not found, "\n" + "\n".join(found) + f"\nDo: {remedy}"


def test_the_vocabulary_of_tests_catches_a_planted_violation() -> None:
    twice = [Module("tests.engine.oracle", ""), Module("tests.support.oracle", "")]
    assert whole.repeated_helpers(twice) == ["oracle: tests.engine.oracle, tests.support.oracle"]
    apart = ["tests.e2e.dags.trips", "tests.airflow.pipelines.trips", "tests.a.test_b", "tests.b.test_b", "tests.trips"]
    assert whole.repeated_helpers([Module(name, "") for name in apart]) == []
    assert whole.retired_classes([Module("tests.x", "def f():\n    class World: ...")]) == ["tests.x:2: World"]
    leaning = Module("tests.support.x", "from tests.engine.y import z\nfrom tests.airflow.pipelines.trips import trips")
    assert whole.support_that_leans_on_tests([leaning]) == ["tests.support.x:1: tests.engine.y.z"]


LONG = "def f():\n" + "    x = 1\n" * 60
ADAPTER = "tidemark.kafka.log"
PLANNER = "tidemark.coordinator.plans.planner"
PLANTED: list[tuple[Rule, str, str]] = [
    (imports.upward_imports, "tidemark.model.checkpoint.plan", "from tidemark.ports import Clock"),
    (
        imports.upward_imports,
        "tidemark.model.checkpoint.plan",
        "def f():\n    import tidemark.coordinator.plans.planner",
    ),
    (imports.upward_imports, "tidemark.state", "from tidemark import Pipeline"),
    (imports.upward_imports, "tidemark.model.checkpoint.plan", "from ..ports import Clock"),
    (imports.upward_imports, PLANNER, "from tidemark import kafka"),
    (imports.upward_imports, PLANNER, "import_module('tidemark.context')"),
    (imports.upward_imports, PLANNER, "from tidemark.coordinator.checkpoints.attempts import Attempts"),
    (imports.upward_imports, "tidemark.coordinator.novelty", "from tidemark.coordinator.records import objects"),
    (imports.upward_imports, "tidemark.engine.fold", "from tidemark.kafka import log"),
    (imports.upward_imports, ADAPTER, "from tidemark.engine import fold"),
    (imports.upward_imports, ADAPTER, "from tidemark.coordinator.plans import planner"),
    (imports.upward_imports, "tidemark.testing", "from tidemark.kafka.log import KafkaLog"),
    (imports.upward_imports, "tidemark.testing", "from tidemark.engine.session.session import session"),
    (imports.upward_imports, "tidemark.cli.main", "from devstack import control"),
    (imports.upward_imports, "tidemark.cli.main", "from tidemark.airflow import dag"),
    (imports.upward_imports, "tidemark.context", "from tidemark.cli import main"),
    (imports.upward_imports, "tidemark.novelty", "import os"),
    (imports.upward_imports, "pipelines.flights", "from tidemark.model.checkpoint.plan import Slot"),
    (imports.upward_imports, "dags.flights", "from tidemark.context import Context"),
    (imports.homeless_imports, PLANNER, "def f():\n    from pyspark.sql import functions"),
    (imports.homeless_imports, "tidemark.cli.main", "import airflow.sdk"),
    (imports.homeless_imports, "tidemark.enginery", "import pyspark"),
    (imports.homeless_imports, "tidemark.settings", "import boto3"),
    (imports.homeless_imports, PLANNER, "if TYPE_CHECKING:\n    import pyspark"),
    (imports.homeless_imports, "tidemark.reading", "if TYPE_CHECKING:\n    import os\nelse:\n    import pyspark"),
    (imports.homeless_imports, "tidemark.model.checkpoint.plan", "import pydantic"),
    (imports.homeless_imports, "tidemark.ports", "import structlog"),
    (imports.several_worlds, ADAPTER, "import boto3\ndef f():\n    import confluent_kafka"),
    (imports.clocks_and_chance, "tidemark.model.checkpoint.plan", "import time\nNOW = time.time()"),
    (imports.clocks_and_chance, ADAPTER, "from time import time as now\nnow()"),
    (imports.clocks_and_chance, ADAPTER, "from datetime import UTC, datetime\ndatetime.now(UTC)"),
    (imports.clocks_and_chance, ADAPTER, "import datetime as d\nd.date.today()"),
    (imports.clocks_and_chance, ADAPTER, "from dataclasses import field\nfrom uuid import uuid4\nfield(uuid4)"),
    (imports.clocks_and_chance, "tidemark.coordinator.checkpoints.job", "from random import choice\nchoice([1])"),
    (imports.clocks_and_chance, "tidemark.coordinator.checkpoints.job", "import secrets\nsecrets.token_hex()"),
    (shape.long_files, "tidemark.x", "x = 1\n" * 501),
    (shape.long_functions, "tidemark.x", LONG),
    (shape.long_functions, "tidemark.x", "class A:\n    @a\n    async def f(self):\n" + "        x = 1\n" * 59),
    (shape.many_arguments, "tidemark.x", "def f(self, a, /, b, c, d, *, e, f, g): ..."),
    (shape.many_bases, "tidemark.x", "class A(B, C, D, E): ..."),
    (shape.ignored_types, "tidemark.x", "x = 1  # type:" + " ignore[assignment]"),
    (shape.loose_types, "tidemark.coordinator.plans.x", "import typing\ndef f(x: typing.Any): ..."),
    (shape.loose_types, "tidemark.coordinator.plans.x", "def f() -> dict[str, Any]: ..."),
    (shape.swallowed_errors, "tidemark.x", "try:\n    f()\nexcept:\n    g()"),
    (shape.swallowed_errors, "tidemark.x", "try:\n    f()\nexcept ValueError:\n    pass"),
    (shape.swallowed_errors, "tidemark.x", "try:\n    f()\nexcept ValueError:\n    ..."),
    (shape.banned_names, "tidemark.x_utils", ""),
    (shape.banned_names, "tidemark.x", "class CheckpointManager: ..."),
    (shape.banned_names, "tidemark.x", "def common_part(): ..."),
    (shape.banned_names, "tidemark.x", "def _handle_error(): ..."),
    (shape.banned_names, "tidemark.x", "def process_all_rows(): ..."),
    (shape.banned_names, "tidemark.engine.x", "class A:\n    def run(self): ..."),
    (shape.undocumented, "tidemark.x", "x = 1"),
    (shape.undocumented, "tidemark.x", '"""X."""\nclass A:\n    """A."""\n    def f(self): ...'),
]

CLEAN: list[tuple[str, str]] = [
    (PLANNER, "from tidemark.model.checkpoint import plan\nfrom tidemark.coordinator.records import objects"),
    ("tidemark.context", "from tidemark.kafka import log\nfrom tidemark.engine import compute"),
    (
        "tidemark.testing",
        "from tidemark.testing.twin.memory import x\nfrom tidemark.coordinator.checkpoints.job import y",
    ),
    ("tidemark.cli.main", "from tidemark.context import x\nfrom tidemark.settings import load_settings"),
    ("pipelines.flights", "from tidemark import Fold, state\ndef gate():\n    import great_expectations"),
    ("dags.flights", "from pipelines.flights import flights\nfrom tidemark.airflow import checkpoint_dag"),
    ("tidemark.tables.delta_tables", "import deltalake\nimport pyarrow\nfrom time import monotonic\nmonotonic()"),
    ("tidemark.settings", "import time\ntime.time()"),
    ("tidemark.reading", "if TYPE_CHECKING:\n    from pyspark.sql import SparkSession"),
    ("tidemark.x", "class A:\n    @property\n    def handle(self): ...\ndef run_columns(): ..."),
    ("tidemark.cli.x", "def run(self, a, b, c, d, e, f): ..."),
]


@pytest.mark.parametrize(("rule", "name", "source"), PLANTED, ids=lambda v: getattr(v, "__name__", None))
def test_the_rule_catches_a_planted_violation(rule: Rule, name: str, source: str) -> None:
    assert rule(Module(name, source)), f"{rule.__name__} let this pass in {name}:\n{source}"


@pytest.mark.parametrize(("name", "source"), CLEAN, ids=[n for n, _ in CLEAN])
def test_the_rules_leave_a_clean_file_alone(name: str, source: str) -> None:
    every = {rule for rule, _, _ in PLANTED} - {shape.undocumented}
    known = {"tidemark.x": every - {imports.upward_imports}}
    for rule in known.get(name, every):
        assert rule(Module(name, source)) == [], f"{rule.__name__} refuses a clean file"
