"""The outputs of an operator: rows that its function yields, for sinks and for operators that name them as `input`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.errors import DeclarationError
from tidemark.model.columns.declared_columns import EVERY_COLUMN
from tidemark.model.core.names import checked_field
from tidemark.model.core.types import FieldType, record_type

if TYPE_CHECKING:
    from tidemark.sinks.sink import Sink


@dataclass(frozen=True, slots=True)
class EmittedOutput:
    """One output of an operator.

    Attributes:
        uid: the name by which operators read it, and by which plans name its sink: of the first output the uid of the
            operator, of any other `<uid>.<name>`. So ids of rows do not change when an output is added behind it.
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


Emits = type | Mapping[str, type] | None
"""One dataclass, or a dataclass per output by its name; None = nothing is emitted."""


def declared_outputs(
    uid: str, emits: Emits, sink: "Sink | None", sinks: "Mapping[str, Sink]"
) -> tuple[EmittedOutput, ...]:
    """Returns the outputs of an operator, in the order of its declaration.

    Args:
        uid: the operator.
        emits: as it declares it.
        sink: the sink of its only output.
        sinks: the sink of each of several outputs that has one, by name.

    Raises:
        DeclarationError: the three do not fit together, a name is no field name, or two outputs have one class.
        NameRefusedError: a name is none.
    """
    if isinstance(emits, Mapping):
        return _several(uid, emits, sink, sinks)
    if sinks:
        raise DeclarationError(
            f"{uid}: sinks= names outputs, but emits= does not",
            next='give sink=, or name the outputs: emits={"alerts": Alert, ...}.',
        )
    if emits is not None:
        return (EmittedOutput(uid, emits, sink),)
    if sink is not None:
        raise DeclarationError(f"{uid}: a sink, but nothing is emitted", next="declare the dataclass with `emits=`.")
    return ()


def _several(
    uid: str, emits: Mapping[str, type], sink: "Sink | None", sinks: "Mapping[str, Sink]"
) -> tuple[EmittedOutput, ...]:
    if sink is not None or not emits:
        what = "sink= is given, but emits= names outputs" if emits else "emits= names no output"
        raise DeclarationError(f"{uid}: {what}", next='give emits={"alerts": Alert, ...} and sinks={"alerts": ...}.')
    unknown = [name for name in sinks if name not in emits]
    if unknown:
        raise DeclarationError(
            f"{uid}: sinks={{{unknown[0]!r}: ...}}: no such output", next=f"name one of: {', '.join(emits)}."
        )
    classes = list(emits.values())
    twice = sorted({found.__name__ for found in classes if classes.count(found) > 1})
    if twice:
        raise DeclarationError(
            f"{uid}: two outputs of the class {', '.join(twice)}",
            next="give each output a class of its own: the class of a row names its output.",
        )
    return tuple(
        EmittedOutput(uid if n == 0 else f"{uid}.{checked_field(name)}", of, sinks.get(name))
        for n, (name, of) in enumerate(emits.items())
        if checked_field(name)
    )


Reads = Sequence[str] | Mapping[str, Sequence[str]] | None
"""The fields that a function uses, for all of its columns or for each by name; None = it does not say."""


def normal_reads(uid: str, given: Reads) -> Mapping[str, tuple[str, ...]] | None:
    """Returns the fields that a function uses by column, `*` for those of every column.

    Raises:
        DeclarationError: it is neither a list of fields nor a mapping from columns to such lists.
    """
    if given is None:
        return None
    found = dict(given) if isinstance(given, Mapping) else {EVERY_COLUMN: given}
    for column, paths in found.items():
        listed = isinstance(paths, Sequence) and not isinstance(paths, str)
        if not (listed and all(isinstance(path, str) for path in paths)):
            raise DeclarationError(
                f"{uid}: reads={given!r}",
                next=f'give a list of fields, or one for each column, as in reads={{"{column}": ["distance"]}}.',
            )
    return {column: tuple(paths) for column, paths in found.items()}
