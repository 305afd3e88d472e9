"""Passes records through the function of a FlatMap: records in, emitted records and failed ones out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.declare.flat_map import FlatMap
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.retention.erasure import BlockedKey
from tidemark.processing.emitted_rows import RowEncoder
from tidemark.processing.process_records import Emitted, FailedRecord, Output, PositionedRecord
from tidemark.processing.processor import function_error


@dataclass(frozen=True, kw_only=True)
class FlatMapper:
    """A FlatMap that is ready to run anywhere.

    Attributes:
        operator: the declaration.
        encoder: its output.
        blocked: keys whose rows are not emitted, because they were erased.
    """

    operator: FlatMap
    encoder: RowEncoder
    blocked: tuple[BlockedKey, ...] = ()

    @classmethod
    def of(cls, operator: FlatMap, blocked: Iterable[BlockedKey] = ()) -> "FlatMapper":
        """Binds a declaration; of blocked keys, those of its rows count."""
        mine = tuple(key for key in blocked if key.uid == operator.uid and key.columns)
        return cls(operator=operator, encoder=RowEncoder.of(operator.outputs), blocked=mine)

    def process(self, records: Iterable[PositionedRecord], out: Output) -> None:
        """Calls the function for each record; its rows are added once it has yielded the last of them.

        Args:
            records: in any order; read one by one.
            out: the output is added here.

        Raises:
            ProcessFunctionError: the function raised, or yielded something other than its `emits` class, and the
                operator makes no dead letters.
        """
        for record in records:
            try:
                rows = self._rows(record)
            except MemoryError:
                raise
            except Exception as error:
                failure = function_error(self.operator.uid, None, record, error)
                if self.operator.on_error == "fail":
                    raise failure from error
                out.letters.append(FailedRecord(*record[:4], Reason.PROCESS_FAILED.at(failure.kind)))
            else:
                out.emitted += rows

    def _rows(self, at: PositionedRecord) -> list[Emitted]:
        found, rows, numbers = self.operator.function(at.record), list[Emitted](), self.encoder.numbers()
        for item in () if found is None else found:
            output, fields = self.encoder.encode(item)
            path = (*at.path, next(numbers[output]))  # rows behind a blocked one keep their numbers
            if not self._is_blocked(output, fields, at):
                rows.append(Emitted(at.topic, at.partition, at.offset, path, at.event_time, fields, output))
        return rows

    def _is_blocked(self, output: int, fields: Sequence[Any], at: PositionedRecord) -> bool:
        if not self.blocked:
            return False
        row = dict(zip(self.encoder.shapes[output].names, fields, strict=True))
        return any(
            set(key.columns) <= row.keys()
            and key.blocks([row[name] for name in key.columns], at.topic, at.partition, at.offset)
            for key in self.blocked
        )
