"""Lookup joins of a fold: add the row of a broadcast state with the record's key to each record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidemark.errors import DeclarationError
from tidemark.model.core.names import is_field
from tidemark.model.core.types import FieldType

if TYPE_CHECKING:
    from tidemark.model.schema.operator_schema import KeyColumn


@dataclass(frozen=True, slots=True)
class Join:
    """One look-up per record; its row becomes a field of the joined record, null if no row has the key.

    Attributes:
        uid: the broadcast state, and the name of that field.
        on: paths of the record that hold the key, in the order of the state's key columns.
    """

    uid: str
    on: tuple[str, ...]

    def leads(self, path: str) -> bool:
        """Whether a path of the joined record goes through the joined row."""
        return path.partition(".")[0] == self.uid


Joinable = Mapping[str, "tuple[Sequence[KeyColumn], FieldType]"]
"""What may be joined, by uid of the broadcast state: its key columns and the struct of its rows."""


def joined_record(where: str, joins: Sequence[Join], record: FieldType, states: Joinable) -> FieldType:
    """Returns the struct of a record with one more field per join: the matching row, null if there is none.

    Args:
        where: the operator.
        joins: its joins.
        record: the struct of its records.
        states: the pipeline's broadcast states.

    Raises:
        DeclarationError: the broadcast state does not exist, its name is taken, or the fields do not match its key.
    """
    taken = {name.lower() for name, _ in record.fields}
    rows = []
    for join in joins:
        at = f"{where}: join={join.uid!r}"
        if join.uid not in states:
            known = ", ".join(states) or "none: declare it in Pipeline(broadcast=[...])"
            raise DeclarationError(f"{at}: no such broadcast state", next=f"name the uid of one; there are {known}.")
        if join.uid.lower() in taken or not is_field(join.uid):
            why = "is also a field of the record" if join.uid.lower() in taken else "is not a valid field name"
            raise DeclarationError(
                f"{at}: {join.uid} {why}", next="rename the broadcast state: its uid names the joined row."
            )
        keys, row = states[join.uid]
        _check_on(at, join, record, keys)
        rows.append((join.uid, row.with_null(True)))
    return replace(record, fields=(*record.fields, *rows))


def _check_on(at: str, join: Join, record: FieldType, keys: "Sequence[KeyColumn]") -> None:
    if len(join.on) != len(keys):
        names = ", ".join(k.name for k in keys)
        raise DeclarationError(f"{at} on ({', '.join(join.on)}), its key is ({names})", next="name a field for each.")
    for path, key in zip(join.on, keys, strict=True):
        found = record.at(path)
        if found is None:
            raise DeclarationError(
                f"{at}: the record has no field {path!r}", next="join on fields of the record, not of a joined row."
            )
        if replace(found, nullable=False, members=()) != replace(key.type, members=(), default=None):
            raise DeclarationError(
                f"{at}: {path} is {found.word}, its key {key.name} is {key.type.word}",
                next="join on a field of the key's type.",
            )
