"""A ward whose changes are published as a log."""

from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from tests.publications.published_ward import PublishedWard, place_of, rows_by
from tidemark.answers.publication_facts import PublishedFacts

Changes = list[dict[str, Any]]
_OWN = ("_op", "before", "after", "_from", "_checkpoint")


class ChangelogWard(PublishedWard):
    """A ward whose changes are published."""

    kind = "changes"

    def target(self, uid: str) -> str:
        """The declaration of an operator's target."""
        return f'DeltaChangelog("{self.mirror(uid)}")'

    def changes(self, uid: str) -> Changes:
        """The rows of the log, as deltalake's query engine reads them."""
        found = QueryBuilder().register("t", DeltaTable(str(self.mirror(uid)))).execute("SELECT * FROM t").read_all()
        return list(pa.table(found).to_pylist(maps_as_pydicts="strict"))

    def note(self, uid: str, step: PublishedFacts) -> None:
        """The log up to a checkpoint has the state of that checkpoint."""
        self.compare_until(uid, int(step.checkpoint.removeprefix("chk-")))

    def compare(self, uid: str) -> None:
        """The log has the state of the checkpoint that it names."""
        self.compare_until(uid, self.told(uid)[1])

    def compare_until(self, uid: str, checkpoint: int) -> None:
        """The log up to a checkpoint of the live timeline has the state of that checkpoint."""
        assert fold(self.changes(uid), checkpoint) == rows_by(self.expected(checkpoint, uid))

    def keys(self, uid: str) -> set[str]:
        """The sensors of the state that the log has."""
        return set(fold(self.changes(uid), self.told(uid)[1]))


def fold(changes: Changes, until: int) -> dict[str, Any]:
    """Applies changes in order of checkpoints; each must fit the state before it.

    A row of an erased key has no `before` and may delete what is not there, or insert what is there again.
    """
    state = dict[str, Any]()
    for change in sorted(changes, key=lambda c: c["_checkpoint"]):
        if change["_checkpoint"] > until:
            break
        key, before, after = place_of(change), change["before"], change["after"]
        columns = {name: value for name, value in change.items() if name not in _OWN}
        assert change["_op"] == ("delete" if after is None else "update" if before is not None else "insert")
        if before is not None:
            assert state[key] == {**columns, **before}
        state.pop(key, None)
        if after is not None:
            state[key] = {**columns, **after}
    return state
