"""An export in a bucket: first the files, in a folder of this upload; then `export.json`, unless it exists already.

That object is the commit point: without it there is no export, and it is never replaced. It names the files by their
upload folder, so two uploads to one location never write the same object: the one that loses cannot damage the one that
wins, whatever they export and however late their requests arrive. Later uploads neither read nor overwrite the
leftovers of a killed upload: nothing names them, and you may remove them by hand.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tidemark.errors import ConflictError, NotFoundError, StoreError, TidemarkError, UsageError
from tidemark.model.retention.export_manifest import NAME, Export, ExportedFile
from tidemark.ports import PutOutcome, UncertainPut
from tidemark.storage.s3_folder import S3Folder
from tidemark.transfer.import_folder import damaged_export, size_flaw

_PROBE = "begun"
"""Object in an upload's folder that is put twice, to check that the store supports conditional writes."""


@dataclass(frozen=True, slots=True)
class S3Export:
    """An export, existing or future, in a folder of a bucket.

    Attributes:
        folder: the open folder.
    """

    folder: S3Folder

    def refuse_taken(self) -> None:
        """Returns if the store answers and has no export there; called before any work.

        Raises:
            UsageError: an export exists, or there are no credentials.
            NotFoundError: the bucket does not exist.
            StoreError: the store does not answer, or denies access.
        """
        self.folder.reach()
        if self.folder.get(NAME) is not None:
            raise UsageError(
                f"{self.folder.place.url} holds an export",
                safe="it was left alone.",
                next="name another folder, or remove that one.",
            )

    def probe(self, name: str) -> None:
        """Returns if the store can be written to and keeps the first of two objects with one name.

        Args:
            name: name of a subfolder that no other process ever writes to.

        Raises:
            NotFoundError: the bucket does not exist.
            StoreError: the store does not answer, denies access, or keeps the second object.
        """
        path = f"{name}/{_PROBE}"
        try:
            outcomes = [self.folder.put_if_absent(path, f"{n} {name}".encode()) for n in ("first", "second")]
        except UncertainPut as error:
            raise _silent(self.folder, path) from error
        finally:
            self._remove([path])
        if outcomes != [PutOutcome.WON, PutOutcome.LOST]:
            raise StoreError(
                f"{self.folder.place.url}: the store replaces an object that must not exist (If-None-Match is ignored)",
                safe="no export was begun: two of them could have spoiled each other.",
                next="use a newer release of the store, or export to a local folder and copy that.",
            )

    def publish(self, export: Export, local: Path, name: str) -> Export:
        """Uploads a folder, reads every file back, writes `export.json` last; an earlier failure removes the upload.

        Args:
            export: the description of the folder.
            local: the folder.
            name: name of the upload's subfolder, see `probe`.

        Returns:
            The export in the store.

        Raises:
            ConflictError: another export to this location completed first.
            StoreError: the store does not answer, denies access, or returns different bytes.
            OSError: the folder could not be read.
        """
        made, sent = export.below(name), list[str]()
        try:
            for f, there in zip(export.files, made.files, strict=True):
                sent.append(there.path)
                self.folder.send(there.path, local / f.path)
                self._compare(there)
        except BaseException:
            self._remove(sent)
            raise
        self._complete(made, sent)
        return made

    def _compare(self, f: ExportedFile) -> None:
        if self.folder.hash_of(f.path) != f.sha256:
            raise StoreError(
                f"{self.folder.place.url}/{f.path}: the store returns different bytes than were sent",
                safe="no export was completed.",
                next="export again; if that does not help, check the store.",
            )

    def _complete(self, made: Export, sent: Sequence[str]) -> None:
        # If this fails, the object may have been written anyway, so the files that it names must stay.
        try:
            outcome = self.folder.put_if_absent(NAME, made.encode())
        except UncertainPut as error:
            raise _silent(self.folder, NAME) from error
        if outcome is PutOutcome.LOST:
            self._remove(sent)
            raise ConflictError(
                f"another export to {self.folder.place.url} completed first",
                safe="that export is complete and unchanged.",
                next="name another folder.",
            )

    def _remove(self, paths: Sequence[str]) -> None:
        """Frees space, no more: if the store refuses, the objects stay, and nothing names them."""
        with suppress(TidemarkError):
            for path in paths:
                self.folder.remove(path)

    def fetch(self, to: Path) -> Export:
        """Downloads an export unchanged to a folder, where the caller must check the contents of its files.

        Args:
            to: an empty folder.

        Raises:
            NotFoundError: the bucket does not exist, or has no export here.
            DamagedError: objects are missing or have another size; the message names all of them.
            CorruptObjectError: `export.json` is damaged.
            StoreError: the store does not answer, or denies access.
            OSError: the disk refused.
        """
        self.folder.reach()
        raw = self.folder.get(NAME)
        if raw is None:
            raise NotFoundError(
                f"no export in {self.folder.place.url}: it has no {NAME}",
                next="name the folder that `tidemark export` wrote.",
            )
        export = Export.decode(raw)
        bad = [f"{f.path}: {why}" for f in export.files if (why := size_flaw(f, self.folder.size)) is not None]
        if bad:
            raise damaged_export(bad)
        (to / NAME).write_bytes(raw)
        for f in export.files:
            (to / f.path).parent.mkdir(parents=True, exist_ok=True)
            self.folder.fetch(f.path, to / f.path)
        return export


def _silent(folder: S3Folder, path: str) -> StoreError:
    url = folder.place.url
    return StoreError(
        f"{url}/{path}: the outcome of the write is unknown",
        safe="the export is either complete or absent.",
        next=f"check whether {url}/{NAME} exists once the store answers; if it does not, export again.",
    )
