"""Pipelines: a frozen value, refused with a reason when it makes no sense, and typed well enough for mypy to help."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import FrozenInstanceError, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypedDict, Unpack

import pytest

from tidemark import Fold, KafkaSource, Pipeline, TopicPattern, state
from tidemark.errors import DeclarationError, NameRefusedError, NotFoundError, UsageError
from tidemark.model.core.offsets import TopicPartition

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Flight:
    """A record."""

    tail_number: str | None
    origin: str
    distance: int
    delay: float | None
    at: datetime
    seen: datetime | None = None


class Count(state.Keyed):
    """The least state there is."""

    n: int = state.count()


class Total(state.Keyed):
    """A sum over a field."""

    total: int = state.sum("distance")


SOURCE = KafkaSource("flights", Flight, event_time="at")
PIPELINE = Pipeline(
    name="flights",
    source=SOURCE,
    operators=[Fold("aircraft", key_by="tail_number", state=Count), Fold("routes", key_by=["origin"], state=Total)],
)


class Options(TypedDict, total=False):
    """Options of the pipeline that a test may change."""

    name: str
    source: KafkaSource
    max_dead_letters: float


def _declared(*operators: Fold, **options: Unpack[Options]) -> Callable[[], Pipeline]:
    return lambda: replace(PIPELINE, operators=operators, **options)


def _fold(uid: str = "aircraft", key_by: str | Sequence[str] = "origin", keyed: type[state.Keyed] = Count) -> Fold:
    return Fold(uid, key_by=key_by, state=keyed)


def _one_field(name: str, annotation: object, field: object) -> type[state.Keyed]:
    made = type("Declared", (state.Keyed,), {"__annotations__": {name: annotation}, name: field})
    assert issubclass(made, state.Keyed)
    return made


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "two operators, one uid": (_declared(_fold("a"), _fold("a")), "two operators share the uid a"),
    "uids that differ in case": (_declared(_fold("Routes"), _fold("routes")), "two operators share the uid routes"),
    "no operators": (_declared(), "no operators"),
    "share above one": (_declared(_fold(), max_dead_letters=1.01), "max_dead_letters=1.01"),
    "share below zero": (_declared(_fold(), max_dead_letters=-0.1), "max_dead_letters=-0.1"),
    "share that is no number": (_declared(_fold(), max_dead_letters=float("nan")), "max_dead_letters=nan"),
    "the same key twice": (lambda: _fold(key_by=("origin", "origin")), "key_by="),
    "a key that is not there": (_declared(_fold(key_by="nowhere")), "no such field"),
    "a key that is a float": (_declared(_fold(key_by="delay")), "a float cannot be a key"),
    "no state class": (lambda: _fold(keyed=dict), "not a state class"),  # type: ignore[arg-type]
    "the bare base class": (lambda: _fold(keyed=state.Keyed), "not a state class"),
    "a field of nothing": (
        _declared(_fold(keyed=_one_field("n", int, state.sum("nowhere")))),
        "the record has no field 'nowhere'",
    ),
    "a sum of text": (_declared(_fold(keyed=_one_field("n", str, state.sum("origin")))), "state.sum of a str"),
    "another type than the record's": (
        _declared(_fold(keyed=_one_field("n", str, state.max("distance")))),
        "is BIGINT, declared STRING",
    ),
    "a field called like a key": (_declared(_fold(keyed=_one_field("origin", int, state.count()))), "origin"),
    "a pattern that is no regular expression": (lambda: TopicPattern("pay("), "not a regular expression: 'pay('"),
    "a pattern that repeats too often": (lambda: TopicPattern("a{99999999999}"), "not a regular expression"),
    "a pattern that is no text": (lambda: TopicPattern(None), "not a regular expression: None"),  # type: ignore[arg-type]
    "a pattern that matches no name": (lambda: TopicPattern(""), "matches no topic"),
    "no topics": (lambda: KafkaSource([], Flight), "without topics"),
    "an event time that is not there": (lambda: KafkaSource("f", Flight, event_time="nowhere"), "event_time"),
    "an event time that is no time": (lambda: KafkaSource("f", Flight, event_time="distance"), "event_time"),
    "an event time that may be null": (lambda: KafkaSource("f", Flight, event_time="seen"), "event_time"),
    "a record that is no dataclass": (_declared(_fold(), source=KafkaSource("f", dict)), "not a dataclass"),
    "a hostile pipeline name": (_declared(_fold(), name="../flights"), "pipeline name refused"),
    "a hostile uid": (lambda: _fold(uid="a`b"), "uid name refused"),
    "a hostile topic": (lambda: KafkaSource("a/b", Flight), "topic name refused"),
}


@pytest.mark.parametrize(("declare", "words"), REFUSED.values(), ids=REFUSED)
def test_a_pipeline_that_makes_no_sense_is_refused_in_three_lines(declare: Callable[[], object], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        declare()
    assert isinstance(refused.value, DeclarationError | NameRefusedError)
    what, safe, step = str(refused.value).splitlines()
    assert words in what
    assert (safe[:6], step[:6]) == ("Safe: ", "Next: ")


def test_a_pipeline_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        PIPELINE.name = "other"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        PIPELINE.operators[0].uid = "other"  # type: ignore[misc]
    assert isinstance(PIPELINE.operators, tuple)


def test_keys_are_a_tuple_whether_one_or_several_were_named() -> None:
    assert [o.key_by for o in PIPELINE.operators if isinstance(o, Fold)] == [("tail_number",), ("origin",)]


def test_an_operator_is_found_by_uid_and_a_missing_one_lists_those_there_are() -> None:
    assert PIPELINE.operator("routes") is PIPELINE.operators[1]
    with pytest.raises(NotFoundError) as missing:
        PIPELINE.operator("planes")
    assert "aircraft, routes" in missing.value.next


def test_topics_may_be_one_several_a_pattern_or_partitions() -> None:
    assert KafkaSource(["a", "b"], Flight).topics == ("a", "b")
    assert KafkaSource(TopicPattern("a.*"), Flight).topics == TopicPattern("a.*")
    partitions = frozenset({TopicPartition("a", 0)})
    assert KafkaSource(partitions, Flight).topics == partitions


def test_the_fingerprint_changes_with_what_decides_results_and_with_nothing_else() -> None:
    same = replace(PIPELINE, min_pause=timedelta(hours=1), tolerable_failed_checkpoints=3)
    assert same.fingerprint == PIPELINE.fingerprint
    others = [
        replace(PIPELINE, operators=PIPELINE.operators[:1]),
        replace(PIPELINE, operators=PIPELINE.operators[::-1]),
        replace(PIPELINE, max_dead_letters=0.1),
        replace(PIPELINE, max_future=timedelta(0)),
        replace(PIPELINE, gate=lambda: {}),
        replace(PIPELINE, source=replace(SOURCE, event_time=None)),
        replace(PIPELINE, source=replace(SOURCE, isolation="read_uncommitted")),
    ]
    prints = [p.fingerprint for p in (PIPELINE, *others)]
    assert len(set(prints)) == len(prints)


RIGHT = """
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from tidemark import DeltaSink, Fold, KafkaSource, Pipeline, Process, state

@dataclass(frozen=True)
class Flight:
    tail: str | None
    miles: int
    at: datetime

class Aircraft(state.Keyed):
    flights: int = state.count()
    miles: int | None = state.sum("miles")
    seen: datetime | None = state.latest("at", ignore_nulls=True)
    tails: list[str] = state.distinct("tail", limit=3)

source = KafkaSource(["flights"], Flight, event_time="at", isolation="read_committed")
pipeline = Pipeline(name="flights", source=source, operators=[Fold("a", key_by=("tail", "at"), state=Aircraft)])
seen: int = Aircraft(flights=3, miles=None, seen=None, tails=["N1"]).flights

@dataclass(frozen=True)
class Late:
    tail: str
    miles: int

class Waiting(state.Keyed):
    n: int = state.value(0)
    since: datetime | None = state.value(None, ttl=timedelta(days=1))
    recent: list[str] = state.list(limit=5)
    counts: dict[str, int] = state.map()

def watch(tail: str, flights: Iterator[Flight], waiting: Waiting) -> Iterator[Late]:
    for flight in flights:
        waiting.n += 1
        waiting.since = flight.at
        waiting.recent.append(flight.tail or "")
        waiting.counts["a"] = waiting.counts.get("a", 0) + 1
        yield Late(tail, waiting.n)
    waiting.clear()

class Local(state.Operator):
    samples: list[str] = state.split_list()
    late: list[Late] = state.union_list(was="lates")

def sample(tail: str, flights: Iterator[Flight], waiting: Waiting, *, operator_state: Local) -> None:
    operator_state.samples = [*operator_state.samples, tail]
    operator_state.late.append(Late(tail, 1))

process = Process("p", key_by="tail", state=Waiting, function=watch, emits=Late, sink=DeltaSink("late"))
sampled = Process("s", key_by="tail", state=Waiting, function=sample, operator_state=Local)
waiting = Waiting(n=1, recent=["x"])
local = Local(samples=["x"])
"""

PARTIAL = "Aircraft()\nAircraft(flights=3)\n"

# The authors' names need neither of these, and both would bring the whole package with them.
UNREAD = "[mypy]\n[mypy-tidemark.reading,tidemark.testing]\nfollow_imports = skip\n"

WRONG = {
    "a count that is text": ("class S(state.Keyed):\n    n: str = state.count()", "assignment"),
    "a state value of another type": ('Aircraft(flights="three", miles=None, seen=None, tails=[])', "arg-type"),
    "a list element of another type": ("Aircraft(flights=3, miles=None, seen=None, tails=[1])", "list-item"),
    "an unknown state field": ("Aircraft(flights=3, miles=None, seen=None, tails=[], flihgts=3)", "call-arg"),
    "positional state": ("Aircraft(3)", "misc|call-arg"),
    "a fold without state": ('Fold("a", key_by="tail")', "call-arg"),
    "a fold over any class": ('Fold("a", key_by="tail", state=dict)', "arg-type"),
    "operators that are none": ('Pipeline(name="p", source=source, operators=["a"])', "list-item"),
    "a positional pipeline": ('Pipeline("p", source, [])', "misc|call-arg"),
    "an isolation Kafka does not know": ('KafkaSource("t", Flight, isolation="serializable")', "arg-type"),
    "a share that is text": ('Pipeline(name="p", source=source, operators=[], max_dead_letters="5%")', "arg-type"),
    "an edit": ('pipeline.name = "other"', "misc"),
    "a value assigned another type": ('waiting.n = "one"', "assignment"),
    "a value that may not be None": ("waiting.n = None", "assignment"),
    "an initial value of another type": ('class S(state.Keyed):\n    n: int = state.value("x")', "arg-type|assignment"),
    "an element of another type": ("waiting.recent.append(1)", "arg-type"),
    "an entry of another type": ('waiting.counts["a"] = "one"', "assignment"),
    "an entry under a key of another type": ("waiting.counts[1] = 1", "index"),
    "a field that is not declared": ("waiting.nn = 1", "attr-defined"),
    "a function that is none": ('Process("p", key_by="tail", state=Waiting, function="watch")', "arg-type"),
    "an order there is none of": (
        'Process("p", key_by="tail", state=Waiting, function=watch, order="random")',
        "arg-type",
    ),
    "an element of operator state of another type": ("local.samples.append(1)", "arg-type"),
    "a list of operator state of another type": ('local.late = ["x"]', "list-item"),
    "a list of operator state that is not declared": ("local.rules.clear()", "attr-defined"),
    "an initial list of another type": ("Local(samples=[1])", "list-item"),
    "keyed state as operator state": (
        'Process("p", key_by="tail", state=Waiting, function=sample, operator_state=Waiting)',
        "arg-type",
    ),
    "a sink that is a name": ('Process("p", key_by="tail", state=Waiting, function=watch, sink="late")', "arg-type"),
}


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Mypy's error lines per snippet, from one run over all of them."""
    folder = tmp_path_factory.mktemp("snippets")
    snippets = {"right": RIGHT, "partial": RIGHT + PARTIAL} | {
        f"wrong_{i}": RIGHT + wrong + "\n" for i, (wrong, _) in enumerate(WRONG.values())
    }
    (folder / "mypy.ini").write_text(UNREAD)
    for name, text in snippets.items():
        (folder / f"{name}.py").write_text(text)
    options = [
        "--strict",
        "--follow-imports=silent",
        "--config-file=mypy.ini",
        "--no-site-packages",
        "--show-error-codes",
        "--no-error-summary",
    ]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            *options,
            f"--cache-dir={folder / 'cache'}",
            *sorted(map(str, folder.glob("*.py"))),
        ],
        cwd=folder,
        env={"MYPYPATH": str(ROOT / "include"), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if ": error:" in line]
    return {name: [line for line in lines if line.startswith(f"{name}.py:")] for name in snippets}


@pytest.mark.slow
def test_the_type_checker_accepts_right_use(complaints: dict[str, list[str]]) -> None:
    assert complaints["right"] == []


@pytest.mark.slow
def test_the_type_checker_accepts_the_state_of_a_key_without_records(complaints: dict[str, list[str]]) -> None:
    assert complaints["partial"] == []


@pytest.mark.slow
@pytest.mark.parametrize("case", WRONG)
def test_the_type_checker_rejects_wrong_use(case: str, complaints: dict[str, list[str]]) -> None:
    found = complaints[f"wrong_{list(WRONG).index(case)}"]
    codes = [code for code in WRONG[case][1].split("|") if any(f"[{code}]" in line for line in found)]
    assert codes, f"mypy let this pass: {WRONG[case][0]} ({found})"
