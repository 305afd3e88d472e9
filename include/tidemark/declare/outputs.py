"""What an operator emits: the rows that its function yields, for a sink and for operators that name them as `input`."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.errors import DeclarationError
from tidemark.model.core.types import FieldType, record_type

if TYPE_CHECKING:
    from tidemark.sinks.sink import Sink


@dataclass(frozen=True, slots=True)
class EmittedOutput:
    """One output of an operator.

    Attributes:
        uid: the name by which operators read it, and by which plans name its sink: the uid of the operator.
        emits: the dataclass of its rows.
        sink: where its rows go; None = only to operators that read it.
    """

    uid: str
    emits: type
    sink: "Sink | None" = None

    @property
    def emitted(self) -> FieldType:
        """The struct of its rows."""
        return record_type(self.emits)


def check_outputs(uid: str, outputs: Iterable[EmittedOutput]) -> None:
    """Checks what an operator declares to emit.

    Args:
        uid: the operator.
        outputs: its outputs.

    Raises:
        DeclarationError: a class is no dataclass of supported types, or a sink does not fit its rows.
    """
    for output in outputs:
        emitted = output.emitted
        if output.sink is not None:
            output.sink.check(uid, emitted)


def single_output(uid: str, emits: type | None, sink: "Sink | None") -> tuple[EmittedOutput, ...]:
    """Returns the outputs of an operator that declares `emits=` and `sink=`: one, or none if it emits nothing.

    Raises:
        DeclarationError: there is a sink, but nothing is emitted.
    """
    if emits is not None:
        return (EmittedOutput(uid, emits, sink),)
    if sink is not None:
        raise DeclarationError(f"{uid}: a sink, but nothing is emitted", next="declare the dataclass with `emits=`.")
    return ()
