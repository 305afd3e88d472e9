"""The files of the bundle, and a version that changes with them.

The pages are some forty small files. Below a path with the version browsers keep them without asking again; a file that
a page imports has the same path.
"""

import hashlib
from pathlib import Path

STATIC = Path(__file__).parent / "static"


def version_of(folder: Path) -> str:
    """Returns a hash of names, sizes and times of files; it reads none: all of Airflow imports this."""
    found = [(path.name, path.stat()) for path in folder.iterdir()]
    told = sorted(f"{name} {of.st_size} {of.st_mtime_ns}" for name, of in found)
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:12]


VERSION = version_of(STATIC)
