"""The record that the records of several inputs become, so that an operator has one type of records.

It has the key, and a field for each input: one of them has the record, the others are null.
"""

from collections.abc import Mapping, Sequence

from tidemark.model.core.types import FieldType

KEY = "key"


def field_of_input(number: int) -> str:
    """Returns the field that holds the records of an input, by its place among the inputs: names may have dots."""
    return f"input{number}"


def united_struct(keys: Mapping[str, FieldType], records: Sequence[FieldType]) -> FieldType:
    """Returns the struct of the united records.

    Args:
        keys: the type of each key column.
        records: the struct of the records of each input, in order.
    """
    key = FieldType("struct", nullable=True, fields=tuple((name, of.with_null(True)) for name, of in keys.items()))
    fields = ((field_of_input(number), of.with_null(True)) for number, of in enumerate(records))
    return FieldType("struct", fields=((KEY, key), *fields))
