"""Every kind of the registry against brute force: cuts and compactions at random, the twin and SQL agree.

A new kind brings its cases in `test_<name>.py`. `TIDEMARK_TEST_SEED` repeats a run.
"""

import ast
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TypeGuard

import pytest

import tidemark
from tests.support.kind_bench import KindBench, KindCase, expected, known, random_records
from tests.unit.model.kinds import existing
from tidemark import state
from tidemark.errors import UsageError
from tidemark.model.kinds import registry
from tidemark.model.kinds.base.kind import FoldKind
from tidemark.model.kinds.base.process_kind import ProcessKind
from tidemark.model.schema.operator_schema import KNOWN, OperatorSchema, state_kind
from tidemark.readers.duckdb_session import QueryRunner, open_query_runner

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
FUNCTIONS = sorted(name for name in vars(registry) if name[0] != "_")
ROUNDS = 12
BY_ORDER = "list"
"""It goes by checkpoints first, so one pass gives another order; `test_a_list_...` is its test."""
FOLDS = sorted(name for name, cls in KNOWN.items() if issubclass(cls, FoldKind) and name != BY_ORDER)


def cases_of(name: str) -> Sequence[KindCase]:
    """The cases of a kind of a fold."""
    found = existing.CASES.get(name)
    return import_module(f"tests.unit.model.kinds.test_{name}").CASES if found is None else found


@pytest.fixture(scope="module")
def ask() -> Iterator[QueryRunner]:
    with open_query_runner() as made:
        yield made


@pytest.mark.parametrize("name", FOLDS)
def test_a_fold_is_one_pass_however_it_is_cut_and_compacted(name: str, ask: QueryRunner) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED} pytest {__file__}")
    for number, case in enumerate([*cases_of(name)] * ROUNDS):
        chance = random.Random(f"{SEED} {name} {number}")
        records = random_records(chance, chance.randrange(1, 40))
        wanted = expected(case, records)
        whole, cut = KindBench(case, ask), KindBench(case, ask)
        whole.fold(records)
        whole.check(wanted)
        ends = sorted(chance.choices(range(len(records) + 1), k=4))
        for start, end in zip([0, *ends], [*ends, len(records)], strict=True):
            cut.fold(records[start:end])
            if chance.random() < 0.4:
                first = chance.randrange(len(cut.levels))
                cut.compact(first, chance.randrange(first + 1, len(cut.levels) + 1))
        cut.check(wanted)


def test_a_list_has_all_values_in_the_order_of_checkpoints(ask: QueryRunner) -> None:
    chance = random.Random(SEED)
    records = random_records(chance, 40)
    case, batches = (
        KindCase(state.list("n"), list[int], lambda found: None),
        (records[:13], records[13:25], records[25:]),
    )
    bench = KindBench(case, ask)
    for batch in batches:
        bench.fold(batch)
    ordered = [r for batch in batches for r in sorted(batch, key=lambda r: r.position)]
    wanted = {key: known([r for r in ordered if r.fields["key"] == key], "n") for key in "abü"}
    bench.check(wanted)
    bench.compact(1, 3)
    bench.check(wanted)
    bench.compact(0, 2)
    bench.check(wanted)


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_a_kind_is_a_class_of_one_file_with_its_own_name(name: str) -> None:
    kind = state_kind(name)
    assert (kind.name, type(kind)) == (name, KNOWN[name])
    assert type(kind).__module__ == f"tidemark.model.kinds.{name}"
    assert isinstance(kind, FoldKind | ProcessKind) and kind.is_process == isinstance(kind, ProcessKind)
    assert kind.shown in FUNCTIONS
    assert state_kind(name) is kind


@pytest.mark.parametrize("name", FUNCTIONS)
def test_authors_have_every_function_of_the_registry(name: str) -> None:
    made = getattr(state, name)
    assert made is getattr(registry, name)
    assert name in state.__all__  # type: ignore[attr-defined]  # made when it is asked for
    assert made.__doc__


@pytest.mark.parametrize("name", FOLDS)
def test_a_stored_field_survives_its_manifest(name: str) -> None:
    for case in cases_of(name):
        assert OperatorSchema.from_json(case.schema.to_json()) == case.schema
        assert len(case.stored.state_kind.absent(case.stored)) == len(case.stored.accumulators)


def test_every_file_of_a_kind_is_in_the_registry() -> None:
    files = {path.stem for path in Path(registry.__file__).parent.glob("*.py")} - {"__init__", "registry"}
    assert files == set(KNOWN)


def test_one_kind_loads_no_other() -> None:
    text = "import sys; from tidemark import state; state.count(); n = [m for m in sys.modules if 'kinds.std' in m]"
    env = os.environ | {"PYTHONPATH": str(Path(tidemark.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", f"{text}; assert not n, n"], env=env, check=True)


def test_what_is_no_kind_is_no_attribute() -> None:
    for name in ("median", "registry", "base"):
        with pytest.raises(AttributeError, match=f"module 'tidemark.state' has no attribute '{name}'"):
            getattr(state, name)


def test_a_kind_of_a_later_release_is_refused_by_name() -> None:
    for name in ("median", "base", "a.b"):
        with pytest.raises(UsageError, match=f"no kind of state called {name}; there are aggregate, count"):
            state_kind(name)


def test_no_name_of_a_kind_is_compared_outside_the_registry() -> None:
    package = Path(tidemark.__file__).parent
    found = []
    for path in sorted(package.rglob("*.py")):
        if "kinds" not in path.relative_to(package).parts:
            tree = ast.parse(path.read_text())
            found += [f"{path.relative_to(package)}:{n.lineno}" for n in ast.walk(tree) if _compares_a_kind(n)]
    assert found == []


@pytest.mark.parametrize(
    "text", ["f.kind == 'mean'", "field.kind in ('first', 'latest')", "{'list_of_values': 1}[f.kind]"]
)
def test_the_rule_catches_a_comparison(text: str) -> None:
    assert any(map(_compares_a_kind, ast.walk(ast.parse(text))))


@pytest.mark.parametrize("text", ["of.kind == 'list'", "schema.kind == 'fold'", "x == 'latest'"])
def test_the_rule_leaves_other_kinds_alone(text: str) -> None:
    assert not any(map(_compares_a_kind, ast.walk(ast.parse(text))))


OF_TYPES = {"list", "map"}
"""Kinds of types too, so the name on the left decides: `of`, `found` and `type` are types."""


def _compares_a_kind(node: ast.AST) -> TypeGuard[ast.Compare | ast.Subscript]:
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
    elif isinstance(node, ast.Subscript):
        sides = [node.slice, node.value]
    else:
        return False
    owners = [n.value for side in sides for n in ast.walk(side) if isinstance(n, ast.Attribute) and n.attr == "kind"]
    names = {n.value for side in sides for n in ast.walk(side) if isinstance(n, ast.Constant)} & set(KNOWN)
    of_fields = any(isinstance(o, ast.Name) and o.id in ("f", "field", "declared", "descriptor") for o in owners)
    return bool(owners) and bool(names if of_fields else names - OF_TYPES)
