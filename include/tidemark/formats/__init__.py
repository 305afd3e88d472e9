"""Formats of record values: `KafkaSource(..., format=formats.Text())`; `known_formats` lists all of them.

A format defines what the bytes of a value mean: the record types that fit, the decoder in Spark, the same decoder in
Python for pages and tests, the reasons for which it refuses bytes, and what the plan of a checkpoint pins of it. The
rest of the package asks a source for its format and never compares names.

To add a format, write its file, add a line to `known_formats`, and test it: `tests/unit/formats` walks that list.
"""

from tidemark.formats.json import Json
from tidemark.formats.record_format import BadRecord, RecordFormat
from tidemark.formats.text import Text

__all__ = ["BadRecord", "Json", "RecordFormat", "Text"]
