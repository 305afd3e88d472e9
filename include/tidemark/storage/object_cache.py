"""A cache in a folder of the host (`ports.caching.Cache`): one file per name, replaced as a whole."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile


@dataclass(frozen=True)
class LocalCache:
    """Files in a folder that only its owner may read; you may delete the folder at any time.

    Attributes:
        folder: created with the first entry.
    """

    folder: Path

    def get(self, name: str) -> bytes | None:
        """See `ports.caching.Cache`."""
        try:
            return (self.folder / name).read_bytes()
        except OSError:
            return None

    def put(self, name: str, body: bytes) -> None:
        """See `ports.caching.Cache`. Of two writers the later one stays; not fsynced: a torn file is no valid one."""
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._replace(self.folder / name, body)

    def _replace(self, target: Path, body: bytes) -> None:
        with NamedTemporaryFile(dir=self.folder, prefix=".tmp-", delete=False) as aside:
            try:
                aside.write(body)
                aside.flush()
                os.replace(aside.name, target)
            except OSError:
                os.unlink(aside.name)
                raise
