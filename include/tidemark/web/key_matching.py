"""Finds the records of a key in a range, by the manifest alone: the declaration is not imported (Q4)."""

from collections.abc import Sequence
from typing import Any

from tidemark.formats.base import BadRecord
from tidemark.formats.json import decode_key
from tidemark.formats.registry import format_of
from tidemark.model.log_records import LogRecord, Wanted
from tidemark.model.offsets import TopicPartition
from tidemark.model.plan import CheckpointPlan
from tidemark.model.types import FieldType
from tidemark.operations.reads import parse_key

LONGEST = 1024 * 1024
"""Bytes of a value that is decoded; a longer one is taken for a record of the key, lest it be missed."""


def by_key(plan: CheckpointPlan, uid: str, key: Sequence[str]) -> Wanted | None:
    """A test for records of a key; None where the record alone does not tell, because the key comes of a join.

    Values of a format that is not registered cannot be matched, so that all of them fit. Records that do not decode
    belong to no key. Those that an operator gets from another operator cannot be matched:
    no record fits then.

    Raises:
        UsageError: the key has another number of columns, or a value does not fit.
    """
    schema = plan.schemas[uid]
    wanted = parse_key(schema, key)
    paths = [column.source.split(".") for column in schema.keys]
    if any(join.leads(column.source) for join in schema.joins for column in schema.keys):
        return None
    record = _record_of([(path, column.type) for path, column in zip(paths, schema.keys, strict=True)])
    columns = [(column.name, column.type) for column in schema.keys]

    formats = {topic: format_of(plan.format_of(topic)) for topic in plan.topic_ids}

    def fits(tp: TopicPartition, found: LogRecord) -> bool:
        its_format = formats[tp.topic]
        if found.size > LONGEST or its_format is None:
            return True
        try:
            if found.value is None:
                return schema.deletes and decode_key(found.key, columns) == wanted
            decoded = its_format.decode_one(found.value, record)
        except BadRecord:
            return False
        return tuple(_at(decoded, path) for path in paths) == wanted

    return fits


def _record_of(fields: Sequence[tuple[Sequence[str], FieldType]]) -> FieldType:
    """The struct that has a type at each path, and nothing else."""
    made: dict[str, FieldType] = {}
    for head in dict.fromkeys(path[0] for path, _ in fields):
        below = [(path[1:], of) for path, of in fields if path[0] == head]
        made[head] = _record_of(below) if below[0][0] else below[0][1]
    return FieldType("struct", fields=tuple(made.items()))


def _at(decoded: Any, path: Sequence[str]) -> object:  # noqa: ANN401
    for name in path:
        decoded = decoded[name]
    return decoded
