"""The daemon from which Spark forks Python workers; it imports pyspark from the folder of the wheel, not Spark's zip.

Before every task a worker calls `importlib.invalidate_caches`, which makes Python read the directory of each zip on its
path again, once per package that it has imported from it: for Spark's two zips and a jar, up to 0.08 s of processor
time. `spark.python.daemon.module` names this module where Spark and Tidemark share an installation.
"""

import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

_ZIPS = (".zip", ".jar")


def leave_zips(path: list[str]) -> list[str]:
    """Returns a path for imports without Spark's zips and jars, or the path itself if it needs them.

    Args:
        path: where Python looks for modules, as in `sys.path`. It needs the zips if the folder of pyspark on it is not
            the one that they are in: another release must not run in their place.

    Example:
        >>> leave_zips(["/nowhere/python/lib/pyspark.zip"])
        ['/nowhere/python/lib/pyspark.zip']
    """
    homes = {Path(entry).parents[2].resolve() for entry in path if Path(entry).name == "pyspark.zip"}
    kept = [entry for entry in path if not entry.endswith(_ZIPS)]
    found = PathFinder.find_spec("pyspark", kept)
    own = {Path(place).resolve() for place in (found.submodule_search_locations or ())} if found else set()
    return kept if homes and own == homes else path


def main() -> None:
    """Runs Spark's own daemon; the argument is the module of its workers."""
    sys.path[:] = leave_zips(sys.path)
    if not any(entry.endswith(_ZIPS) for entry in sys.path):
        for known in [known for known in sys.path_importer_cache if any(kind in known for kind in _ZIPS)]:
            del sys.path_importer_cache[known]
    from pyspark import daemon

    run: Any = daemon.manager
    run()


if __name__ == "__main__":
    main()
