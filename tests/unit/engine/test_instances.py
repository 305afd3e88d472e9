"""Instances made without their own `__init__`, and plain values of a key that are entries of its `__dict__`."""

import copy
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark import KafkaSource, Pipeline, Process, state
from tidemark.processing.clock import KeyClock
from tidemark.processing.instances import InstanceMaker
from tidemark.processing.live import StateType
from tidemark.processing.processor import Processing
from tidemark.processing.value_codec import DoesNotFit


@dataclass(frozen=True)
class Point:
    """A frozen record."""

    x: int
    y: str | None


class Slotted:
    """A class with another layout."""

    __slots__ = ("x", "y")


def test_an_instance_is_as_its_own_init_makes_it() -> None:
    maker = InstanceMaker(Point, ["x", "y"])
    made = [maker.make(1, "a"), *maker.make_all([[1, 2], ["a", None]])]
    assert made == [Point(1, "a"), Point(1, "a"), Point(2, None)]
    assert {type(one) for one in made} == {Point}
    assert (repr(made[2]), hash(made[0])) == ("Point(x=2, y=None)", hash(Point(1, "a")))
    with pytest.raises(AttributeError):
        made[0].x = 3


def test_a_class_with_slots_is_filled_too() -> None:
    first, second = InstanceMaker(Slotted, ["x", "y"]).make_all([[1, 2], ["a", "b"]])
    assert (type(first), first.x, second.y) == (Slotted, 1, "b")


class Held(state.Keyed):
    """Plain values, with an initial one and without, and a list next to them."""

    count: int = state.value(7)
    text: str | None = state.value(None)
    steps: list[int] = state.list()


class Plain(state.Keyed):
    """Plain values alone."""

    _has_changed = "a class attribute of the author"

    count: int = state.value(7)
    text: str | None = state.value(None)


def type_of(cls: type[state.Keyed]) -> StateType:
    """The type of the live state of an author's class."""
    operator = Process("o", key_by="y", state=cls, function=lambda key, records, held: None)
    pipeline = Pipeline(name="points", source=KafkaSource("points", Point), operators=[operator])
    return Processing.of(operator, pipeline.schemas()["o"], 1).state


TYPES: dict[type[state.Keyed], StateType] = {cls: type_of(cls) for cls in (Held, Plain)}
INITIAL = {"count": 7, "text": None}
FITS: dict[str, st.SearchStrategy[Any]] = {"count": st.integers(-(2**63), 2**63 - 1), "text": st.text(max_size=3)}
MISFITS: dict[str, list[tuple[Any, type[Exception]]]] = {
    "count": [(True, TypeError), ("1", TypeError), (1.0, TypeError), (2**63, DoesNotFit)],
    "text": [(b"a", TypeError), (1, TypeError), ("\ud800", TypeError)],
}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from(["count", "text"]), st.data()),
        st.tuples(st.sampled_from(["none", "misfit", "delete"]), st.sampled_from(["count", "text"]), st.data()),
        st.tuples(st.just("clear"), st.just(""), st.none()),
        st.tuples(st.just("unknown"), st.sampled_from(["count__at", "_key_clock", "other"]), st.none()),
    ),
    max_size=8,
)
STORED = st.fixed_dictionaries(
    {n: st.one_of(st.none(), st.tuples(FITS[n], st.integers(0, 9))) for n in ("count", "text")}
)


def act(live: Any, model: dict[str, Any], now: int, step: Any) -> bool:
    """Does one step to the live state and to a dict; returns whether anything was assigned or cleared."""
    what, name, data = step
    if what == "set":
        value = data.draw(FITS[name])
        setattr(live, name, value)
        model[name] = (value, now)
        return True
    if what in ("none", "clear"):
        names = [name] if what == "none" else ["count", "text"]
        had = any(model[n] is not None for n in names)
        live.clear() if what == "clear" else setattr(live, name, None)
        model.update(dict.fromkeys(names))
        return had
    if what == "misfit":
        value, kind = data.draw(st.sampled_from(MISFITS[name]))
        with pytest.raises(kind, match=f"^{name}: "):
            setattr(live, name, value)
    elif what == "delete":
        with pytest.raises(AttributeError, match=name):
            delattr(live, name)
    else:
        with pytest.raises(AttributeError, match=f"has no field '{name}'"):
            setattr(live, name, 1)
    return False


@given(cls=st.sampled_from([Held, Plain]), stored=STORED, steps=STEPS, as_tuple=st.booleans())
def test_plain_values_are_read_assigned_and_cleared_as_a_dict_of_values_and_times(
    cls: type[state.Keyed], stored: dict[str, Any], steps: list[Any], as_tuple: bool
) -> None:
    of, clock, model = TYPES[cls], KeyClock(10, None), {n: stored[n] for n in INITIAL}
    row = {k: v for n, found in model.items() for k, v in zip((n, f"{n}__at"), found or (None, None), strict=True)}
    is_whole = as_tuple and cls is Plain and None not in stored.values()
    rows: list[Any] = [tuple(row.values()) if is_whole else row | {"steps": None}] if any(stored.values()) else []
    live, cells = of.open(rows, clock)
    assert isinstance(live, cls)
    changed = False
    for step in steps:
        clock.now += 1
        changed = act(live, model, clock.now, step) or changed
        for name, found in model.items():
            assert getattr(live, name) == (INITIAL[name] if found is None else found[0])
    result = of.settle(live, cells)
    assert result.changed == changed
    if changed:
        columns = [part for found in model.values() for part in found or (None, None)]
        assert list(result.columns[:4]) == columns
        assert result.is_empty == (not any(model.values()))
        text = model["text"]
        assert result.size == (8 if model["count"] else 0) + (0 if text is None else len(text[0]))


def test_a_copy_is_apart_and_compares_by_its_fields() -> None:
    live, _ = TYPES[Plain].open([(1, 5, "a", 5)], KeyClock(10, None))
    kept = copy.deepcopy(live)
    live.count += 1
    assert (live.count, kept.count) == (2, 1)
    assert live != kept and live == Plain(count=2, text="a")
    assert repr(live) == "Plain(count=2, text='a')"
    assert Plain._has_changed == "a class attribute of the author"
