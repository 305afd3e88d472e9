"""The protocol of a record format, with what most formats answer."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tidemark.model.core.types import FieldType, record_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FAULT, GOOD = "_fault", "_good"
"""Columns that `RecordFormat.decode` adds."""


class BadRecord(ValueError):  # noqa: N818  (an answer of a decoder, not an error of ours)
    """Why a record cannot be applied; the text of the `reason` column."""


@dataclass(frozen=True)
class RecordFormat(ABC):
    """What the bytes of a Kafka value mean: a frozen dataclass whose fields, all texts, are the format's options.

    `decode` and `decode_one` give the same answer for the same bytes. A null value is always refused with
    `null_value`: operators that take deletes know them by it.

    Attributes:
        name: what plans carry; never changed.
        reasons: how the reasons of its dead letters begin, in the order of its checks.
    """

    name: ClassVar[str]
    reasons: ClassVar[tuple[str, ...]]

    def bind(self, record: type) -> FieldType:
        """The struct of a record dataclass, checked against what the format can fill.

        Raises:
            DeclarationError: a field has a type that no value of the format can have.
        """
        return record_type(record)

    @abstractmethod
    def decode(self, raw: "DataFrame", record: FieldType) -> "DataFrame":
        """Decodes `value` in Spark; only here may a format import Spark.

        Args:
            raw: rows with the columns `key` and `value` of Kafka, and others.
            record: the struct that `bind` made.

        Returns:
            The same rows with two more columns: `_fault`, why the value is refused, null where it is good; and
            `_good`, a struct of type `record`, with any content where `_fault` is not null.
        """

    @abstractmethod
    def decode_one(self, value: bytes | None, record: FieldType) -> dict[str, Any]:
        """The fields of one record, decoded in Python: for pages, tests and whatever has no Spark.

        Args:
            value: of the Kafka record.
            record: the struct that `bind` made, or one with some of its fields.

        Raises:
            BadRecord: the value is refused; the text is the reason.
        """

    @abstractmethod
    def encode(self, record: object) -> bytes:
        """A value that decodes to a record, for `tidemark.testing`.

        Args:
            record: an instance of the record dataclass, or a mapping with its fields.
        """

    def freeze(self) -> Mapping[str, str]:
        """What a plan pins, so that readers without the declaration decode as the checkpoint did.

        It is part of the pipeline's fingerprint as well. `registry.format_of` is its inverse.
        """
        return {"format": self.name, **asdict(self)}

    def render(self, raw: bytes) -> bytes:
        """A value as text for people, in UTF-8; the value itself where it is text already."""
        return raw
