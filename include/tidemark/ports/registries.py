"""Ports of schema registries: what a registry answers, and the schemas by which one attempt decodes."""

from collections.abc import Callable, Collection, Mapping
from typing import Protocol, TypeVar

from tidemark.formats.record_format import RecordFormat
from tidemark.model.schema.registry_schemas import SchemaText

AnyFormat = TypeVar("AnyFormat", bound=RecordFormat)


class SchemaRegistry(Protocol):
    """Schema registries, by the names under which formats are declared."""

    def ask(self, registry: str, ids: Collection[int], again: Collection[int] = ()) -> Mapping[int, SchemaText]:
        """Returns the schemas with these ids, without those that the registry does not know, also when asked twice.

        Args:
            registry: name of the registry.
            ids: the ids to ask for.
            again: ids that are known already; of these the registry may have forgotten some.

        Raises:
            RegistryUnavailableError: the registry did not answer after several tries, or refused.
            UsageError: it has no address, or a setting is invalid.
        """


class SchemaBook(Protocol):
    """The schemas of one attempt's records: those that the warehouse holds, and new ones from the registry."""

    @property
    def known(self) -> Mapping[str, tuple[int, ...]]:
        """Per registry the ids by whose schemas records are decoded, of those in `learn`."""

    @property
    def unknown(self) -> Mapping[str, tuple[int, ...]]:
        """Per registry the ids that it does not know, of those in `learn`."""

    def recall(self, registry: str, parent: int | None) -> bool:
        """Takes the schemas by which a checkpoint decoded. Asks no registry.

        Args:
            registry: name of the registry.
            parent: the parent of the plan; None = there is none.

        Returns:
            Whether records are worth decoding by these before their ids are known: False if there are none, too many,
            or some are gone.

        Raises:
            StoreError: the store could not be read.
        """

    def learn(self, registry: str, ids: Collection[int]) -> None:
        """Finds the schemas of ids. New ones are stored in the warehouse before this returns.

        Raises:
            RegistryUnavailableError, UsageError: see `SchemaRegistry.ask`.
            SchemaChangedError: the registry has another schema under an id than the warehouse.
            CorruptObjectError, StoreError: the store could not be read or written.
        """

    def bind(self, format: AnyFormat) -> AnyFormat:
        """Returns a format that decodes by the schemas that were learned so far."""


OpenBook = Callable[[], SchemaBook]
"""Opens the book of an attempt; called only if the values of an input name schemas."""
