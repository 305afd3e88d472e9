"""The architecture, held by tests: floors, homes of outside packages, sizes, names, docstrings, clocks.

Every rule is a pure function of `tests.rules`; here each is applied to every file, and each is shown to catch what it
is there to catch and to leave a clean file alone.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rules import floors, shape
from tests.rules.source import FLOORS, Finding, Module

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
ENTRIES = _modules("spark_jobs", "plugins")
AUTHORS = _modules("include/pipelines", "dags")
EVERYTHING = [*PACKAGE, *ENTRIES, *AUTHORS]


def _refuse(rule: Rule, module: Module, remedy: str) -> None:
    findings = rule(module)
    lines = "\n".join(f"  {module.name}:{f.line}: {f.what}" for f in findings)
    assert not findings, f"\n{lines}\nDo: {remedy}"


def _each(modules: list[Module]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("module", modules, ids=lambda m: m.name)


@_each(EVERYTHING)
def test_imports_go_down_only(module: Module) -> None:
    _refuse(
        floors.upward_imports,
        module,
        "pass the value as an argument, or declare what you need as a Protocol in ports and let the context bind it;"
        " a new folder gets its floor in tests/rules/source.py.",
    )


@_each(EVERYTHING)
def test_outside_packages_stay_at_home(module: Module) -> None:
    _refuse(floors.homeless_imports, module, "move the call into the package's home, behind a port.")


@_each([m for m in PACKAGE if m.folder == "adapters"])
def test_an_adapter_talks_to_one_outside_world(module: Module) -> None:
    _refuse(floors.several_worlds, module, "make it two adapters and join them in the context.")


@_each([m for m in PACKAGE if m.floor < 4])
def test_time_and_chance_arrive_as_arguments(module: Module) -> None:
    _refuse(
        floors.clocks_and_chance, module, "take a ports.Clock or ports.WriteIds and let the context pass the real one."
    )


@_each(EVERYTHING)
def test_files_are_short(module: Module) -> None:
    _refuse(shape.long_files, module, "split it by noun; each half gets a docstring of its own.")


@_each(_modules("dags"))
def test_dag_files_hold_no_logic(module: Module) -> None:
    _refuse(lambda m: shape.long_files(m, 25), module, "move logic to tidemark.airflow, declarations to pipelines.")


@_each(_modules("spark_jobs"))
def test_spark_entry_points_only_wire(module: Module) -> None:
    _refuse(lambda m: shape.long_files(m, 40), module, "move the work to tidemark.operations or tidemark.engine.")


@_each(EVERYTHING)
def test_functions_are_short(module: Module) -> None:
    _refuse(shape.long_functions, module, "name a step of it and call that.")


@_each(EVERYTHING)
def test_functions_take_few_arguments(module: Module) -> None:
    _refuse(shape.many_arguments, module, "join what belongs together in a frozen dataclass.")


def test_no_class_is_put_together_of_mixins() -> None:
    found = [f"{m.name}:{f.line}: {f.what}" for m in EVERYTHING for f in shape.many_bases(m)]
    assert not found, "make the slices functions of a context, or objects that it holds."


def test_the_context_only_joins_parts() -> None:
    (context,) = (m for m in PACKAGE if m.name == "tidemark.context")
    assert not shape.long_files(context, 301), "move a part to the folder of what it is a part of."


@_each(EVERYTHING)
def test_the_type_checker_is_never_switched_off(module: Module) -> None:
    _refuse(shape.ignored_types, module, "say the type; for an untyped package add an override to pyproject.toml.")


@_each([m for m in PACKAGE if m.folder == "coordinator"])
def test_the_coordinator_is_typed_throughout(module: Module) -> None:
    _refuse(shape.loose_types, module, "name the type, or `object` and narrow it.")


@_each(EVERYTHING)
def test_no_error_is_swallowed(module: Module) -> None:
    _refuse(shape.swallowed_errors, module, "name the class and act on it, or use contextlib.suppress with the reason.")


@_each(EVERYTHING)
def test_names_say_something(module: Module) -> None:
    _refuse(shape.banned_names, module, "take a noun or a verb of docs/glossary.md.")


@_each(EVERYTHING)
def test_everything_public_is_documented(module: Module) -> None:
    _refuse(shape.undocumented, module, "say who calls it, when, and what breaks.")


def test_every_folder_of_the_package_has_a_floor() -> None:
    here = {p.stem for p in (ROOT / "include/tidemark").iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    assert here - {"__init__"} <= set(FLOORS), "enter the new folder in tests/rules/source.py"


LONG = "def f():\n" + "    x = 1\n" * 60
ADAPTER = "tidemark.adapters.kafka"
PLANNER = "tidemark.coordinator.plans.planner"
PLANTED: list[tuple[Rule, str, str]] = [
    (floors.upward_imports, "tidemark.model.plan", "from tidemark.ports import Clock"),
    (floors.upward_imports, "tidemark.model.plan", "def f():\n    import tidemark.coordinator.plans.planner"),
    (floors.upward_imports, "tidemark.state", "from tidemark import Pipeline"),
    (floors.upward_imports, "tidemark.model.plan", "from ..ports import Clock"),
    (floors.upward_imports, PLANNER, "from tidemark import adapters"),
    (floors.upward_imports, PLANNER, "import_module('tidemark.context')"),
    (floors.upward_imports, PLANNER, "from tidemark.coordinator.checkpoints.attempts import Attempts"),
    (floors.upward_imports, "tidemark.coordinator.novelty", "from tidemark.coordinator.records import objects"),
    (floors.upward_imports, "tidemark.engine.fold", "from tidemark.adapters import kafka"),
    (floors.upward_imports, ADAPTER, "from tidemark.engine import fold"),
    (floors.upward_imports, ADAPTER, "from tidemark.coordinator import planner"),
    (floors.upward_imports, "tidemark.testing", "from tidemark.adapters.kafka import KafkaLog"),
    (floors.upward_imports, "tidemark.testing", "from tidemark.engine.session import session"),
    (floors.upward_imports, "tidemark.stack.up", "from tidemark.cli import main"),
    (floors.upward_imports, "tidemark.cli.main", "from tidemark.airflow import dag"),
    (floors.upward_imports, "tidemark.context", "from tidemark.cli import main"),
    (floors.upward_imports, "tidemark.novelty", "import os"),
    (floors.upward_imports, "pipelines.flights", "from tidemark.model.plan import Slot"),
    (floors.upward_imports, "dags.flights", "from tidemark.context import Context"),
    (floors.homeless_imports, PLANNER, "def f():\n    from pyspark.sql import functions"),
    (floors.homeless_imports, "tidemark.cli.main", "import airflow.sdk"),
    (floors.homeless_imports, "tidemark.enginery", "import pyspark"),
    (floors.homeless_imports, "tidemark.settings", "import boto3"),
    (floors.homeless_imports, PLANNER, "if TYPE_CHECKING:\n    import pyspark"),
    (floors.homeless_imports, "tidemark.reading", "if TYPE_CHECKING:\n    import os\nelse:\n    import pyspark"),
    (floors.homeless_imports, "tidemark.model.plan", "import pydantic"),
    (floors.homeless_imports, "tidemark.ports", "import structlog"),
    (floors.several_worlds, ADAPTER, "import boto3\ndef f():\n    import confluent_kafka"),
    (floors.clocks_and_chance, "tidemark.model.plan", "import time\nNOW = time.time()"),
    (floors.clocks_and_chance, ADAPTER, "from time import time as now\nnow()"),
    (floors.clocks_and_chance, ADAPTER, "from datetime import UTC, datetime\ndatetime.now(UTC)"),
    (floors.clocks_and_chance, ADAPTER, "import datetime as d\nd.date.today()"),
    (floors.clocks_and_chance, ADAPTER, "from dataclasses import field\nfrom uuid import uuid4\nfield(uuid4)"),
    (floors.clocks_and_chance, "tidemark.coordinator.checkpoints.job", "from random import choice\nchoice([1])"),
    (floors.clocks_and_chance, "tidemark.coordinator.checkpoints.job", "import secrets\nsecrets.token_hex()"),
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
    (PLANNER, "from tidemark.model import plan\nfrom tidemark.coordinator.records import objects"),
    ("tidemark.context", "from tidemark.adapters import kafka\nfrom tidemark.engine import session"),
    ("tidemark.testing", "from tidemark.adapters.memory import x\nfrom tidemark.coordinator.checkpoints.job import y"),
    ("tidemark.cli.main", "from tidemark.stack import up\nfrom tidemark.settings import load_settings"),
    ("pipelines.flights", "from tidemark import Fold, state\ndef gate():\n    import great_expectations"),
    ("dags.flights", "from pipelines.flights import flights\nfrom tidemark.airflow import checkpoint_dag"),
    ("tidemark.adapters.delta_log", "import deltalake\nimport pyarrow\nfrom time import monotonic\nmonotonic()"),
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
    known = {"tidemark.x": every - {floors.upward_imports}}
    for rule in known.get(name, every):
        assert rule(Module(name, source)) == [], f"{rule.__name__} refuses a clean file"
