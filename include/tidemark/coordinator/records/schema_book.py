"""The schemas of registries as the store keeps them: the first answer for an id is stored, and decides from then on.

An id and its texts are put before a record is decoded by them, so that every later attempt, fork and replay decodes
alike, with the registry or without it.

Texts are put before the object of the id that names them, so a process that dies in between leaves texts that nothing
names, and the next attempt asks again.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tidemark.coordinator.records.objects import Objects
from tidemark.coordinator.records.timelines import Timelines
from tidemark.errors import CorruptObjectError, SchemaChangedError
from tidemark.model.checkpoint.manifest import BatchFacts
from tidemark.model.checkpoint.object_keys import number_of, schema_folder, schema_key, schema_text_key
from tidemark.model.schema.registry_schemas import Schemas, SchemaText, StoredSchema
from tidemark.ports import StepListener
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

    def all(self) -> dict[str, list[int]]:
        """Returns the ids with a stored answer, ascending, per registry."""
        # Texts are next to the folders of registries.
        names = {parts[1] for key in self.objects.list("schemas/") if len(parts := key.split("/")) > 2}
        return {registry: self.ids(registry) for registry in sorted(names)}

    def require(self, registry: str, id: int) -> SchemaText:
        """Returns the stored answer for an id by which records were decoded.

        Raises:
            CorruptObjectError: the answer or a text is gone or damaged.
        """
        found = self.find(registry, id)
        if found is None:
            key = schema_key(registry, id)
            raise CorruptObjectError(
                f"object damaged: {key}: it is gone",
                safe="nothing was written.",
                next="restore the object from a backup of the warehouse.",
            )
        return found

    def flaws(self, registry: str, id: int) -> dict[str, str]:
        """Returns, by key, the damage of the objects that an id needs; empty if they are whole.

        Raises:
            StoreError: the store could not be read.
        """
        key = schema_key(registry, id)
        try:
            stored = self.objects.read(StoredSchema, key)
        except CorruptObjectError as error:
            return {key: error.what}
        if stored is None:
            return {key: "it is gone"}
        found = dict[str, str]()
        for name in (stored.text, *(of for _, of in stored.references)):
            try:
                self.objects.text(schema_text_key, name)
            except CorruptObjectError as error:
                found[schema_text_key(name)] = error.what
        return found

    def bind(self, format: AnyFormat, facts: BatchFacts | None = None) -> AnyFormat:
        """Returns a format that decodes by stored schemas; it asks no registry.

        Args:
            format: the format.
            facts: of the completed checkpoint as which it decodes; None = by all schemas that are stored.

        Raises:
            CorruptObjectError: a schema by which the checkpoint decoded is gone or damaged.
        """
        registry = format.needs_schemas_of
        if registry is None:
            return format
        if facts is not None and registry in facts.schemas:
            return format.bind_schemas(Schemas({id: self.require(registry, id) for id in facts.schemas[registry]}))
        # The checkpoint decoded nothing, or its manifest is older than the list.
        unknown = () if facts is None else facts.unknown_schemas.get(registry, ())
        known = [id for id in self.ids(registry) if id not in unknown]
        found = {id: text for id in known if (text := self.find(registry, id)) is not None}
        return format.bind_schemas(Schemas(found))


RECALLED = 16
"""The most schemas that are taken over from the parent. Lists grow until they are longer; then only ids count that the
records name.
"""


@dataclass
class StoredBook:
    """The schemas of one attempt's records; see `ports.registries.SchemaBook`.

    Attributes:
        stored: the schemas in the store.
        registry: is asked for ids that are not stored.
        listener: called around the steps `schemas.ask` and `schemas.store`, which lie inside `read`.
    """

    stored: StoredSchemas
    registry: SchemaRegistry
    listener: StepListener
    _texts: dict[str, dict[int, SchemaText]] = field(default_factory=dict)
    _unknown: dict[str, set[int]] = field(default_factory=dict)

    @property
    def known(self) -> Mapping[str, tuple[int, ...]]:
        """See `ports.registries.SchemaBook`."""
        return {registry: tuple(sorted(texts)) for registry, texts in sorted(self._texts.items()) if texts}

    @property
    def unknown(self) -> Mapping[str, tuple[int, ...]]:
        """See `ports.registries.SchemaBook`."""
        return {registry: tuple(sorted(ids)) for registry, ids in sorted(self._unknown.items()) if ids}

    def bind(self, format: AnyFormat) -> AnyFormat:
        """See `ports.registries.SchemaBook`."""
        registry = format.needs_schemas_of
        return format if registry is None else format.bind_schemas(Schemas(dict(self._texts.get(registry, {}))))

    def recall(self, registry: str, parent: int | None) -> bool:
        """See `ports.registries.SchemaBook`."""
        found = None if parent is None else Timelines(self.stored.objects).find(parent)
        ids = () if found is None else found.sealed.facts.schemas.get(registry, ())
        if not 0 < len(ids) <= RECALLED:
            return False
        try:
            texts = {id: self.stored.require(registry, id) for id in ids}
        except CorruptObjectError:
            # Perhaps no record names it. If one does, `learn` heals it or raises the error.
            return False
        self._texts.setdefault(registry, {}).update(texts)
        return True

    def learn(self, registry: str, ids: Collection[int]) -> None:
        """See `ports.registries.SchemaBook`."""
        texts, unknown = self._texts.setdefault(registry, {}), self._unknown.setdefault(registry, set())
        new = list[int]()
        for id in sorted(set(ids) - unknown - texts.keys()):
            found = self._find(registry, id)
            if found is None:
                new.append(id)
            else:
                texts[id] = found
        if new:
            self._ask(registry, new)

    def _find(self, registry: str, id: int) -> SchemaText | None:
        try:
            return self.stored.find(registry, id)
        except CorruptObjectError:
            # If a text is gone, the registry may still have it. `put` raises the error again if it does not.
            return None

    def _ask(self, registry: str, new: Collection[int]) -> None:
        # One known id is asked for again, to notice another registry before records are decoded by its ids.
        known = [id for id in self.stored.ids(registry) if id not in new][-1:]
        self.listener("schemas.ask", "before")
        answers = self.registry.ask(registry, new, known)
        self.listener("schemas.ask", "after")
        self.listener("schemas.store", "before")
        for id in (*known, *new):
            if id in answers:
                stored = self.stored.put(registry, id, answers[id])
                if id in new:
                    self._texts[registry][id] = stored
            elif id in new:
                self._unknown[registry].add(id)
        self.listener("schemas.store", "after")


def _changed(registry: str, id: int, pipeline: str) -> SchemaChangedError:
    return SchemaChangedError(
        f"schema changed: the registry {registry!r} has another schema under id {id} than the one by which {pipeline}"
        " decodes",
        safe="every completed checkpoint is intact; no record was decoded by the other schema.",
        next="point TIDEMARK_SCHEMA_REGISTRY at the earlier registry, or declare this one under a name of its own:"
        ' formats.Avro(registry="NAME").',
    )
