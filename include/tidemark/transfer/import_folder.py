"""Reads an export's folder, trusting nothing in it, and copies its stored rows to the location of a future table."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.errors import DamagedError, NotFoundError, StoreError
from tidemark.model.core.names import checked_field, checked_name
from tidemark.model.retention.export_manifest import NAME, Export, ExportedFile, ExportedState
from tidemark.model.schema.operator_schema import run_columns
from tidemark.storage.local_store import hash_of
from tidemark.tables.delta_tables import arrow_schema

_NO_FILE = "not a file of an export"


@dataclass(frozen=True, slots=True)
class ExportFolder:
    """An export on this machine's disk.

    Attributes:
        path: the folder.
    """

    path: Path

    def read(self) -> Export:
        """Returns the content of the folder, once every file has passed its check.

        Raises:
            NotFoundError: it is not an export.
            DamagedError: files are missing or altered; the message names all of them.
            CorruptObjectError, NameRefusedError: `export.json` is damaged, or invalid for an export.
            StoreError: it cannot be read.
        """
        try:
            export = Export.decode((self.path / NAME).read_bytes())
            for schema in export.schemas:
                checked_name("registry", schema.registry)
            bad = [f"{f.path}: {why}" for f in export.files if (why := self._flaw(f)) is not None]
            bad += [why for uid, state in export.states.items() for why in self._misfits(uid, state)] if not bad else []
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFoundError(
                f"no export in {self.path}: it has no {NAME}", next="name the folder that `tidemark export` wrote."
            ) from error
        except OSError as error:
            raise StoreError(
                f"{self.path} cannot be read: {error.strerror or error}", next="check the disk and its permissions."
            ) from error
        if bad:
            raise damaged_export(bad)
        return export

    def copy(self, files: Sequence[ExportedFile], to: Path) -> None:
        """Copies files to a folder that must not exist.

        Raises:
            DamagedError: a file has changed since the check.
            StoreError: the disk refused.
        """
        try:
            to.mkdir(parents=True)
            for f in files:
                made = to / PurePosixPath(f.path).name
                shutil.copyfile(self.path / f.path, made)
                if hash_of(made) != f.sha256:
                    raise DamagedError(f"damaged: {f.path} changed while it was copied", next="import it again.")
        except OSError as error:
            raise StoreError(
                f"could not write {to}: {error.strerror or error}",
                safe="no record names the written files.",
                next="free some space or correct the permissions, then import again.",
            ) from error

    def _flaw(self, f: ExportedFile) -> str | None:
        where = self.path / f.path
        if where.is_symlink():
            return _NO_FILE
        flaw = size_flaw(f, lambda path: where.stat().st_size if where.is_file() else None)
        return flaw or (None if hash_of(where) == f.sha256 else "its content differs from the export")

    def _misfits(self, uid: str, state: ExportedState) -> Iterator[str]:
        """Yields what hashes do not cover: invalid names, and rows whose columns differ from their schema."""
        checked_name("uid", uid)
        for name in (*(k.name for k in state.schema.keys), *(f.name for f in state.schema.fields)):
            checked_field(name)
        if state.schema.uid != uid or state.schema.older:
            yield f"{uid}: its schema is not that of an export"
        wanted = arrow_schema(run_columns(state.schema))
        for f in state.stored:
            try:
                with pq.ParquetFile(self.path / f.path) as opened:
                    held, rows = opened.schema_arrow.remove_metadata(), opened.metadata.num_rows
            except pa.ArrowException as error:
                yield f"{f.path}: it is not a Parquet file ({str(error).splitlines()[0]})"
                continue
            if not held.equals(wanted) or rows != f.rows:
                yield f"{f.path}: its rows are not those of {uid}"


def size_flaw(f: ExportedFile, size: Callable[[str], int | None]) -> str | None:
    """Returns the damage of an export's file according to its path and size; None if there is none.

    Args:
        f: the file in `export.json`.
        size: returns the bytes of the file at a path, None if it is missing; called only for paths inside the folder.
    """
    parts = PurePosixPath(f.path).parts
    if not parts or f.path.startswith("/") or ".." in parts or "\0" in f.path:
        return _NO_FILE
    there = size(f.path)
    if there is None:
        return "it is gone"
    return None if there == f.bytes else f"it has {there} bytes, {f.bytes} were written"


def damaged_export(bad: Sequence[str]) -> DamagedError:
    """Returns the error that names every bad file of an export."""
    return DamagedError(f"damaged: {' | '.join(bad)}", next="copy the whole exported folder again.")
