"""All formats of records, one line each."""

from collections.abc import Mapping

from tidemark.formats.json import Json
from tidemark.formats.record_format import RecordFormat
from tidemark.formats.text import Text

FORMATS: Mapping[str, type[RecordFormat]] = {cls.name: cls for cls in (Json, Text)}
"""By name."""


def format_of(pinned: Mapping[str, str]) -> RecordFormat | None:
    """The format that a plan has pinned; None for one that is not registered, an author's own.

    Args:
        pinned: see `RecordFormat.freeze`; empty is JSON, as in plans of 0.1.
    """
    options = dict(pinned)
    cls = FORMATS.get(options.pop("format", Json.name))
    return None if cls is None else cls(**options)
