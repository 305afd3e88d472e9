"""The schemas of registries as the store keeps them: the first answer for an id is stored, and decides from then on.

An id and its texts are put before a record is decoded by them, so that every later attempt, fork and replay decodes
alike, with the registry or without it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tidemark.coordinator.records.objects import Objects
from tidemark.errors import SchemaChangedError
from tidemark.model.checkpoint.object_keys import number_of, schema_folder, schema_key, schema_text_key
from tidemark.model.schema.registry_schemas import Schemas, SchemaText, StoredSchema
from tidemark.ports.registries import AnyFormat, SchemaRegistry


@dataclass(frozen=True, slots=True)
class StoredSchemas:
    """Reads and writes the schemas in one pipeline's store."""

    objects: Objects

    def find(self, registry: str, id: int) -> SchemaText | None:
        """Returns the stored answer for an id; None if the registry has not been asked, or did not know it.

        Raises:
            CorruptObjectError: a text is gone or damaged.
        """
        found = self.objects.read(StoredSchema, schema_key(registry, id))
        if found is None:
            return None
        texts = [self.objects.text(schema_text_key, name) for name in (found.text, *(of for _, of in found.references))]
        named = zip((name for name, _ in found.references), texts[1:], strict=True)
        return SchemaText(type=found.type, text=texts[0], references=tuple(named))

    def put(self, registry: str, id: int, answer: SchemaText) -> SchemaText:
        """Stores an answer unless there is one, and returns the stored one.

        Raises:
            SchemaChangedError: another schema is stored under the id.
        """
        text, *references = (
            self.objects.put_text(schema_text_key, text) for text in (answer.text, *(of for _, of in answer.references))
        )
        named = zip((name for name, _ in answer.references), references, strict=True)
        made = StoredSchema(registry=registry, id=id, type=answer.type, text=text, references=tuple(named))
        self.objects.put(schema_key(registry, id), made)
        stored = self.find(registry, id)
        if stored is None or not stored.means(answer):
            raise _changed(registry, id, self.objects.pipeline)
        return stored

    def ids(self, registry: str) -> list[int]:
        """Returns the ids with a stored answer, ascending."""
        return sorted(number_of(key) for key in self.objects.list(schema_folder(registry)))

    def bind(self, format: AnyFormat, unknown: Mapping[str, Collection[int]]) -> AnyFormat:
        """Returns a format that decodes as a completed checkpoint did; it asks no registry.

        Args:
            format: the format.
            unknown: `BatchFacts.unknown_schemas` of the checkpoint.
        """
        registry = format.needs_schemas_of
        if registry is None:
            return format
        known = [id for id in self.ids(registry) if id not in unknown.get(registry, ())]
        found = {id: text for id in known if (text := self.find(registry, id)) is not None}
        return format.bind_schemas(Schemas(found))


@dataclass
class StoredBook:
    """The schemas of one attempt's records; see `ports.registries.SchemaBook`.

    Attributes:
        stored: the schemas in the store.
        registry: is asked for ids that are not stored.
    """

    stored: StoredSchemas
    registry: SchemaRegistry
    _texts: dict[str, dict[int, SchemaText]] = field(default_factory=dict)
    _unknown: dict[str, set[int]] = field(default_factory=dict)

    @property
    def unknown(self) -> Mapping[str, tuple[int, ...]]:
        """See `ports.registries.SchemaBook`."""
        return {registry: tuple(sorted(ids)) for registry, ids in sorted(self._unknown.items()) if ids}

    def bind(self, format: AnyFormat) -> AnyFormat:
        """See `ports.registries.SchemaBook`."""
        registry = format.needs_schemas_of
        return format if registry is None else format.bind_schemas(Schemas(dict(self._texts.get(registry, {}))))

    def learn(self, registry: str, ids: Collection[int]) -> None:
        """See `ports.registries.SchemaBook`."""
        texts, unknown = self._texts.setdefault(registry, {}), self._unknown.setdefault(registry, set())
        new = list[int]()
        for id in sorted(set(ids) - unknown - texts.keys()):
            found = self.stored.find(registry, id)
            if found is None:
                new.append(id)
            else:
                texts[id] = found
        if new:
            self._ask(registry, new)

    def _ask(self, registry: str, new: Collection[int]) -> None:
        # One known id is asked for again, to notice another registry before records are decoded by its ids.
        known = self.stored.ids(registry)[-1:]
        answers = self.registry.ask(registry, new, known)
        for id in (*known, *new):
            if id in answers:
                self._texts[registry][id] = self.stored.put(registry, id, answers[id])
            elif id in new:
                self._unknown[registry].add(id)


def _changed(registry: str, id: int, pipeline: str) -> SchemaChangedError:
    return SchemaChangedError(
        f"schema changed: the registry {registry!r} has another schema under id {id} than the one by which {pipeline}"
        " decodes",
        safe="every completed checkpoint is intact; no record was decoded by the other schema.",
        next="point TIDEMARK_SCHEMA_REGISTRY at the earlier registry, or declare this one under a name of its own:"
        ' formats.Avro(registry="NAME").',
    )
