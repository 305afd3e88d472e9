"""Executes the plan of a slot up to its seal: `checkpoint.py PIPELINE SLOT REQUEST ANSWER`, by spark-submit or called.

REQUEST is a `PlanRequest` as JSON. ANSWER is a file that gets, as JSON, what was folded, or the error.
"""

import json
import sys
from pathlib import Path

from pydantic import TypeAdapter

from tidemark.errors import TidemarkError
from tidemark.ports import PlanRequest
from tidemark.wiring import open_runtime


def fold(pipeline: str, slot: str, request: str) -> dict[str, object]:
    """Folds in this process; raises what the runtime raises."""
    wanted = TypeAdapter(PlanRequest).validate_json(request)
    folded = open_runtime().fold(pipeline, slot, wanted)
    return {"slot": folded.slot, "id": folded.id, "completed": list(folded.completed)}


def main(argv: list[str]) -> int:
    """Folds as a process of its own; the exit code is the error's."""
    pipeline, slot, request, answer = argv
    code, body = 0, {}
    try:
        body = fold(pipeline, slot, request)
    except TidemarkError as error:
        code, kind = error.code, type(error).__name__
        body = {"error": kind, "what": error.what, "safe": error.safe, "next": error.next}
    Path(answer).write_text(json.dumps(body), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
