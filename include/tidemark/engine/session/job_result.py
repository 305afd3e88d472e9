"""The answer of a process to the one that started it: a file with what a verb returned, or with its error."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from tidemark.errors import TidemarkError


def answer(path: str, verb: Callable[[], Mapping[str, object]]) -> int:
    """Calls a verb and writes the answer; called by the entry points of `spark_jobs/`.

    Returns:
        The exit code: 0, or that of an error of ours. Any other exception leaves no answer.
    """
    code, body = 0, dict[str, object]()
    try:
        body = dict(verb())
    except TidemarkError as error:
        code = error.code
        body = {"error": type(error).__name__, "what": error.what, "safe": error.safe, "next": error.next}
    Path(path).write_text(json.dumps(body), encoding="utf-8")
    return code
