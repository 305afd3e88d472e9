"""What the parts of a declaration put into a pipeline's fingerprint: all that decides results."""

from types import CodeType
from typing import Any

from tidemark.model.type_json import type_to_json
from tidemark.operators import Operator, Process
from tidemark.sources import KafkaSource


def of_source(source: KafkaSource) -> dict[str, Any]:
    """What decides how its records are read."""
    return {
        "record": type_to_json(source.schema),
        "event_time": source.event_time,
        "isolation": source.isolation,
    }


def of_operator(operator: Operator) -> dict[str, Any]:
    """What of an operator decides results, beside its stored schema."""
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


def code_text(function: object) -> str:
    """What a function does, as text: its name, constants and byte code, those of inner functions included."""
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{name} {_code(code)}" if isinstance(code, CodeType) else name


def _code(code: CodeType) -> str:
    return f"{code.co_code.hex()} {[_constant(c) for c in code.co_consts]} {code.co_names}"


def _constant(value: object) -> str:
    if isinstance(value, frozenset):
        # The order of a set of texts is another one in each process.
        return f"frozenset({sorted(map(repr, value))})"
    return _code(value) if isinstance(value, CodeType) else repr(value)
