"""Executes the plan of a slot up to its seal: `checkpoint.py PIPELINE SLOT REQUEST ANSWER`, by spark-submit or called.

REQUEST is a `PlanRequest` as JSON. ANSWER is a file that gets, as JSON, what was folded, or the error.
"""

import sys

from pydantic import TypeAdapter

from tidemark.context import open_context
from tidemark.engine.session.job_result import answer
from tidemark.operations import checkpoints
from tidemark.ports import PlanRequest


def fold(pipeline: str, slot: str, request: str) -> dict[str, object]:
    """Folds in this process; raises what the operation raises."""
    wanted = TypeAdapter(PlanRequest).validate_json(request)
    folded = checkpoints.fold(open_context(), pipeline, slot, wanted)
    return {"slot": folded.slot, "id": folded.id, "completed": list(folded.completed)}


def main(argv: list[str]) -> int:
    """Folds as a process of its own; the exit code is the error's."""
    pipeline, slot, request, path = argv
    return answer(path, lambda: fold(pipeline, slot, request))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
