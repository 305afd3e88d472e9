"""Rules that compare all modules: folders with too many files, small files with one importer, repeated names."""

import ast
from collections import defaultdict
from collections.abc import Mapping, Sequence

from tests.rules.imports import imports
from tests.rules.rooms import room_of
from tests.rules.source import Module

CROWDED = 20
SMALL = 60
LARGE_FOLDERS = ("tidemark.cli", "tidemark.airflow")
"""Folders without a limit: `cli` has one file per noun, `airflow` one per kind of DAG."""
ONE_EACH = (*LARGE_FOLDERS, "tidemark.api", "tidemark.model.kinds")
"""Packages whose files may be short, because each describes one command, DAG, object or kind."""
SAME_WORD = ("tidemark.api", "tidemark.cli", "tidemark.operations", "tidemark.testing.twin")
DISCOVERED = ("dags", "pipelines", "more_pipelines")
"""Test folders whose files Airflow or Tidemark discovers; a DAG and its pipeline have the same file name."""
RETIRED = {"House", "Line", "Lines", "Market", "Shelf", "Shelves", "Somebody", "Ward", "World"}
"""Former names of test helpers, each of which had several meanings."""


def crowded_folders(modules: Sequence[Module], limit: int = CROWDED) -> list[str]:
    """Folders of more than `limit` files, including `__init__`."""
    files: dict[str, int] = defaultdict(int)
    for module in modules:
        files[module.name if module.is_package else module.name.rpartition(".")[0]] += 1
    return [f"{f}: {n} files" for f, n in sorted(files.items()) if n > limit and f not in LARGE_FOLDERS]


def lonely_files(modules: Sequence[Module], limit: int = SMALL) -> list[str]:
    """Files of fewer than `limit` lines of code whose only importer is in the same room: merge them into that file.

    A module that also runs as a program may be short.
    """
    importers = _importers(modules)
    found = []
    for module in modules:
        size = lines_of_code(module)
        if (
            not module.is_package
            and not module.name.startswith(ONE_EACH)
            and size < limit
            and '__name__ == "__main__"' not in module.source
            and len(importers[module.name]) == 1
        ):
            (importer,) = importers[module.name]
            if room_of(importer) != module.room:
                continue
            found.append(f"{module.name}: {size} lines of code, only {importer} imports it")
    return found


def repeated_stems(modules: Sequence[Module]) -> list[str]:
    """File names that occur more than once in the package.

    A command, its Python object, its operation and its rule in the coordinator may share the name of the verb. A twin
    has the name of its original.
    """
    where: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        if not module.is_package and module.name.startswith("tidemark.") and not module.name.startswith(SAME_WORD):
            where[module.name.rpartition(".")[2]].append(module.name)
    return _repeated(where)


def repeated_classes(modules: Sequence[Module]) -> list[str]:
    """Names of public classes that occur more than once in the package."""
    where: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and module.name.startswith("tidemark."):
                where[node.name].append(module.name)
    return _repeated(where)


def repeated_helpers(modules: Sequence[Module]) -> list[str]:
    """File names that several test helpers share. Test files, package files and discovered files are not helpers."""
    where: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        *folders, stem = module.name.split(".")
        if not (module.is_package or stem == "conftest" or stem.startswith("test_") or set(folders) & {*DISCOVERED}):
            where[stem].append(module.name)
    return _repeated(where)


def retired_classes(modules: Sequence[Module]) -> list[str]:
    """Test classes that have a retired name."""
    return [
        f"{module.name}:{node.lineno}: {node.name}"
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and node.name in RETIRED
    ]


def support_that_leans_on_tests(modules: Sequence[Module]) -> list[str]:
    """Imports in `tests.support` from another folder of tests, except its `pipelines`."""
    return [
        f"{module.name}:{line}: {name}"
        for module in modules
        if module.name.startswith("tests.support")
        for line, name in imports(module)
        if name.startswith("tests.") and not name.startswith("tests.support") and ".pipelines." not in name
    ]


def lines_of_code(module: Module) -> int:
    """The number of lines where a statement or expression starts or ends; docstrings and imports do not count."""
    lines: set[int] = set()
    strings = {
        n.lineno + i
        for n in ast.walk(module.tree)
        if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant) and isinstance(n.value.value, str)
        for i in range((n.end_lineno or n.lineno) - n.lineno + 1)
    }
    for node in ast.walk(module.tree):
        if isinstance(node, ast.stmt | ast.expr) and not isinstance(node, ast.Import | ast.ImportFrom | ast.alias):
            lines.update((node.lineno, node.end_lineno or node.lineno))
    return len(lines - strings)


def _importers(modules: Sequence[Module]) -> Mapping[str, set[str]]:
    names = {module.name for module in modules}
    found: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        for _, name in imports(module):
            target = name if name in names else name.rpartition(".")[0]
            if target in names and target != module.name:
                found[target].add(module.name)
    return found


def _repeated(where: Mapping[str, Sequence[str]]) -> list[str]:
    return [f"{name}: {', '.join(found)}" for name, found in sorted(where.items()) if len(found) > 1]
