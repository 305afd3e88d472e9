"""Every format of the registry in Python: values and damaged bytes against its oracle, and nothing is lost.

A new format brings its `CASE` in `test_<name>.py`. `tests/engine/test_formats.py` tries the same in Spark.
"""

import ast
import os
import random
import subprocess
import sys
from dataclasses import dataclass, make_dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.format_cases import NAMES, case_of, damaged
from tidemark import Fold, KafkaSource, Pipeline, formats, kafka, state, testing
from tidemark.formats.known_formats import FORMATS, format_of

ROOT = Path(__file__).resolve().parents[3]
CASES = {name: case_of(name) for name in NAMES}
"""Imported here: a module of cases has property tests of its own, which must not be made within one of this file."""
SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))


@dataclass(frozen=True)
class Payment:
    """A record of 0.1."""

    account: str
    amount: int


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None)
@given(data=st.data())
def test_a_good_record_comes_back(name: str, data: st.DataObject) -> None:
    case = CASES[name]
    fields = data.draw(case.fields)
    value = case.format.encode(fields)
    assert case.answer(value) == fields == case.oracle(value)


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None)
@given(value=st.binary(max_size=12))
def test_any_bytes_mean_what_the_oracle_says(name: str, value: bytes) -> None:
    case = CASES[name]
    assert case.answer(value) == case.oracle(value)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=1000, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_damaged_values_mean_what_the_oracle_says(name: str, data: st.DataObject, seed: int) -> None:
    case = CASES[name]
    value = damaged(random.Random(seed), data.draw(st.sampled_from(case.bytes)))
    answer = case.answer(value)
    assert answer == case.oracle(value)
    if isinstance(answer, str):
        assert answer.partition(":")[0] in case.format.reasons


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_value_has_its_own_reason(name: str) -> None:
    assert CASES[name].answer(None) == "null_value"
    assert CASES[name].format.reasons[0] == "null_value"


@pytest.mark.parametrize("name", NAMES)
def test_what_a_plan_pins_gives_the_format_again(name: str) -> None:
    its = CASES[name].format
    assert isinstance(its, FORMATS[name])
    assert format_of(its.freeze()) == its


def test_an_unregistered_format_is_unknown() -> None:
    assert format_of({"format": "stranger"}) is None


@pytest.mark.parametrize("name", [name for name in NAMES if not FORMATS[name].has_changes])
def test_every_record_is_applied_or_a_dead_letter(name: str) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED} pytest {__file__}")
    case, chance = CASES[name], random.Random(SEED)
    values = [damaged(chance, chance.choice(case.bytes)) for _ in range(200)]

    class Seen(state.Keyed):
        """How many."""

        n: int = state.count()

    record = make_dataclass(
        "InPartition", [("kafka_partition", int, kafka.partition())], bases=(case.record,), frozen=True
    )
    pipeline = Pipeline(
        name="walk",
        source=KafkaSource("values", record, format=case.format),
        operators=[Fold("seen", key_by="kafka_partition", state=Seen)],
        max_dead_letters=1.0,
    )
    found = testing.replay(pipeline, [values[:120], testing.BARRIER, values[120:], testing.BARRIER])
    good = [answer for answer in map(case.oracle, values) if not isinstance(answer, str)]
    assert sum(seen.n for seen in found.state("seen").values()) == len(good)
    assert len(found.dead_letters("seen")) == len(values) - len(good)


def test_json_is_pinned_by_nothing_and_its_fingerprint_is_that_of_0_1() -> None:
    class Account(state.Keyed):
        """What is remembered."""

        total: int | None = state.sum("amount")

    made = Pipeline(
        name="payments",
        source=KafkaSource("payments", Payment),
        operators=[Fold("accounts", key_by="account", state=Account)],
    )
    assert made.formats == {}
    assert made.fingerprint == "209f4a015a7a17791b982337146d50871f6d9795e04098d196b741abe4dc9bf7"


def test_a_format_is_part_of_the_fingerprint() -> None:
    @dataclass(frozen=True)
    class TextLine:
        """One text."""

        text: str

    class TextCount(state.Keyed):
        """How many."""

        n: int = state.count()

    def made(of: formats.RecordFormat) -> Pipeline:
        source = KafkaSource("lines", TextLine, format=of)
        return Pipeline(name="lines", source=source, operators=[Fold("lines", key_by="text", state=TextCount)])

    assert made(formats.Json()).fingerprint != made(formats.Text()).fingerprint
    assert made(formats.Text()).formats == {"records": {"format": "text"}}


def test_importing_formats_loads_no_engine() -> None:
    probe = "import sys, tidemark.formats.known_formats; print(sorted({m.split('.')[0] for m in sys.modules}))"
    env = {"PYTHONPATH": str(ROOT / "include")}
    done = subprocess.run([sys.executable, "-c", probe], env=env, capture_output=True, text=True, check=True)
    assert not {"pyspark", "pyarrow", "pandas", "duckdb"} & set(ast.literal_eval(done.stdout))


def test_no_name_of_a_format_is_compared_outside_its_folder() -> None:
    package = ROOT / "include" / "tidemark"
    classes = {cls.__name__ for cls in FORMATS.values()}
    found = [
        f"{path.relative_to(package)}:{node.lineno}"
        for path in sorted(package.rglob("*.py"))
        if path.parent.name != "formats"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance"
        if classes & {ast.unparse(n).rpartition(".")[2] for n in ast.walk(node.args[1]) if isinstance(n, ast.expr)}
    ]
    assert not found, "ask the source for its format instead"
