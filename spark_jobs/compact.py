"""Compacts what is due of a pipeline: `compact.py PIPELINE ANSWER`, by spark-submit or called in-process."""

import json
import sys
from pathlib import Path

from tidemark.errors import TidemarkError
from tidemark.wiring import open_runtime


def compact(pipeline: str) -> dict[str, object]:
    """Compacts in this process; starts Spark only when something is due."""
    return {"compacted": [record.uid for record in open_runtime().compact(pipeline)]}


def main(argv: list[str]) -> int:
    """Compacts as a process of its own; the exit code is the error's."""
    pipeline, answer = argv
    code, body = 0, {}
    try:
        body = compact(pipeline)
    except TidemarkError as error:
        code, kind = error.code, type(error).__name__
        body = {"error": kind, "what": error.what, "safe": error.safe, "next": error.next}
    Path(answer).write_text(json.dumps(body), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
