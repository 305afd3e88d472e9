"""Schemas of a registry as values: what a decoder needs of them, and how the store keeps them.

An id means nothing without its registry, and a registry may forget it, so the texts are part of the warehouse: the
first answer for an id is stored before a record is decoded by it, and every later attempt, fork and replay decodes by
the stored text.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaText:
    """The answer of a registry for one id.

    Attributes:
        type: `AVRO`, `JSON` or `PROTOBUF`.
        text: the schema.
        references: the schemas that it uses, directly or not, each as (the name that it is used by, its text). A
            schema comes after those that it uses itself.
    """

    type: str
    text: str
    references: tuple[tuple[str, str], ...] = ()

    def means(self, other: "SchemaText") -> bool:
        """Whether two answers are the same schema. Registries may format JSON differently after an upgrade.

        >>> SchemaText(type="AVRO", text='{"type": "int"}').means(SchemaText(type="AVRO", text='{"type":"int"}'))
        True
        """
        return (self.type, *map(_plain, self._texts)) == (other.type, *map(_plain, other._texts))

    @property
    def _texts(self) -> list[str]:
        return [self.text, *(part for reference in sorted(self.references) for part in reference)]


def _plain(text: str) -> object:
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchema:
    """What the store keeps of an id: `schemas/<registry>/<id>.json`. The texts are objects under their hashes.

    Attributes:
        registry: name of the registry, as declared.
        id: the id.
        type: see `SchemaText`.
        text: sha256 of the text.
        references: the names of `SchemaText.references`, each with the sha256 of its text.
    """

    registry: str
    id: int
    type: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Schemas:
    """The schemas by which records are decoded, by id; an id that is not there makes dead letters `unknown_schema`."""

    texts: Mapping[int, SchemaText] = field(default_factory=dict)

    def without(self, ids: Iterable[int]) -> "Schemas":
        """Returns all others."""
        left = set(ids)
        return Schemas({known: text for known, text in self.texts.items() if known not in left})
