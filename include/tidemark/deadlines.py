"""Deadlines of checkpoints, as `TIDEMARK_CHECKPOINT_DEADLINE` has them: spans per pipeline."""

from collections.abc import Mapping

from tidemark.errors import UsageError
from tidemark.model.core.names import checked_name
from tidemark.model.core.savepoint_expiry import span_ms

EVERY = ""
"""Stands for every pipeline without its own deadline."""


def parse_deadlines(text: str) -> Mapping[str, int]:
    """Parses deadlines to milliseconds per pipeline, with `EVERY` for all others; empty if none is set.

    Args:
        text: a span (`26h`), spans of pipelines (`flights=26h,payments=30m`), or both (`2d,payments=30m`).

    Raises:
        UsageError: a span is invalid or 0, or a pipeline occurs twice.
        NameRefusedError: a name is not valid for a pipeline.
    """
    found: dict[str, int] = {}
    for part in (part.strip() for part in text.split(",") if part.strip()):
        name, equals, span = part.rpartition("=")
        pipeline = checked_name("pipeline", name.strip()) if equals else EVERY
        wanted = span_ms(span.strip())
        if not wanted or pipeline in found:
            raise UsageError(
                f"not a deadline: {part!r}", next="write 26h, or flights=26h,payments=30m, each pipeline once."
            )
        found[pipeline] = wanted
    return found
