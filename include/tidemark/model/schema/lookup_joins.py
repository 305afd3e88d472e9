"""What a fold joins to its records: the row of a broadcast state that has the record's key (A11)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Join:
    """One look-up per record; its row is a field of the joined record, null where no row has the key.

    Attributes:
        uid: the broadcast state, and the name of that field.
        on: paths of the record that hold the key, in the order of the state's key columns.
    """

    uid: str
    on: tuple[str, ...]

    def leads(self, path: str) -> bool:
        """Whether a path of the joined record leads through it."""
        return path.partition(".")[0] == self.uid
