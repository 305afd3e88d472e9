"""An export in a bucket: files first, in a folder of this upload's own; then `export.json`, if nobody put one before.

That object is the commit point: without it there is no export, and it is never replaced. It names the files by the
folder that they were uploaded to, so two uploads to one place never write the same object: the one that loses cannot
spoil the one that wins, whatever either of them exports, and however late its requests arrive. What an upload that was
killed has left is neither read nor overwritten by a later one: nothing names it, and it may be removed by hand.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tidemark.errors import ConflictError, NotFoundError, StoreError, TidemarkError, UsageError
from tidemark.model.retention.export_manifest import NAME, Export, ExportedFile
from tidemark.ports import PutOutcome, UncertainPut
from tidemark.storage.s3_folder import S3Folder
from tidemark.transfer.import_folder import damaged, size_flaw

_PROBE = "begun"
"""Object of an upload's folder that is put twice, to see that the store minds."""


@dataclass(frozen=True, slots=True)
class S3Export:
    """An export that is, or is to be, in a folder of a bucket.

    Attributes:
        folder: it, open.
    """

    folder: S3Folder

    def refuse_taken(self) -> None:
        """Returns where the store answers and no export is there; called before any work.

        Raises:
            UsageError: there is one; or no credentials.
            NotFoundError: no such bucket.
            StoreError: the store does not answer, or denies.
        """
        self.folder.reach()
        if self.folder.get(NAME) is not None:
            raise UsageError(
                f"{self.folder.place.url} holds an export",
                safe="it was left alone.",
                next="name another folder, or remove that one.",
            )

    def probe(self, name: str) -> None:
        """Returns where the store can be written, and keeps the first of two objects of one name.

        Args:
            name: of a folder below this one that nobody else writes to, ever.

        Raises:
            NotFoundError: no such bucket.
            StoreError: the store does not answer, denies, or lets the second one win.
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
                next="take a newer release of the store, or export to a local folder and copy that.",
            )

    def publish(self, export: Export, local: Path, name: str) -> Export:
        """Uploads a folder and reads every file back; `export.json` last. What fails before that removes what it sent.

        Args:
            export: what the folder holds.
            local: the folder.
            name: of the upload's folder below this one, see `probe`.

        Returns:
            The export as the store has it.

        Raises:
            ConflictError: another export of this place was complete first.
            StoreError: the store does not answer, denies, or gives back something else.
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
                f"{self.folder.place.url}/{f.path}: the store gives back something else than was sent",
                safe="no export was completed.",
                next="export again; if that does not help, look at the store.",
            )

    def _complete(self, made: Export, sent: Sequence[str]) -> None:
        # Where this fails it may have been written all the same, so the files that it names have to stay.
        try:
            outcome = self.folder.put_if_absent(NAME, made.encoded())
        except UncertainPut as error:
            raise _silent(self.folder, NAME) from error
        if outcome is PutOutcome.LOST:
            self._remove(sent)
            raise ConflictError(
                f"another export to {self.folder.place.url} was complete first",
                safe="that one is whole; nothing of it was changed.",
                next="name another folder.",
            )

    def _remove(self, paths: Sequence[str]) -> None:
        """Spares space, no more: where the store does not let it, the objects stay, and nothing names them."""
        with suppress(TidemarkError):
            for path in paths:
                self.folder.remove(path)

    def fetch(self, to: Path) -> Export:
        """Brings an export to a folder, as it is; what its files hold has to be compared there.

        Args:
            to: an empty folder.

        Raises:
            NotFoundError: no such bucket, or no export in it.
            DamagedError: objects are gone or of another size; all of them are named.
            CorruptObjectError: `export.json` is damaged.
            StoreError: the store does not answer, or denies.
            OSError: the disk.
        """
        self.folder.reach()
        raw = self.folder.get(NAME)
        if raw is None:
            raise NotFoundError(
                f"no export in {self.folder.place.url}: it has no {NAME}",
                next="name the folder that `tidemark export` wrote.",
            )
        export = Export.decoded(raw)
        bad = [f"{f.path}: {why}" for f in export.files if (why := size_flaw(f, self.folder.size)) is not None]
        if bad:
            raise damaged(bad)
        (to / NAME).write_bytes(raw)
        for f in export.files:
            (to / f.path).parent.mkdir(parents=True, exist_ok=True)
            self.folder.fetch(f.path, to / f.path)
        return export


def _silent(folder: S3Folder, path: str) -> StoreError:
    url = folder.place.url
    return StoreError(
        f"{url}/{path}: nobody answers whether it was written",
        safe="it is whole or not there, and so is every file that it names.",
        next=f"see whether {url}/{NAME} is there once the store answers; if it is not, export again.",
    )
