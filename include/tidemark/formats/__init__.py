"""Formats of record values: `KafkaSource(..., format=formats.Text())`; `known_formats` has them all.

A format is everything that the bytes of a value mean: the record types that it fits, the decoder in Spark, the same in
Python for pages and tests, the reasons why bytes are refused, and what a checkpoint's plan pins of it. The rest of the
package asks a source for its format and never compares names. To add one, write its file, add its line to
`known_formats`, and test it: `tests/unit/formats` walks that list.
"""

from tidemark.formats.json import Json
from tidemark.formats.record_format import BadRecord, RecordFormat
from tidemark.formats.text import Text

__all__ = ["BadRecord", "Json", "RecordFormat", "Text"]
