"""Fields of a record that do not come from its payload: Kafka's own, such as a header, and those of an envelope.

A function such as `kafka.header("tenant")` returns an `Origin` as the default of a dataclass field. The field's type
names it (`FieldType.origin`), and the reader of the records fills the field.
"""

from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, make_dataclass
from functools import cache
from typing import Any, get_type_hints

HEADER = "kafka.header:"
"""Begins the origin of a header; its name follows."""
ENVELOPE = "envelope"
"""What a plan pins in addition to the format of an input: the envelope's fields and their origins, as JSON."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a field comes from; the default of the field until a reader fills it.

    Attributes:
        name: `kafka.timestamp`, `kafka.key`, `kafka.topic`, `kafka.partition`, `kafka.offset`, or `kafka.header:` and
            the name of a header.
        kinds: the types that the field may have, as `FieldType.kind`.
        nullable: whether the field may be optional.
    """

    name: str
    kinds: tuple[str, ...]
    nullable: bool = False

    def __repr__(self) -> str:
        call, _, given = self.name.partition(":")
        return f"{call}({given!r})" if given else f"{call}()"

    @property
    def family(self) -> str:
        """Who fills the field: `kafka`, or the name of a format."""
        return self.name.partition(".")[0]


def origins_of(record: object, family: str) -> dict[str, Origin]:
    """Returns the fields of a record dataclass that a family fills; none if it is no dataclass."""
    if not (isinstance(record, type) and is_dataclass(record)):
        return {}
    found = {f.name: f.default for f in fields(record) if isinstance(f.default, Origin)}
    return {name: origin for name, origin in found.items() if origin.family == family}


@cache
def without_origins(record: type, family: str) -> type:
    """Returns a dataclass of the same name without the fields that a family fills."""
    left = [f for f in fields(record) if f.name not in origins_of(record, family)]
    hints = get_type_hints(record, include_extras=True)
    made = [(f.name, hints[f.name], _copied(f)) for f in left]
    return make_dataclass(record.__name__, made, frozen=True, kw_only=True)


def _copied(f: "Field[Any]") -> Any:  # noqa: ANN401
    if f.default_factory is not MISSING:
        return field(default_factory=f.default_factory)
    return field() if f.default is MISSING else field(default=f.default)
