"""Operator state as it is declared, changed by hand, and carried from one declaration to the next."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.support.operator_lists import PIPELINE, Local, Order, Seen, follow, told
from tests.support.spark import TwinPipeline
from tidemark import Fold, Process, state
from tidemark.coordinator.plans.restore_point import RestorePoint
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import DeclarationError, IncompatibleStateError, NameRefusedError, ProcessFunctionError
from tidemark.model.checkpoint.segments import Redistribution
from tidemark.ports import PlanRequest


@dataclass(frozen=True)
class Frozen:
    """An element."""

    name: str
    n: int | None = None


@dataclass
class Loose:
    """An element that changes in place."""

    name: str


@dataclass(frozen=True)
class Nested:
    """A frozen element that holds such."""

    loose: Loose


def test_the_declaration_is_data_and_is_inherited() -> None:
    class More(Local):
        frozen: list[Frozen] = state.split_list(was="cold")

    assert [(d.name, d.mode, d.element.kind, d.was) for d in More.descriptors] == [
        ("samples", Redistribution.SPLIT, "str", ""),
        ("rules", Redistribution.UNION, "str", ""),
        ("frozen", Redistribution.SPLIT, "struct", "cold"),
    ]


def test_an_instance_by_hand_is_what_a_function_is_tested_with() -> None:
    local, seen = Local(rules=["r"]), Seen()
    follow(
        "k", iter([Order("k", "append", "samples", "x"), Order("k", "clear", "rules", "")]), seen, operator_state=local
    )
    assert local == Local(samples=["x"], rules=[])
    assert (seen.n, seen.samples, seen.rules) == (2, 1, 0)
    assert repr(local) == "Local(samples=['x'], rules=[])"
    with pytest.raises(TypeError, match="no field 'sampels'"):
        Local(sampels=[])  # type: ignore[call-arg]


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a keyed field": (lambda: {"n": (int, state.count())}, "n is not a list of operator state"),
    "no list": (lambda: {"n": (int, state.split_list())}, "operator state must be a list, not int"),
    "a list or none": (lambda: {"n": (list[int] | None, state.split_list())}, "must be a list, not list"),
    "lists in a list": (lambda: {"n": (list[list[int]], state.split_list())}, "elements are mutable"),
    "a loose dataclass": (lambda: {"n": (list[Loose], state.union_list())}, "elements are mutable"),
    "a loose one inside": (lambda: {"n": (list[Nested | None], state.union_list())}, "elements are mutable"),
    "a type that is not stored": (lambda: {"n": (list[complex], state.union_list())}, "no stored type"),
    "a name of ours": (lambda: {"clear": (list[int], state.union_list())}, "`clear` is a method"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_declaration_is_refused(what: str) -> None:
    make, words = WRONG[what]
    found = make()
    body = {"__annotations__": {n: hint for n, (hint, _) in found.items()}, **{n: d for n, (_, d) in found.items()}}
    with pytest.raises(DeclarationError, match=words):
        type("Wrong", (state.Operator,), body)


def test_a_name_that_columns_may_not_have_is_refused() -> None:
    with pytest.raises(NameRefusedError):
        type("Wrong", (state.Operator,), {"__annotations__": {"_n": list[int]}, "_n": state.split_list()})


def without(key: str, orders: Any, seen: Seen) -> None:
    """Does not take it."""


def positional(key: str, orders: Any, seen: Seen, operator_state: Local) -> None:
    """Would get the broadcast states."""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"function": without}, "does not take its operator state"),
        ({"function": positional}, "does not take its operator state"),
        ({"operator_state": None}, "takes operator_state, but none is declared"),
        ({"operator_state": Seen}, "operator_state="),
        ({"operator_state": state.Operator}, "operator_state="),
    ],
)
def test_function_and_declaration_agree(changes: dict[str, Any], words: str) -> None:
    (operator,) = PIPELINE.operators
    with pytest.raises(DeclarationError, match=words):
        replace(operator, **changes)


def pops(key: str, orders: Any, seen: Seen, *, operator_state: Local) -> None:
    """Takes an element out that other tasks have too."""
    operator_state.rules.pop()


def adds_number(key: str, orders: Any, seen: Seen, *, operator_state: Any) -> None:
    """Adds what is no text."""
    operator_state.samples.append(1)


def assigns_text(key: str, orders: Any, seen: Seen, *, operator_state: Any) -> None:
    """Assigns what is no list."""
    operator_state.samples = "abc"


def assigns_unknown(key: str, orders: Any, seen: Seen, *, operator_state: Any) -> None:
    """Assigns what is not declared."""
    operator_state.sampels = []


def changed(**changes: Any) -> Pipeline:
    """The pipeline with another operator, which fails loudly."""
    (operator,) = PIPELINE.operators
    return replace(PIPELINE, operators=[replace(operator, **({"on_error": "fail"} | changes))])


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (pops, "only be appended to or cleared"),
        (adds_number, "samples: 1 is not of type str"),
        (assigns_text, "samples: 'abc' is not a list"),
        (assigns_unknown, "no field 'sampels'"),
    ],
)
def test_a_wrong_use_fails_the_function(function: Any, words: str) -> None:
    with pytest.raises(ProcessFunctionError, match=words):
        TwinPipeline(changed(function=function), partitions=1).checkpoint([Order("k", "", "", "")])


class Renamed(state.Operator):
    """Samples go on under another name, rules are gone, one list is new."""

    kept: list[str | None] = state.split_list(was="samples")
    fresh: list[int] = state.union_list()


class Mode(state.Operator):
    """Samples in another form."""

    samples: list[str] = state.union_list()


class Type(state.Operator):
    """Samples of another type, a rename of nothing."""

    samples: list[int] = state.split_list()
    more: list[int] = state.split_list(was="never")


def quiet(key: str, orders: Any, seen: Seen, *, operator_state: Any) -> None:
    """Does nothing."""


def begun() -> TwinPipeline:
    """A pipeline with a checkpoint, whose lists hold something."""
    world = TwinPipeline(PIPELINE, partitions=1)
    world.checkpoint([Order("a", "extend", name, "x") for name in ("samples", "rules")])
    return world


def test_lists_are_added_removed_renamed_and_widened() -> None:
    world = begun()
    world.pipeline = changed(operator_state=Renamed, function=quiet)
    made = world.checkpoint([Order("a", "", "", "")])
    assert told(made) == {"kept": ["x", "ü"], "fresh": []}
    world.pipeline = changed(operator_state=None, function=without)
    made = world.checkpoint([Order("a", "", "", "")])
    assert made.operator_states == {}


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        (Mode, r"o\.samples: split list became union list \(declare it under a new name\)"),
        (Type, r"o\.samples: elements STRING became BIGINT .*o\.more: was='never' names no stored field"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_plan(lists: Any, words: str) -> None:
    world = begun()
    world.pipeline = changed(operator_state=lists, function=quiet)
    with pytest.raises(IncompatibleStateError, match=words):
        world.coordinator.trigger(world.pipeline, PlanRequest(origin="test"))


class N(state.Keyed):
    """Of another operator."""

    n: int = state.count()


def test_an_operator_with_lists_but_without_keys_is_not_removed_silently() -> None:
    def forgets(key: str, orders: Any, seen: Seen, *, operator_state: Local) -> None:
        operator_state.samples.append(key)

    world = TwinPipeline(changed(function=forgets), partitions=1)
    assert not world.checkpoint([Order("a", "", "", "")]).handles["o"]
    world.pipeline = replace(PIPELINE, operators=[Fold("n", key_by="key", state=N)])
    with pytest.raises(IncompatibleStateError, match="o: is no longer declared, but has state"):
        world.coordinator.trigger(world.pipeline, PlanRequest(origin="test"))
    asked = PlanRequest(origin="test", allow_non_restored_state=True)
    plan = getattr(world.coordinator.trigger(world.pipeline, asked), "plan")  # noqa: B009
    assert plan.operator_states == {}


def test_a_renamed_operator_keeps_its_lists() -> None:
    world = begun()
    (operator,) = PIPELINE.operators
    assert isinstance(operator, Process)
    world.pipeline = replace(PIPELINE, operators=[replace(operator, uid="p", was="o")])
    (samples, _) = world.checkpoint([]).operator_states["p"].lists
    assert samples.elements == ("x", "ü")


def test_other_lists_are_other_code() -> None:
    prints = {changed(operator_state=x, function=quiet).fingerprint for x in (Local, Renamed, Mode, Type)}
    assert len(prints) == 4


def test_a_fork_begins_with_the_lists_of_its_checkpoint() -> None:
    world = begun()
    world.recovery.restore(RestorePoint(checkpoint=next(world.coordinator.checkpoints())))
    made = world.checkpoint([Order("a", "append", "rules", "y")])
    assert made.plan.slot.timeline == "t2"
    assert told(made) == {"samples": ["x", "ü"], "rules": ["x", "ü", "y"]}
