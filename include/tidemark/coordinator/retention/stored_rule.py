"""What a rule keeps over all timelines of a pipeline, and where the rule is written down (D7, E11)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.records.record_log import Series
from tidemark.declare.retention import Retention
from tidemark.declare.retention_text import parse_retention
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.store_objects import Closing, Genesis
from tidemark.model.retention.manifest_lines import ManifestLine
from tidemark.model.retention.sweep_records import RetentionRecord
from tidemark.ports import PutOutcome

NO_RULE = "no rule"
"""Why a checkpoint is kept where nobody declared a retention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """The timelines as one look has found them; released checkpoints are left out.

    Attributes:
        checkpoints: per timeline its own, oldest first.
        geneses: per timeline what it began with.
        closings: per timeline its end.
    """

    checkpoints: Mapping[str, Sequence[ManifestLine]]
    geneses: Mapping[str, Genesis]
    closings: Mapping[str, Closing]

    @property
    def once_live(self) -> list[str]:
        """Timelines that are or were live, the live one last."""
        names = [keys.FIRST_TIMELINE]
        while (closing := self.closings.get(names[-1])) is not None and closing.successor not in names:
            names.append(closing.successor)
        return names

    @property
    def names(self) -> list[str]:
        """Of all timelines."""
        return sorted({*self.checkpoints, *self.geneses, *self.closings, keys.FIRST_TIMELINE})

    @property
    def forks(self) -> list[str]:
        """Timelines that are neither live nor closed."""
        return [name for name in self.names if name not in self.closings and name != self.once_live[-1]]

    @property
    def fates(self) -> dict[str, str]:
        """What has become of each timeline, in one word or three."""
        live = self.once_live[-1]
        open_ = {name: "live" if name == live else "fork" for name in self.names}
        return open_ | {name: closing.fate for name, closing in self.closings.items()}

    def all(self) -> list[ManifestLine]:
        """Every checkpoint, in order of ids."""
        return sorted((c for found in self.checkpoints.values() for c in found), key=lambda c: c.id)

    def line(self, timeline: str) -> Iterator[ManifestLine]:
        """A timeline's checkpoints and those that it came from, newest first."""
        seen, last, name = set[str](), None, timeline
        while name not in seen:
            seen.add(name)
            yield from (c for c in reversed(self.checkpoints.get(name, ())) if last is None or c.id <= last)
            genesis = self.geneses.get(name)
            if genesis is None:
                return
            name, last = genesis.parent_timeline, genesis.parent


def kept_by(rule: Retention | None, lines: Lines) -> dict[int, tuple[str, ...]]:
    """What a rule keeps: id → its reasons.

    It is asked of the live timeline with all that it came from, and of each fork by itself. What a restore or a promote
    has left on a closed timeline counts as older than whatever was made since for the same time: it is asked of all
    timelines that were ever live, together, in order of logical time.
    """
    if rule is None:
        return {c.id: (NO_RULE,) for c in lines.all()}
    once = lines.once_live
    together = [c for name in once for c in lines.checkpoints.get(name, ())]
    histories = [
        list(lines.line(once[-1])),
        sorted(together, key=lambda c: (c.logical_time_ms, c.id), reverse=True),
        *(list(reversed(lines.checkpoints.get(name, ()))) for name in lines.forks),
    ]
    kept: dict[int, tuple[str, ...]] = {}
    for history in histories:
        for number, why in rule.kept((c.id, c.logical_time_ms) for c in history).items():
            kept[number] = tuple(dict.fromkeys((*kept.get(number, ()), *why)))
    return kept


@dataclass(frozen=True, slots=True)
class Rules:
    """The rule of a pipeline, as its DAG has declared it."""

    coordinator: CheckpointCoordinator

    @property
    def series(self) -> Series[RetentionRecord]:
        """All of them, numbered."""
        return Series(self.coordinator.objects, RetentionRecord, "retention/", keys.retention_key)

    def standing(self) -> Retention | None:
        """The rule that counts; None where none was declared: everything is kept.

        Raises:
            DeclarationError: a later release wrote it, and this one does not know its words.
        """
        _, found = self.series.newest()
        return None if found is None else parse_retention(found.rule)

    def record(self, rule: Retention | None) -> bool:
        """Writes a rule down where it differs from the one that stands; returns whether it did."""
        text, c = "" if rule is None else str(rule), self.coordinator
        number, found = self.series.newest()
        if text == ("" if found is None else found.rule):
            return False
        record = RetentionRecord(rule=text, at_ms=c.clock.now_ms(), write_id=c.write_ids())
        return self.series.put(number + 1, record) is PutOutcome.WON
