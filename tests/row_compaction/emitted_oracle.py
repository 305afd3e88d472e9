"""What every checkpoint of the retention pipeline should show, kept record by record, without code of the product."""

import json
from dataclasses import dataclass, field

from tests.support.retention import RetentionPipeline
from tidemark.model.checkpoint.manifest import Checkpoint

Row = tuple[object, ...]


@dataclass
class EmittedOracle:
    """Follows the live timeline of a pipeline whose process emits a row per payment, numbered by account.

    Attributes:
        retained: the pipeline.
        emitted: rows of the sink so far: checkpoint, account, number, offset.
        letters: dead letters so far: checkpoint, offset, value.
        shown: per checkpoint, what it should show.
    """

    retained: RetentionPipeline
    counts: dict[str, int] = field(default_factory=dict)
    offset: int = 0
    emitted: list[Row] = field(default_factory=list)
    letters: list[Row] = field(default_factory=list)
    shown: dict[int, tuple[list[Row], list[Row]]] = field(default_factory=dict)

    def pay(self, *accounts: str) -> Checkpoint:
        """A checkpoint over a payment per account; an empty name is a dead letter of both operators."""
        found = self.retained.checkpoint(*accounts)
        for account in accounts:
            if account:
                self.counts[account] = self.counts.get(account, 0) + 1
                self.emitted.append((found.id, account, self.counts[account], self.offset))
            else:
                self.letters.append((found.id, self.offset, json.dumps({"amount": 1}).encode()))
            self.offset += 1
        self.shown[found.id] = (list(self.emitted), list(self.letters))
        return found

    def expire(self, checkpoint: Checkpoint, through: int) -> None:
        """From a checkpoint on, rows up to another one are hidden."""
        self.emitted = [row for row in self.emitted if int(str(row[0])) > through]
        self.letters = [row for row in self.letters if int(str(row[0])) > through]
        self.shown[checkpoint.id] = (list(self.emitted), list(self.letters))

    def compare(self, *numbers: int) -> None:
        """Every given checkpoint, by default each one, shows what it should."""
        for number in numbers or self.shown:
            found = self.retained.coordinator.checkpoint(number)
            assert (self.sink_rows(found), self.dead_letters(found)) == self.shown[number], f"chk-{number}"

    def sink_rows(self, found: Checkpoint) -> list[Row]:
        """The rows of the sink as of a checkpoint."""
        rows = self.retained.held(found.sinks["teller"].handle)
        return sorted((r["checkpoint"], r["account"], r["so_far"], r["_offset"]) for r in rows)

    def dead_letters(self, found: Checkpoint, uid: str = "accounts") -> list[Row]:
        """The dead letters of an operator as of a checkpoint."""
        (ack,) = (a for a in found.sealed.acks if a.uid == uid)
        return sorted((r["checkpoint"], r["offset"], r["value"]) for r in self.retained.held(ack.dead_letters))


def files_of(found: Checkpoint) -> dict[str, int]:
    """Number of files of each sink and of the dead letters of each operator."""
    made = {f"sink of {uid}": sum(s.files for s in table.handle) for uid, table in found.sinks.items()}
    return made | {f"dead letters of {a.uid}": sum(s.files for s in a.dead_letters) for a in found.sealed.acks}
