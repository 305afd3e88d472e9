"""Compacts what is due of a pipeline: `compact.py PIPELINE ANSWER`, by spark-submit or called in-process."""

import sys

from tidemark.context import open_context
from tidemark.engine.session.job_result import answer
from tidemark.operations import compaction


def compact(pipeline: str) -> dict[str, object]:
    """Compacts in this process; starts Spark only when something is due."""
    return {"compacted": [record.uid for record in compaction.compact(open_context(), pipeline)]}


def main(argv: list[str]) -> int:
    """Compacts as a process of its own; the exit code is the error's."""
    pipeline, path = argv
    return answer(path, lambda: compact(pipeline))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
