"""One field of a state class as data, and what its kind and its annotation have to do with each other."""

from dataclasses import dataclass, field, replace
from typing import Any

from tidemark.errors import DeclarationError
from tidemark.model.aggregates import Aggregate
from tidemark.model.ttl import Ttl
from tidemark.model.types import FieldType, holds_map

_COLLECTIONS = ("distinct", "list", "list_of_values", "map")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDescriptor:
    """One declared field of keyed state (A7): a name, a kind, a type; the rows are elsewhere.

    Attributes:
        kind: of a fold `count sum min max first latest mean distinct list aggregate reduce`; of a process `value
            list_of_values map`.
        source: dotted path of the record field that is folded; empty for `count`, for texts, and for a process.
        name: the field's name; set when the class is made.
        type: its type; set when the class is made.
        ignore_nulls: `first` and `latest` skip records in which the field is null.
        limit: of `distinct` and `list`: more values than this are an error that names the key.
        initial: of `value`: what a key without it has.
        ttl: how long it lives after its last access; None = for ever.
        aggregate: of `aggregate` and `reduce`: its texts.
        was: the name that the field had before, where it was renamed: its state is carried over.
        hint: the annotation, resolved; set when the class is made.
    """

    kind: str
    source: str = ""
    name: str = ""
    type: FieldType = FieldType("int")
    ignore_nulls: bool = False
    limit: int = 1000
    initial: Any = None
    ttl: Ttl | None = None
    aggregate: Aggregate | None = None
    was: str = ""
    hint: Any = field(default=None, compare=False)

    @property
    def default(self) -> object:
        """What a key has that has no such state; a new object each time where it can be changed."""
        if self.kind == "map":
            return {}
        if self.kind in _COLLECTIONS:
            return []
        return 0 if self.kind == "count" and self.ttl is None else self.initial

    @property
    def is_process(self) -> bool:
        """Whether it belongs in a `Process`."""
        return self.kind in ("value", "list_of_values", "map")


def annotated(declared: StateDescriptor, name: str, found: FieldType, where: str) -> StateDescriptor:
    """A descriptor with its name and its type.

    Raises:
        DeclarationError: the kind cannot be of that type.
    """
    kinds = {"count": "int", "mean": "float", "distinct": "list", "list": "list", "list_of_values": "list"}
    wanted = {**kinds, "map": "map"}.get(declared.kind)
    shown = declared.kind.partition("_")[0]
    if wanted is not None and found.kind != wanted:
        words = {"list": "list[...]", "map": "dict[..., ...]"}.get(wanted, wanted)
        raise DeclarationError(f"{where}: state.{shown} is {wanted}, declared {found.kind}", next=f"declare {words}.")
    _refuse_dicts(declared.kind, shown, found, where)
    if declared.kind in _COLLECTIONS:
        return replace(declared, name=name, type=found.with_null(False))
    if declared.ttl is not None and not found.nullable:
        raise DeclarationError(
            f"{where}: a field with a ttl may be absent", next="declare it `... | None`, or leave ttl out."
        )
    if declared.kind == "reduce" and declared.aggregate is not None:
        own = replace(declared.aggregate, accumulators=(("value", found.with_null(True)),))
        declared = replace(declared, aggregate=own)
    is_optional = found.nullable if declared.kind == "value" else declared.kind != "count" or declared.ttl is not None
    if declared.kind == "value" and declared.initial is None and not found.nullable:
        raise DeclarationError(f"{where}: never None, but state.value(None)", next="declare `... | None`.")
    return replace(declared, name=name, type=found.with_null(is_optional))


def _refuse_dicts(kind: str, shown: str, found: FieldType, where: str) -> None:
    """Entries are rows of their own, so only a map's own dict can be stored."""
    if kind == "map":
        if found.element is not None and holds_map(found.element):
            raise DeclarationError(
                f"{where}: a dict inside a dict",
                next="use one key for both levels, as in f'{a}/{b}', or a list of a dataclass with a key and a value.",
            )
    elif holds_map(found):
        raise DeclarationError(f"{where}: a dict inside state.{shown}", next="declare `dict[..., ...] = state.map()`.")
