"""The protocol of a record format, with defaults that suit most formats."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.core.types import FieldType, record_type
from tidemark.model.schema.registry_schemas import Schemas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FAULT, GOOD = "_fault", "_good"
"""The columns that `RecordFormat.decode` adds."""
ROW_KEY = "_row_key"
"""The column with `RecordFormat.row_key` of a format that has changes."""


Made = TypeVar("Made")
_MOST_HELD = 64


class PerRecordType(Generic[Made]):
    """What a format makes once per record type, by the identity of the type; another process makes it again.

    Args:
        make: makes it.
    """

    def __init__(self, make: Callable[[FieldType], Made]) -> None:
        self._make = make
        self._held: dict[int, tuple[FieldType, Made]] = {}

    def of(self, record: FieldType) -> Made:
        """Returns the object for a record type, and keeps the type, so that its identity stays its own."""
        held = self._held.get(id(record))
        if held is None:
            if len(self._held) >= _MOST_HELD:
                self._held.clear()
            held = self._held[id(record)] = (record, self._make(record))
        return held[1]

    def __getstate__(self) -> dict[str, Any]:
        return {"_make": self._make, "_held": {}}


class BadRecord(ValueError):  # noqa: N818  (a decoder's answer, not an error of Tidemark)
    """Why a record cannot be applied; the text becomes the `reason` column."""


def reason_prefixes(*reasons: Reason) -> tuple[str, ...]:
    """Returns the `reasons` of a built-in format, given in the order of its checks."""
    return tuple(reason.value for reason in reasons)


def decode_text(value: bytes | None) -> str:
    """Returns a value as the text that it is in UTF-8.

    Raises:
        BadRecord: it is null, or no UTF-8.
    """
    if value is None:
        raise BadRecord(Reason.NULL_VALUE.value)
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise BadRecord(Reason.INVALID_UTF8.value) from error


def fields_of(record: Any) -> Mapping[str, Any]:  # noqa: ANN401
    """Returns the fields of a record, which is a mapping or an instance of a dataclass, with or without `__dict__`.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(record, Mapping):
        return record
    return {f.name: getattr(record, f.name) for f in fields(record)}


@dataclass(frozen=True)
class RecordFormat(ABC):
    """Defines what the bytes of a Kafka value mean: a frozen dataclass whose fields, all `str`, are its options.

    A format needs `name`, `reasons`, `decode_one` and `encode`: Spark then decodes in its Python workers. `decode` is
    for formats that Spark's own expressions can decode. Both give the same result for the same bytes, and always refuse
    a null value with `null_value`, by which operators that accept deletes recognize one. See `formats.Text` for a short
    example.

    Attributes:
        name: stored in plans; never change it.
        reasons: prefixes of the reasons of its dead letters, in the order of its checks.
        has_changes: whether a record is the change of a row that the message key names, and deletes are no dead letters
            even for operators that take none (`formats.Debezium`).
        workers_from: the number of records from which `decode_one` in Spark's Python workers costs less than its
            expressions, the start of the workers included; None = never.
    """

    name: ClassVar[str]
    reasons: ClassVar[tuple[str, ...]]
    has_changes: ClassVar[bool] = False
    workers_from: ClassVar[int | None] = None

    @property
    def needs_schemas_of(self) -> str | None:
        """Name of the registry whose schemas the values name by Confluent's frame; None = none, or they are bound."""
        return None

    def bind_schemas(self, schemas: Schemas) -> Self:  # noqa: ARG002
        """Returns the same format, which decodes by these schemas of its registry; by default it uses none."""
        return self

    def bind(self, record: type) -> FieldType:
        """Returns the struct of a record dataclass, checked against what the format can fill.

        Raises:
            DeclarationError: no value of the format can have the type of a field.
        """
        return record_type(record)

    def decode(self, raw: "DataFrame", record: FieldType) -> "DataFrame":
        """Decodes `value` by expressions of Spark; a format may import Spark only here. By default there are none.

        Args:
            raw: rows with Kafka's columns `key` and `value`, and others.
            record: the struct that `bind` returned.

        Returns:
            The same rows with two more columns: `_fault`, the reason why the value is refused, null if it is good; and
            `_good`, a struct of type `record`, with arbitrary content if `_fault` is not null.
        """
        raise NotImplementedError

    @property
    def has_expressions(self) -> bool:
        """Whether `decode` is overridden; otherwise `decode_one` runs in Spark's Python workers."""
        return type(self).decode is not RecordFormat.decode

    @abstractmethod
    def decode_one(self, value: bytes | None, record: FieldType) -> dict[str, Any]:
        """Decodes the fields of one record in Python, for pages, tests and everything else without Spark.

        Args:
            value: value of the Kafka record.
            record: the struct that `bind` returned, or one with some of its fields.

        Raises:
            BadRecord: the value is refused; the text is the reason.
        """

    @abstractmethod
    def encode(self, record: object) -> bytes:
        """Returns a value that decodes to a record; `tidemark.testing` uses it.

        Args:
            record: an instance of the record dataclass, or a mapping with its fields.
        """

    def freeze(self) -> Mapping[str, str]:
        """Returns what a plan pins, so that readers without the declaration decode as the checkpoint did.

        It is also part of the pipeline's fingerprint. `known_formats.format_of` is its inverse.
        """
        return {"format": self.name, **asdict(self)}

    @classmethod
    def thaw(
        cls, options: Mapping[str, str], format_of: "Callable[[Mapping[str, str]], RecordFormat | None]"
    ) -> "RecordFormat | None":
        """Returns the format with pinned options, the inverse of `freeze`; None if it needs a format that is unknown.

        Args:
            options: what `freeze` returned, without `format`.
            format_of: finds a registered format, for formats that contain one.
        """
        return cls(**options)

    def row_key(self, key: bytes | None) -> bytes | None:
        """Returns the message key of a change as a JSON object by columns of the primary key, or bytes that are none.

        The object may be inside `payload`, next to a `schema`.
        """
        return None if key is None else self.render(key)

    def render(self, raw: bytes) -> bytes:
        """Returns a value as text for people, in UTF-8; a value that is text already is returned as it is."""
        return raw
