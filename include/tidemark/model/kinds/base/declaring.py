"""Descriptors of declared fields, for the functions of `tidemark.state`."""

from datetime import timedelta
from typing import Any, TypedDict

from tidemark.errors import DeclarationError
from tidemark.model.core.ttl import Ttl, as_ttl
from tidemark.model.kinds.base.kind import StateDescriptor

TimeToLive = timedelta | Ttl | None


class Kept(TypedDict, total=False):
    """The options of every kind."""

    ttl: TimeToLive
    was: str


def over_field(kind: str, source: str, *, ttl: TimeToLive, **options: Any) -> StateDescriptor:
    """Returns the descriptor of a kind that folds a record field.

    Raises:
        DeclarationError: `source` is not the path of a field.
    """
    return StateDescriptor(kind=kind, source=named_field(kind, source), ttl=as_ttl(ttl), **options)


def named_field(kind: str, path: object) -> str:
    """Returns the path of a record field.

    Raises:
        DeclarationError: it is not a path.
    """
    if not (isinstance(path, str) and path):
        raise DeclarationError(
            f"state.{kind}({path!r})", next="name the record field to fold, as in state.sum('distance')."
        )
    return path


def checked_limit(kind: str, limit: int) -> int:
    """Returns the limit.

    Raises:
        DeclarationError: it is below 1.
    """
    if limit < 1:
        raise DeclarationError(f"state.{kind}(limit={limit})", next="give a limit of at least 1.")
    return limit
