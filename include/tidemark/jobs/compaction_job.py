"""Compacts the state, sinks and dead letters of a pipeline that are due: `compaction_job.py PIPELINE ANSWER`.

Run it with spark-submit, or call it.
"""

import sys

from tidemark import context
from tidemark.engine.session.job_result import write_result
from tidemark.model.checkpoint.row_tables import describe_owner
from tidemark.operations import compaction


def compact(pipeline: str) -> dict[str, object]:
    """Compacts in this process; starts Spark only where it has to merge the state."""
    compaction.yield_processors()
    done = compaction.compact(context.open_context(), pipeline)
    return {"compacted": [_label(*describe_owner(record.uid)) for record in done]}


def _label(name: str, table: str) -> str:
    return name if table == "state" else f"{name} ({table})"


def main(argv: list[str]) -> int:
    """Compacts in a separate process; exits with the error's code."""
    pipeline, path = argv
    return write_result(path, lambda: compact(pipeline))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
