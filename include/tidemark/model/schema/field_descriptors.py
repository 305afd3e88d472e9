"""One field of a state class as data, and the checks of its kind against its annotation."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tidemark.errors import DeclarationError
from tidemark.model.core.ttl import Ttl
from tidemark.model.core.types import FieldType, holds_map
from tidemark.model.kinds.base.lookup import state_kind
from tidemark.portable_sql.custom_aggregate import Aggregate

if TYPE_CHECKING:
    from tidemark.model.kinds.base.kind import StateKind


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDescriptor:
    """One declared field of keyed state: its name, kind and type; the rows are stored elsewhere.

    Attributes:
        kind: name of its kind; see `model.kinds`.
        source: dotted path of the folded record field; empty for `count`, expressions, and a process.
        name: name of the field; set when the class is created.
        type: its type; set when the class is created.
        ignore_nulls: `first` and `latest` skip records in which the field is null.
        limit: of `distinct` and `list`: more values are an error that names the key.
        initial: of `value`: the value of a key that has none.
        ttl: how long it lives after its last access; None = for ever.
        aggregate: of `aggregate` and `reduce`: the expressions.
        options: further options of the aggregate, by name; only some kinds have any.
        others: further record fields that it is computed from; only some kinds have any.
        was: the previous name of a renamed field: its state is carried over.
        hint: the annotation, resolved; set when the class is created.
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
    options: tuple[tuple[str, str], ...] = ()
    others: tuple[str, ...] = ()
    was: str = ""
    hint: Any = field(default=None, compare=False)

    @property
    def state_kind(self) -> "StateKind":
        """Its kind."""
        return state_kind(self.kind)

    @property
    def default(self) -> object:
        """The value of a key without such state; a new object each time if it is mutable."""
        return self.state_kind.default(self)

    @property
    def is_process(self) -> bool:
        """Whether it belongs in a `Process`."""
        return self.state_kind.is_process


def annotated(declared: StateDescriptor, name: str, found: FieldType, where: str) -> StateDescriptor:
    """Returns a descriptor with its name and type.

    Raises:
        DeclarationError: the kind cannot have that type.
    """
    kind = declared.state_kind
    wanted = kind.annotation
    if wanted and found.kind != wanted:
        words = {"list": "list[...]", "map": "dict[..., ...]"}.get(wanted, wanted)
        raise DeclarationError(
            f"{where}: state.{kind.shown} is {wanted}, declared {found.kind}", next=f"declare {words}."
        )
    _refuse_dicts(kind, found, where)
    if kind.is_collection:
        return replace(declared, name=name, type=found.with_null(False))
    if declared.ttl is not None and not found.nullable:
        raise DeclarationError(
            f"{where}: a field with a ttl may be absent", next="declare it `... | None`, or leave ttl out."
        )
    declared = kind.check_annotation(declared, found, where)
    return replace(declared, name=name, type=found.with_null(kind.is_optional(declared, found)))


def _refuse_dicts(kind: "StateKind", found: FieldType, where: str) -> None:
    """Refuses dicts inside other types: entries are separate rows, so only the dict of a map can be stored."""
    if kind.is_stored_by_entry:
        if found.element is not None and holds_map(found.element):
            raise DeclarationError(
                f"{where}: a dict inside a dict",
                next="use one key for both levels, as in f'{a}/{b}', or a list of a dataclass with a key and a value.",
            )
    elif holds_map(found):
        raise DeclarationError(
            f"{where}: a dict inside state.{kind.shown}", next="declare `dict[..., ...] = state.map()`."
        )
