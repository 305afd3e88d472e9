"""Table files in a bucket: listed, traced through their logs, deleted in batches (`ports.TableFiles`)."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from tidemark.errors import NameRefusedError, StoreError
from tidemark.model.checkpoint.segments import LOG, log_version
from tidemark.model.retention.shared_state import StoredFile, TableHistory, registry_error
from tidemark.ports.caching import Cache
from tidemark.storage.s3_folder import BATCH, S3Folder
from tidemark.tables.delta_history import LogReplays
from tidemark.tables.delta_reader import HINT, hinted_version, open_table

_SAFE = "every remaining restore point is intact."


@dataclass
class S3TableFiles:
    """Implements `ports.TableFiles`.

    Attributes:
        warehouse: the open folder that is the root of all tables.
        cache: keeps parsed logs; None = in memory only.
    """

    warehouse: S3Folder
    cache: Cache | None = None

    def __post_init__(self) -> None:
        self._replays = LogReplays(_S3Logs(self.warehouse), self.cache)

    def files(self, folder: str) -> Sequence[StoredFile]:
        """See `ports.TableFiles`."""
        found = self.warehouse.list_sizes(f"{_checked(folder)}/")
        return sorted((StoredFile(path=path, bytes=size) for path, size in found), key=lambda f: f.path)

    def history(self, table: str) -> TableHistory:
        """See `ports.TableFiles`."""
        with _mapped("read the log of", _checked(table)):
            return self._replays.history(table)

    def ensure_log_checkpoint(self, table: str, version: int) -> None:
        """See `ports.TableFiles`. What a bucket has acknowledged is whole and durable."""
        logs = _S3Logs(self.warehouse)
        with _mapped("write a Delta log checkpoint of", _checked(table)):
            if not logs.has_checkpoint(table, version):
                logs.open(table, version).create_checkpoint()
            hint = f"{table}/{LOG}/{HINT}"
            named = hinted_version(self.warehouse.get(hint))
            if named is not None and named < version:
                self.warehouse.remove_all([hint])

    def delete(self, paths: Iterable[str]) -> int:
        """See `ports.TableFiles`. Data files go by the thousand; a file of a log ends a batch, so no log has a hole.

        S3 does not say whether an object existed: each path counts once.
        """
        count, batch = 0, list[str]()
        for path in dict.fromkeys(map(_checked, paths)):
            count += 1
            batch.append(path)
            if len(batch) == BATCH or f"/{LOG}/" in path:
                self.warehouse.remove_all(batch)
                batch = []
        if batch:
            self.warehouse.remove_all(batch)
        return count


@dataclass(frozen=True, slots=True)
class _S3Logs:
    """Logs in a bucket."""

    warehouse: S3Folder

    def versions(self, table: str, after: int) -> list[int]:
        below = f"{table}/{LOG}/"
        names = self.warehouse.list_sizes(below, after=f"{below}{after:020d}.json" if after >= 0 else None)
        found = (log_version(path.rpartition("/")[2]) for path, _ in names if path.endswith(".json"))
        return sorted(version for version in found if version is not None and version > after)

    def commit(self, table: str, version: int) -> bytes | None:
        return self.warehouse.get(f"{table}/{LOG}/{version:020d}.json")

    def has_checkpoint(self, table: str, version: int) -> bool:
        return self.warehouse.size(f"{table}/{LOG}/{version:020d}.checkpoint.parquet") is not None

    def open(self, table: str, version: int) -> DeltaTable:
        return open_table(self.warehouse.at(table), version)


def _checked(path: str) -> str:
    if not path or path.startswith("/") or ".." in path.split("/"):
        raise NameRefusedError(f"path refused: {path!r}", next="this is a defect of Tidemark: report it.")
    return path


@contextmanager
def _mapped(verb: str, what: str) -> Iterator[None]:
    """Translates errors of deltalake; it reports only their kind, because foreign texts may hold secrets."""
    try:
        yield
    except DeltaError as error:
        raise StoreError(
            f"could not {verb} {what} ({type(error).__name__})",
            safe=_SAFE,
            next="check the bucket and its permissions, then run this again: finished steps are not repeated.",
        ) from error
    except (KeyError, TypeError, ValueError) as error:
        raise registry_error(f"the log of {what} has an unknown action ({error})") from error
