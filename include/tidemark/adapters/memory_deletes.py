"""Records without a value, as deletes of the key that their message key names; twin of `engine.deleting`."""

from tidemark.adapters.memory_fold import Deleted
from tidemark.adapters.memory_intake import EPOCH, MS, Intake, Letter
from tidemark.formats.base import BadRecord
from tidemark.formats.json import decode_key
from tidemark.model.dead_letters import Reason
from tidemark.model.schema import OperatorSchema


def deletes(intake: Intake, schema: OperatorSchema) -> list[Deleted]:
    """The records of an input that an operator takes as deletes."""
    return [d for letter in intake.letters if isinstance(d := _judged(letter, schema), Deleted)]


def refused(intake: Intake, schema: OperatorSchema) -> list[Letter]:
    """The records of an input that could not be decoded and that an operator does not take as deletes either."""
    return [x for letter in intake.letters if isinstance(x := _judged(letter, schema), Letter)]


def _judged(letter: Letter, schema: OperatorSchema) -> Letter | Deleted:
    if not schema.deletes or letter.reason != Reason.NULL_VALUE.value:
        return letter
    tp, record = letter.tp, letter.record
    try:
        key = decode_key(record.key, [(k.name, k.type) for k in schema.keys])
    except BadRecord as error:
        return Letter(tp=tp, record=record, reason=str(error))
    at = EPOCH + record.timestamp_ms * MS
    return Deleted(topic=tp.topic, partition=tp.partition, offset=record.offset, event_time=at, key=key)
