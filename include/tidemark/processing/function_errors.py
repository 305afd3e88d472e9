"""What is said when a process function fails, or leaves more than it may."""

import traceback
from collections.abc import Sequence
from pathlib import PurePath

from tidemark.errors import ProcessFunctionError, StateOverflowError
from tidemark.model.schema.key_groups import key_text
from tidemark.processing.process_records import Placed

_SAFE = "every completed checkpoint is intact; nothing was published."
_LONGEST = 300
"""Characters of an exception's own text in a message."""
_OURS = PurePath(__file__).parent.as_posix()


def key_words(key: Sequence[object]) -> str:
    """A key in messages."""
    return ", ".join(map(key_text, key))


def failed(uid: str, key: Sequence[object], place: Placed, error: Exception) -> ProcessFunctionError:
    """The error of a function that raised."""
    steps = [s for s in traceback.extract_tb(error.__traceback__) if not _is_ours(s.filename)]
    at = f" ({steps[-1].name}, line {steps[-1].lineno})" if steps else ""
    kind, words = type(error).__name__, " ".join(str(error).split())[:_LONGEST]
    made = ProcessFunctionError(
        f"process function failed: {uid}: {kind}: {words}{at}: key ({key_words(key)}),"
        f" topic {place.topic}, partition {place.partition}, offset {place.offset}",
        safe=_SAFE,
        next="mend the function, or declare on_error='dead_letter', then run the pipeline again.",
    )
    made.key = key_words(key)
    made.place = (place.topic, place.partition, place.offset, place.n)
    made.kind = kind
    made.trace = "".join([*traceback.format_list(steps), *traceback.format_exception_only(error)])
    return made


def overflow(uid: str, what: str) -> StateOverflowError:
    """The error of a key whose state is larger than it may be."""
    return StateOverflowError(
        f"state overflow: {uid}: {what}",
        safe=_SAFE,
        next="let the function forget something, or declare a wider type, a higher limit or max_state_bytes.",
    )


def _is_ours(file: str) -> bool:
    return PurePath(file).as_posix().startswith(_OURS)
