"""Answers as JSON values."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def body_of(answer: object) -> Any:  # noqa: ANN401
    """Returns an answer, or a list of answers, as JSON values; fields keep their order.

    A field whose name would be a keyword of Python ends in an underscore, which the body leaves out.
    """
    if is_dataclass(answer) and not isinstance(answer, type):
        return {f.name.removesuffix("_"): body_of(getattr(answer, f.name)) for f in fields(answer)}
    if isinstance(answer, Mapping):
        return {name: body_of(value) for name, value in answer.items()}
    if isinstance(answer, list | tuple):
        return [body_of(value) for value in answer]
    return answer
