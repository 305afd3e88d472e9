"""Which module may import which, and which may read a clock: the table of `rooms`, as rules."""

import ast
import re
import sys
from collections.abc import Iterator

from tests.rules.rooms import ONE_ROOM, STANDS_ON, room_of, rooms_below
from tests.rules.source import Finding, Module, dotted

HOMES: dict[str, tuple[str, ...]] = {
    "pyspark": ("tidemark.engine", "tidemark.formats"),
    "delta": ("tidemark.engine",),
    "airflow": ("tidemark.airflow", "plugins"),
    "boto3": ("tidemark.storage", "tidemark.tables", "tidemark.transfer"),
    "botocore": ("tidemark.storage", "tidemark.tables", "tidemark.transfer"),
    "great_expectations": ("tidemark.engine", "tidemark.testing", "pipelines"),
    "openlineage": ("tidemark.telemetry",),
}
"""Third-party packages, and the only places that may import each, at module level or inside a function."""

LOADED_LATE = ("formats",)
"""Pure rooms whose functions may import third-party packages, so that importing a format loads no Spark or Avro."""

WORLDS = {
    "boto3": "s3", "botocore": "s3", "openlineage": None, "orjson": None, "pyarrow": None, "structlog": None,
    "tenacity": None,
}  # fmt: skip
"""The outside world that a package talks to. Two packages of one world count once; None marks formats and helpers."""

OURS = ("tidemark", "devstack", "pipelines", "dags", "spark_jobs", "plugins")
PURE = (*rooms_below("coordinator.retention"), "coordinator.retention", "processing", "answers")
"""Rooms that may import only the standard library and Tidemark."""
WORLDLY = ("kafka", "storage", "tables", "readers", "transfer", "telemetry")
DETERMINED = {*PURE, *WORLDLY, "engine", "formats", "testing.twin"} - {"telemetry"}

CLOCKS = re.compile(
    r"time\.(time|time_ns|ctime|localtime|gmtime)|datetime\.(datetime\.)?(now|utcnow|today)|(datetime\.)?date\.today"
    r"|uuid\.uuid[1-8]|uuid[14]|os\.urandom|os\.getrandom|(random|secrets)(\..*)?"
)


def imports(module: Module) -> Iterator[tuple[int, str]]:
    """Every imported dotted name with its line, at module level or inside a function."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, node)
            if base == "tidemark":
                # `from tidemark import kafka` imports a folder or module; every other name is a public name.
                yield from ((node.lineno, _root_name(alias.name)) for alias in node.names)
            else:
                yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and dotted(node.func) in ("import_module", "importlib.import_module"):
            named = [a.value for a in node.args[:1] if isinstance(a, ast.Constant)]
            yield from ((node.lineno, str(name)) for name in named)


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    package = parts if module.is_package else parts[:-1]
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])


def _root_name(name: str) -> str:
    """`tidemark.<name>` for a folder or module of the package, `tidemark` for one of its public names."""
    is_ours = name in ONE_ROOM or any(room.split(".")[0] == name for room in STANDS_ON)
    return f"tidemark.{name}" if is_ours else "tidemark"


def upward_imports(module: Module) -> list[Finding]:
    """Imports from rooms that are not below the module's own room."""
    if module.name == "tidemark":
        return []  # the lazy root lists every public name and imports none of them
    if module.room not in STANDS_ON:
        return [Finding(1, f"{module.room} is not listed in tests/rules/rooms.py")]
    found = []
    for line, name in imports(module):
        if name.split(".")[0] in OURS:
            problem = _misdirected(module, name)
            if problem:
                found.append(Finding(line, f"{module.room} imports {name}: {problem}"))
    return found


def _misdirected(module: Module, name: str) -> str | None:
    if module.room in ("pipelines", "dags"):
        return _beyond_author(module, name)
    target = room_of(name)
    if target == module.room or target in rooms_below(module.room):
        return None
    return f"{target} is not below it"


def _beyond_author(module: Module, name: str) -> str | None:
    public = name in ("tidemark", *(f"tidemark.{part}" for part in ("formats", "kafka", "state", "targets", "testing")))
    allowed = ("pipelines.",) if module.room == "pipelines" else ("pipelines.", "tidemark.airflow")
    return None if public or name.startswith(allowed) else "pipelines and DAGs may import public names only"


def homeless_imports(module: Module) -> list[Finding]:
    """Third-party packages imported outside their home, and any third-party package imported in a pure room.

    Rooms that are not below the context may import a third-party type under `TYPE_CHECKING` for their signatures:
    `read_state` takes a SparkSession.
    """
    found = []
    types_only = set() if module.room in rooms_below("context") else _guarded_lines(module)
    late = _guarded_lines(module) | _lines_of_functions(module) if module.room in LOADED_LATE else set()
    for line, name in imports(module):
        if line in types_only:
            continue
        package = name.split(".")[0]
        home = HOMES.get(package)
        if home is not None and not (module.name + ".").startswith(tuple(f"{h}." for h in home)):
            found.append(Finding(line, f"{package} is imported outside {' and '.join(home)}"))
        elif (
            module.room in PURE
            and line not in late
            and package != "tidemark"
            and package not in sys.stdlib_module_names
        ):
            found.append(Finding(line, f"{module.room} is a pure room but imports {package}"))
    return found


def _guarded_lines(module: Module) -> set[int]:
    guards = (n for n in ast.walk(module.tree) if isinstance(n, ast.If) and dotted(n.test) == "TYPE_CHECKING")
    return {line for guard in guards for n in guard.body for line in range(n.lineno, (n.end_lineno or n.lineno) + 1)}


def _lines_of_functions(module: Module) -> set[int]:
    functions = (n for n in ast.walk(module.tree) if isinstance(n, ast.FunctionDef))
    return {line for f in functions for n in f.body for line in range(n.lineno, (n.end_lineno or n.lineno) + 1)}


def several_worlds(module: Module) -> list[Finding]:
    """Files of an outer room that talk to more than one outside world, such as Kafka and S3."""
    if module.room not in WORLDLY:
        return []
    seen: dict[str, int] = {}
    for line, name in imports(module):
        package = name.split(".")[0]
        world = WORLDS.get(package, package)
        if world is not None and package != "tidemark" and package not in sys.stdlib_module_names:
            seen.setdefault(world, line)
    return [] if len(seen) <= 1 else [Finding(max(seen.values()), f"it imports {', '.join(sorted(seen))}")]


def clocks_and_chance(module: Module) -> list[Finding]:
    """Reads of the wall clock or of randomness below the context, which passes both down as arguments."""
    if module.room not in DETERMINED:
        return []
    renamed = _bound_names(module)
    found = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            head, dot, rest = (dotted(node) or "").partition(".")
            name = renamed.get(head, "") + dot + rest
            if head in renamed and CLOCKS.fullmatch(name):
                found.append(Finding(node.lineno, f"{name} is read"))
    return found


def _bound_names(module: Module) -> dict[str, str]:
    bound: dict[str, str] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            bound |= {
                a.asname or a.name.split(".")[0]: a.name if a.asname else a.name.split(".")[0] for a in node.names
            }
        elif isinstance(node, ast.ImportFrom) and not node.level:
            bound |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return bound
