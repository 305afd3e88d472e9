"""The steps of publications as the store has them; `coordinator.publications` puts them."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tidemark.coordinator.records.objects import Objects, Series
from tidemark.declare.publications import KINDS, thaw
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.retention.publication_records import PublicationBegun, PublicationDone, PublicationMode


@dataclass(frozen=True, slots=True)
class PublicationSteps:
    """The steps of the publications of one pipeline."""

    objects: Objects

    def series(self, name: str) -> Series[PublicationBegun]:
        """The steps of a publication, numbered."""
        return Series(
            self.objects, PublicationBegun, f"publications/{name}/begun/", lambda n: keys.publication_key(name, n)
        )

    def names(self) -> list[str]:
        """Names of all publications that were ever begun, sorted."""
        return sorted({key.split("/")[1] for key in self.objects.list("publications/")})

    def newest(self, name: str) -> PublicationBegun | None:
        """The newest step of a publication, done or not; None if there is none."""
        return self.series(name).newest()[1]

    def done(self, begun: PublicationBegun) -> PublicationDone | None:
        """The end of a step; None if it is not done."""
        return self.objects.read(PublicationDone, keys.publication_done_key(begun.name, begun.number))

    def previous(self, begun: PublicationBegun) -> PublicationBegun | None:
        """The step before another one; None if that is the first."""
        number = begun.number - 1
        return self.objects.read(PublicationBegun, keys.publication_key(begun.name, number)) if number else None

    def last_done(self, name: str) -> tuple[PublicationBegun, PublicationDone] | None:
        """The newest step that is done."""
        return next(self.list_done(name), None)

    def list_done(self, name: str) -> Iterator[tuple[PublicationBegun, PublicationDone]]:
        """The steps of a publication that are done, newest first."""
        begun = self.newest(name)
        while begun is not None:
            done = self.done(begun)
            if done is not None:
                yield begun, done
            begun = self.previous(begun)

    def standing(self) -> dict[str, PublicationBegun]:
        """The newest step of each publication that was not dropped, by name."""
        found = {name: self.newest(name) for name in self.names()}
        return {n: b for n, b in found.items() if b is not None and not self._is_dropped(b)}

    def places(self, uids: Collection[str]) -> dict[str, str]:
        """The targets of standing publications of some operators, by name."""
        return {name: _place(begun) for name, begun in self.standing().items() if begun.uid in uids}

    def _is_dropped(self, begun: PublicationBegun) -> bool:
        return begun.mode is PublicationMode.DROP and self.done(begun) is not None


def _place(begun: PublicationBegun) -> str:
    """The place of a target, even if only a later release knows its kind."""
    if begun.kind not in KINDS:
        return f"{begun.kind} {', '.join(begun.options.values())}"
    return thaw(begun.kind, begun.name, begun.options).place
