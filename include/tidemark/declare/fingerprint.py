"""The fingerprint of a pipeline: the parts of each declaration that decide results."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from types import CodeType, FunctionType
from typing import Any

from tidemark.declare.operators import Operator, Process
from tidemark.declare.sources import KafkaSource
from tidemark.model.core.type_json import type_to_json

BESIDE = "@"
"""Starts the suffix of a module name that only distinguishes files of one name in one process (`discovery`)."""

_PLAIN = (str, bytes, int, float, date, time, timedelta, Decimal, Enum)
"""Types whose `repr` is the same in every process."""


def of_source(source: KafkaSource) -> dict[str, Any]:
    """Returns the parts of a source that decide how its records are read."""
    found = {"record": type_to_json(source.schema), "event_time": source.event_time, "isolation": source.isolation}
    pinned = dict(source.format.freeze())
    return found | ({"format": pinned} if pinned else {})


def of_operator(operator: Operator) -> dict[str, Any]:
    """Returns the parts of an operator that decide results, in addition to its stored schema."""
    found: dict[str, Any] = {"uid": operator.uid, "input": operator.input}
    if isinstance(operator, Process):
        emitted = operator.emitted
        found |= {
            "function": code_text(operator.function),
            "emits": None if emitted is None else type_to_json(emitted),
            "order": operator.order,
            "on_error": operator.on_error,
            "max_state_bytes": operator.max_state_bytes,
        }
        if operator.lists:
            lists = operator.lists.lists
            found["operator_state"] = [[x.name, x.mode.value, type_to_json(x.element)] for x in lists]
    return found


def of_gate(gate: Callable[..., object] | None) -> str | None:
    """Returns the name of a gate; it is the same in a process that has imported another file of that name before."""
    return None if gate is None else f"{gate.__module__.partition(BESIDE)[0]}.{gate.__qualname__}"


def code_text(function: object) -> str:
    """Returns the text of a function: its name, constants and byte code, and what its own module adds to it.

    Functions of the same module that it calls count with their own text, and plain values with theirs, so correcting a
    limit in a constant or a helper changes the code. Classes, and everything in other modules, count by name only.
    """
    return _text(function, set())


def _text(function: object, seen: set[CodeType]) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    if not isinstance(function, FunctionType):
        return name
    seen.add(function.__code__)
    used = [
        f"{of}={text}" for of, value in _used(function) if (text := _text_of_used(function, value, seen)) is not None
    ]
    return " ".join([name, _code(function.__code__), *([f"[{', '.join(used)}]"] if used else [])])


def _used(function: FunctionType) -> Iterator[tuple[str, object]]:
    """Returns the names that a function, or one nested in it, may look up when it is called, with their values."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # the cell is still empty
            yield name, cell.cell_contents
    yield "defaults", function.__defaults__ or ()
    yield "keyword defaults", function.__kwdefaults__ or {}
    there = function.__globals__
    yield from ((name, there[name]) for name in sorted(_names(code)) if name in there)


def _names(code: CodeType) -> set[str]:
    inner = (_names(c) for c in code.co_consts if isinstance(c, CodeType))
    return set(code.co_names).union(*inner)


def _text_of_used(function: FunctionType, value: object, seen: set[CodeType]) -> str | None:
    """Returns the text of a value that a function uses; None if it is empty or counts by its name only."""
    if isinstance(value, FunctionType):
        known = value.__module__ != function.__module__ or value.__code__ in seen
        return None if known else _text(value, seen)
    return _plain(value) if _is_plain(value) and value not in ((), {}) else None


def _is_plain(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(_is_plain(k) and _is_plain(v) for k, v in value.items())
    if isinstance(value, tuple | list | set | frozenset):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, _PLAIN)


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_plain(k)}: {_plain(v)}' for k, v in value.items())}}}"
    if isinstance(value, set | frozenset):
        # The order of a set of texts differs between processes.
        return f"set({sorted(map(_plain, value))})"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_plain, value))})"
    return repr(value)


def _code(code: CodeType) -> str:
    return f"{code.co_code.hex()} {[_constant(c) for c in code.co_consts]} {code.co_names}"


def _constant(value: object) -> str:
    if isinstance(value, frozenset):
        return f"frozenset({sorted(map(repr, value))})"
    return _code(value) if isinstance(value, CodeType) else repr(value)
