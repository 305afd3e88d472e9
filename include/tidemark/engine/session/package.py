"""This release of Tidemark as one file, for workers of a cluster that have another release, or none."""

import atexit
import shutil
import tempfile
import zipfile
from functools import cache
from hashlib import sha256
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2]
_FIRST_DAY = (1980, 1, 1, 0, 0, 0)


@cache
def packed() -> Path:
    """The package's Python files as a zip, which a worker imports from; the same files make the same bytes.

    It lies in a temporary folder of this user's and goes with this process, which serves it to its executors.
    """
    files = {path.relative_to(PACKAGE.parent).as_posix(): path.read_bytes() for path in sorted(PACKAGE.rglob("*.py"))}
    digest = sha256()
    for name, text in files.items():
        digest.update(f"{name} {len(text)}\n".encode() + text)
    folder = Path(tempfile.mkdtemp(prefix="tidemark-package-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = folder / f"tidemark-{digest.hexdigest()[:16]}.zip"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as whole:
        for name, text in files.items():
            whole.writestr(zipfile.ZipInfo(name, _FIRST_DAY), text)
    return made
