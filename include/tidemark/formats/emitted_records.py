"""Records that an operator emitted, as bytes: a dead letter keeps one so that it can be redriven (adr/0045)."""

from tidemark.formats.json import Json
from tidemark.formats.record_format import RecordFormat

EMITTED_FORMAT: RecordFormat = Json()
"""The format of the value of such a dead letter."""
