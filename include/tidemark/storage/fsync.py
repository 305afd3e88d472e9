"""Makes files survive a power cut on a local disk."""

import os
from pathlib import Path


def fsync(path: Path) -> None:
    """Forces a file, or the entries of a folder, to the disk.

    Raises:
        OSError: the disk refused, or the path does not exist.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
