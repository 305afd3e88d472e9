"""Rules about a single file: its size, names, docstrings, types and exception handlers."""

import ast
import re
from collections.abc import Iterator

from tests.rules.source import Finding, Module, dotted

BANNED_WORDS = frozenset({"util", "utils", "common", "manager", "helper", "helpers", "misc"})
BANNED_VERBS = frozenset({"handle", "manage"})


def long_files(module: Module, limit: int = 500) -> list[Finding]:
    """A file of more than `limit` lines; the empty line after the last line break counts."""
    lines = module.source.count("\n") + 1
    return [Finding(limit + 1, f"{lines} lines, allowed are {limit}")] if lines > limit else []


def dag_logic(module: Module) -> list[Finding]:
    """A DAG file of more than 25 lines: it contains logic in addition to its parameters."""
    return long_files(module, 25)


def entry_point_logic(module: Module) -> list[Finding]:
    """A Spark entry point of more than 40 lines."""
    return long_files(module, 40)


def large_context(module: Module) -> list[Finding]:
    """A composition root of more than 300 lines."""
    return long_files(module, 301) if module.name == "tidemark.context" else []


def long_functions(module: Module, limit: int = 60) -> list[Finding]:
    """Functions of more than `limit` lines, including docstring and decorators."""
    found = []
    for f in _functions(module.tree):
        first = min([f.lineno, *(d.lineno for d in f.decorator_list)])
        lines = (f.end_lineno or f.lineno) - first + 1
        if lines > limit:
            found.append(Finding(f.lineno, f"{f.name} has {lines} lines, allowed are {limit}"))
    return found


def many_arguments(module: Module, limit: int = 6) -> list[Finding]:
    """Functions of more than `limit` arguments; `self` and `cls` do not count."""
    found = []
    for f in _functions(module.tree):
        named = [a.arg for a in (*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs)]
        named = named[1:] if named[:1] in (["self"], ["cls"]) else named
        if len(named) > limit:
            found.append(Finding(f.lineno, f"{f.name} has {len(named)} arguments, allowed are {limit}"))
    return found


def many_bases(module: Module, limit: int = 3) -> list[Finding]:
    """Classes with more than `limit` base classes."""
    classes = (n for n in ast.walk(module.tree) if isinstance(n, ast.ClassDef))
    return [Finding(c.lineno, f"{c.name} has {len(c.bases)} bases") for c in classes if len(c.bases) > limit]


def ignored_types(module: Module) -> list[Finding]:
    """Comments that switch off the type checker."""
    lines = enumerate(module.source.splitlines(), start=1)
    return [
        Finding(n, "the type checker is switched off") for n, line in lines if re.search(r"#\s*type:\s*ignore", line)
    ]


def loose_types(module: Module) -> list[Finding]:
    """Uses of `Any` in the coordinator."""
    if module.folder != "coordinator":
        return []
    names = (n for n in ast.walk(module.tree) if isinstance(n, ast.Name | ast.Attribute))
    return [Finding(n.lineno, "Any") for n in names if (dotted(n) or "").split(".")[-1] == "Any"]


def swallowed_errors(module: Module) -> list[Finding]:
    """Bare `except` clauses, and handlers that ignore the error."""
    found = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ExceptHandler):
            if node.type is None:
                found.append(Finding(node.lineno, "a bare except"))
            if all(isinstance(s, ast.Pass) or _is_ellipsis(s) for s in node.body):
                found.append(Finding(node.lineno, "an error is swallowed"))
    return found


def banned_names(module: Module) -> list[Finding]:
    """Names without meaning: util, common, manager, process_all; and `handle` or `run` as the verb of a function."""
    found = [Finding(1, f"module {part}") for part in module.name.split(".") if _words(part) & BANNED_WORDS]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef) and _words(node.name) & BANNED_WORDS:
            found.append(Finding(node.lineno, f"class {node.name}"))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _says_nothing(module, node):
            found.append(Finding(node.lineno, f"function {node.name}"))
    return found


def _says_nothing(module: Module, f: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    name = f.name.strip("_")
    is_noun = any(dotted(d) in ("property", "cached_property") for d in f.decorator_list)
    verb = name.split("_")[0] in BANNED_VERBS and not is_noun
    # Airflow calls the coroutine `run` of its triggers.
    is_airflows = module.folder == "airflow" and isinstance(f, ast.AsyncFunctionDef)
    runs = name == "run" and module.folder not in ("api", "cli", "devstack") and not is_noun and not is_airflows
    return verb or runs or name.startswith("process_all") or bool(_words(name) & BANNED_WORDS)


def undocumented(module: Module) -> list[Finding]:
    """Modules, public classes, public functions and public methods that have no docstring."""
    found = [] if ast.get_docstring(module.tree) else [Finding(1, "the module has no docstring")]
    scopes: list[ast.Module | ast.ClassDef] = [module.tree]
    while scopes:
        for node in scopes.pop().body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name[0] != "_":
                if not ast.get_docstring(node) and not _is_overload(node):
                    found.append(Finding(node.lineno, f"{node.name} has no docstring"))
                if isinstance(node, ast.ClassDef):
                    scopes.append(node)
    return found


def _is_overload(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any((dotted(d) or "").split(".")[-1] in ("overload", "setter") for d in node.decorator_list)


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


def _words(name: str) -> set[str]:
    return {w.lower() for w in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)}


def _is_ellipsis(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is ...
