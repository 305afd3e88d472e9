"""Executes the plan of a slot up to its seal: `checkpoint_job.py PIPELINE SLOT REQUEST ANSWER`.

Run it with spark-submit, or call it. REQUEST is a `PlanRequest` as JSON. The job writes its result or its error to the
file ANSWER as JSON.
"""

import sys

from pydantic import TypeAdapter

from tidemark import context
from tidemark.engine.session.job_result import write_result
from tidemark.operations import checkpoints
from tidemark.ports import PlanRequest


def fold(pipeline: str, slot: str, request: str) -> dict[str, object]:
    """Folds in this process; raises the operation's errors."""
    wanted = TypeAdapter(PlanRequest).validate_json(request)
    folded = checkpoints.fold(context.open_context(), pipeline, slot, wanted)
    return {"slot": folded.slot, "id": folded.id, "completed": list(folded.completed)}


def main(argv: list[str]) -> int:
    """Folds in a separate process; exits with the error's code."""
    pipeline, slot, request, path = argv
    return write_result(path, lambda: fold(pipeline, slot, request))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
