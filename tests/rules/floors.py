"""Who may import whom, and who may read a clock: the table of floors, as rules."""

import ast
import re
import sys
from collections.abc import Iterator

from tests.rules.source import AUTHOR_FLOOR, ENTRY_FLOOR, FLOORS, ROOMS, UNDECLARED, Finding, Module, dotted, floor_of

BLIND_SIBLINGS = {("engine", "adapters"), ("adapters", "engine")}
STACK_STARTERS = {("cli", "stack")}
"""`up down status logs doctor` are the stack's own verbs, and the command line is where they are typed."""
TESTING_MAY = ("tidemark.adapters.memory", "tidemark.engine.job")
"""`testing` runs the real order of steps over the in-memory twins, and nothing else of floor 3."""

HOMES: dict[str, tuple[str, ...]] = {
    "pyspark": ("tidemark.engine", "tidemark.formats"),
    "delta": ("tidemark.engine",),
    "airflow": ("tidemark.airflow", "plugins"),
    "boto3": ("tidemark.adapters",),
    "botocore": ("tidemark.adapters",),
    "great_expectations": ("tidemark.engine", "pipelines"),
}
"""Outside packages that one place may import, at module level or inside a function."""

LOADED_LATE = ("formats",)
"""Folders of floor 0 whose functions may import outside packages: importing a format must not load Spark or Avro."""

WORLDS = {"boto3": "s3", "botocore": "s3", "pyarrow": None, "structlog": None, "tenacity": None, "orjson": None}
"""Outside packages of one world count once; formats and helpers (None) are no world."""

CLOCKS = re.compile(
    r"time\.(time|time_ns|ctime|localtime|gmtime)|datetime\.(datetime\.)?(now|utcnow|today)|(datetime\.)?date\.today"
    r"|uuid\.uuid[1-8]|uuid[14]|os\.urandom|os\.getrandom|(random|secrets)(\..*)?"
)


def imports(module: Module) -> Iterator[tuple[int, str]]:
    """Every dotted name that is imported, wherever the statement stands, with its line."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, node)
            if base == "tidemark":
                # A folder or module of ours stands for itself; every other name is one of the public names.
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
    return f"tidemark.{name}" if name in FLOORS else "tidemark"


def upward_imports(module: Module) -> list[Finding]:
    """Imports that do not go down: a higher floor, a blind sibling, or floor 2 seen from floor 3."""
    if module.name == "tidemark":
        return []  # the lazy root names everything and imports nothing
    if module.floor == UNDECLARED:
        return [Finding(1, f"{module.folder} stands on no floor")]
    found = []
    for line, name in imports(module):
        if name.split(".")[0] in ("tidemark", "pipelines", "dags", "spark_jobs", "plugins"):
            problem = _misdirected(module, name)
            if problem:
                found.append(Finding(line, f"floor {module.floor} imports {name}: {problem}"))
    return found


def _misdirected(module: Module, name: str) -> str | None:
    own, its = module.floor, floor_of(name)
    target = Module(name, "").folder
    if own == AUTHOR_FLOOR:
        return _beyond_author(module, name)
    if target == module.folder:
        return _upstairs(module, name)
    if its > own:
        return f"that is floor {its}"
    if (module.folder, target) in BLIND_SIBLINGS:
        return "engine and adapters are blind to each other"
    if own == ENTRY_FLOOR == its and (module.folder, target) not in STACK_STARTERS:
        return "entry points are blind to each other"
    if own == 3 and its == 2:
        return "floor 3 knows floors 0 and 1 only"
    if module.folder == "testing" and its == 3 and not name.startswith(TESTING_MAY):
        return "testing takes the memory adapters only"
    return None


def _upstairs(module: Module, name: str) -> str | None:
    rooms = ROOMS.get(module.folder)
    if rooms is None or module.name.count(".") == 1:
        return None
    own, its = (n.split(".")[2] for n in (module.name, name + "."))
    if own not in rooms:
        return f"{own} is no room of {module.folder}"
    return f"{its} is no room below {own}" if its not in rooms[: rooms.index(own) + 1] else None


def _beyond_author(module: Module, name: str) -> str | None:
    public = name == "tidemark" or name in ("tidemark.formats", "tidemark.state", "tidemark.testing")
    if module.folder == "pipelines":
        allowed = public or name.startswith("pipelines.")
    else:
        allowed = public or name.startswith(("pipelines.", "tidemark.airflow"))
    return None if allowed else "only public names are for authors"


def homeless_imports(module: Module) -> list[Finding]:
    """Outside packages imported out of their home; anything but the standard library below floor 3.

    From floor 4 upwards a signature may name a foreign type (`read_state` takes a SparkSession) where only type
    checkers import it.
    """
    found = []
    types_only = _guarded_lines(module) if module.floor >= 4 else set()
    late = _guarded_lines(module) | _lines_of_functions(module) if module.folder in LOADED_LATE else set()
    for line, name in imports(module):
        if line in types_only:
            continue
        package = name.split(".")[0]
        home = HOMES.get(package)
        if home is not None and not (module.name + ".").startswith(tuple(f"{h}." for h in home)):
            found.append(Finding(line, f"{package} is imported outside {' and '.join(home)}"))
        elif (
            0 <= module.floor <= 2
            and line not in late
            and package != "tidemark"
            and package not in sys.stdlib_module_names
        ):
            found.append(Finding(line, f"floor {module.floor} imports {package}"))
    return found


def _guarded_lines(module: Module) -> set[int]:
    guards = (n for n in ast.walk(module.tree) if isinstance(n, ast.If) and dotted(n.test) == "TYPE_CHECKING")
    return {line for guard in guards for n in guard.body for line in range(n.lineno, (n.end_lineno or n.lineno) + 1)}


def _lines_of_functions(module: Module) -> set[int]:
    functions = (n for n in ast.walk(module.tree) if isinstance(n, ast.FunctionDef))
    return {line for f in functions for n in f.body for line in range(n.lineno, (n.end_lineno or n.lineno) + 1)}


def several_worlds(module: Module) -> list[Finding]:
    """An adapter file that talks to more than one outside world."""
    if module.folder != "adapters":
        return []
    seen: dict[str, int] = {}
    for line, name in imports(module):
        package = name.split(".")[0]
        world = WORLDS.get(package, package)
        if world is not None and package != "tidemark" and package not in sys.stdlib_module_names:
            seen.setdefault(world, line)
    return [] if len(seen) <= 1 else [Finding(max(seen.values()), f"it imports {', '.join(sorted(seen))}")]


def clocks_and_chance(module: Module) -> list[Finding]:
    """Wall clock or randomness below the entry floors (settings and the context may; they hand both down)."""
    if not 0 <= module.floor < 4:
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
    bound = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            bound |= {
                a.asname or a.name.split(".")[0]: a.name if a.asname else a.name.split(".")[0] for a in node.names
            }
        elif isinstance(node, ast.ImportFrom) and not node.level:
            bound |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return bound
