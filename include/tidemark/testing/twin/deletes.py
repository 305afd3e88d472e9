"""Records without a value, as deletes of the key that their message key names; twin of `engine.deleting`."""

from tidemark.formats.json import BadRecord, decode_key
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.testing.twin.fold import Deleted
from tidemark.testing.twin.intake import EPOCH, MS, MemoryDeadLetter, MemoryInput


def deletes(intake: MemoryInput, schema: OperatorSchema) -> list[Deleted]:
    """The records of an input that an operator takes as deletes."""
    return [d for letter in intake.letters if isinstance(d := _judged(letter, schema), Deleted)]


def refused(intake: MemoryInput, schema: OperatorSchema) -> list[MemoryDeadLetter]:
    """The records of an input that could not be decoded and that an operator does not take as deletes either."""
    return [x for letter in intake.letters if isinstance(x := _judged(letter, schema), MemoryDeadLetter)]


def _judged(letter: MemoryDeadLetter, schema: OperatorSchema) -> MemoryDeadLetter | Deleted:
    if not schema.deletes or letter.reason != Reason.NULL_VALUE.value:
        return letter
    tp, record = letter.tp, letter.record
    try:
        key = decode_key(record.key, [(k.name, k.type) for k in schema.keys])
    except BadRecord as error:
        return MemoryDeadLetter(tp=tp, record=record, reason=str(error))
    at = EPOCH + record.timestamp_ms * MS
    return Deleted(topic=tp.topic, partition=tp.partition, offset=record.offset, event_time=at, key=key)
