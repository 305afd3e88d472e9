"""Formats whose values name their schema: Confluent's frame, a zero byte and the id of the schema in a registry.

A format that is declared has no schemas. The engine, the twin, pages and redrive decode by `bind_schemas(stored)`, a
copy with the texts that the warehouse holds, so a value means the same everywhere, and without the registry.
"""

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from tidemark.formats.record_format import BadRecord, RecordFormat
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.core.names import checked_name
from tidemark.model.schema.registry_schemas import Schemas, SchemaText

if TYPE_CHECKING:
    from collections.abc import Mapping

MAGIC = b"\x00"
FRAME = 5
"""Bytes of the frame: the magic byte and the id."""
LONGEST = 8 * 2**20
"""Bytes of the longest value that is decoded: few bytes can name many objects, so memory has to have a bound."""


@dataclass(frozen=True)
class RegistryFormat(RecordFormat):
    """A format whose values may begin with a frame. Its option `registry` is the name of the registry.

    Attributes:
        registry: names the registry under which the warehouse keeps schemas. Ids of another registry mean other
            schemas, so it gets another name.
    """

    registry: str = "default"

    @property
    def needs_schemas_of(self) -> str | None:
        """See `RecordFormat`."""
        return None if "_schemas" in vars(self) else self.registry

    def __post_init__(self) -> None:
        checked_name("registry", self.registry)

    def bind_schemas(self, schemas: Schemas) -> Self:
        """See `RecordFormat`."""
        made = copy(self)
        # Not a field: plans pin fields, and two formats with the same declaration are equal.
        object.__setattr__(made, "_schemas", schemas)
        return made

    @property
    def schemas(self) -> Schemas:
        """The schemas to decode by; none in a declaration."""
        found: Schemas | None = vars(self).get("_schemas")
        return Schemas() if found is None else found

    def freeze(self) -> "Mapping[str, str]":
        """See `RecordFormat`; options at their defaults are left out."""
        empty = type(self)()
        pinned = super().freeze()
        return {name: text for name, text in pinned.items() if name == "format" or text != getattr(empty, name)}

    def unframe(self, value: bytes | None, malformed: Reason) -> tuple[int, SchemaText, bytes]:
        """Returns the id of a value's schema, the schema, and the bytes behind the frame.

        Args:
            value: value of the Kafka record.
            malformed: the format's reason for a value without a frame.

        Raises:
            BadRecord: it is null, too long, without a frame, or its schema is unknown.
        """
        whole = checked_length(value)
        if len(whole) < FRAME or whole[:1] != MAGIC:
            raise BadRecord(malformed.at("no frame"))
        id = int.from_bytes(whole[1:FRAME])
        found = self.schemas.texts.get(id)
        if found is None:
            raise BadRecord(Reason.UNKNOWN_SCHEMA.at(str(id)))
        return id, found, whole[FRAME:]


def checked_length(value: bytes | None) -> bytes:
    """Returns a value that is there and not too long to decode.

    Raises:
        BadRecord: it is null, or longer than `LONGEST`.
    """
    if value is None:
        raise BadRecord(Reason.NULL_VALUE.value)
    if len(value) > LONGEST:
        raise BadRecord(Reason.TOO_LARGE.value)
    return value


def frame(id: int, body: bytes) -> bytes:
    """Returns a body behind the frame that names its schema.

    >>> frame(7, b"body").hex(" ", 1)
    '00 00 00 00 07 62 6f 64 79'
    """
    return MAGIC + id.to_bytes(4) + body
