"""Passes the result of a child process to its parent: a file with the return value of a verb, or with its error."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from tidemark.errors import TidemarkError


def write_result(path: str, verb: Callable[[], Mapping[str, object]]) -> int:
    """Calls a verb and writes its result; called by the entry points of `spark_jobs/`.

    Returns:
        The exit code: 0, or that of a `TidemarkError`. Any other exception leaves no result file.
    """
    code, body = 0, dict[str, object]()
    try:
        body = dict(verb())
    except TidemarkError as error:
        code = error.code
        body = {"error": type(error).__name__, "what": error.what, "safe": error.safe, "next": error.next}
    Path(path).write_text(json.dumps(body), encoding="utf-8")
    return code
