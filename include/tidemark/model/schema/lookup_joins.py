"""Lookup joins of a fold: add the row of a broadcast state with the record's key to each record."""

from dataclasses import dataclass


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
