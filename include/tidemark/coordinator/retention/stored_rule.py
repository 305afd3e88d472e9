"""Applies a retention rule to all timelines of a pipeline, and stores the rule that its DAG declares."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.records.objects import Series
from tidemark.declare.retention import Retention, restore_points
from tidemark.declare.retention_text import parse_retention
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.store_objects import Closing, Genesis
from tidemark.model.retention.manifest_lines import ManifestLine
from tidemark.model.retention.sweep_records import RetentionRecord
from tidemark.ports import PutOutcome

NO_RULE = "no rule"
"""Why a checkpoint is kept if no retention is declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """The timelines of a pipeline, without released checkpoints.

    Attributes:
        checkpoints: the own checkpoints of each timeline, oldest first.
        geneses: the genesis of each timeline.
        closings: the closing of each timeline that has ended.
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
        """Names of all timelines."""
        return sorted({*self.checkpoints, *self.geneses, *self.closings, keys.FIRST_TIMELINE})

    @property
    def forks(self) -> list[str]:
        """Timelines that are neither live nor closed."""
        return [name for name in self.names if name not in self.closings and name != self.once_live[-1]]

    @property
    def fates(self) -> dict[str, str]:
        """The status of each timeline, in one to three words."""
        live = self.once_live[-1]
        open_ = {name: "live" if name == live else "fork" for name in self.names}
        return open_ | {name: closing.fate for name, closing in self.closings.items()}

    def all(self) -> list[ManifestLine]:
        """Every checkpoint, sorted by id."""
        return sorted((c for found in self.checkpoints.values() for c in found), key=lambda c: c.id)

    def line(self, timeline: str) -> Iterator[ManifestLine]:
        """A timeline's checkpoints and their ancestors, newest first."""
        seen, last, name = set[str](), None, timeline
        while name not in seen:
            seen.add(name)
            yield from (c for c in reversed(self.checkpoints.get(name, ())) if last is None or c.id <= last)
            genesis = self.geneses.get(name)
            if genesis is None:
                return
            name, last = genesis.parent_timeline, genesis.parent


def kept_by(rule: Retention | None, lines: Lines) -> dict[int, tuple[str, ...]]:
    """The checkpoints that a rule keeps: id → its reasons.

    The rule is applied to the live timeline with all its ancestors, and to each fork on its own. Checkpoints that a
    restore or a promote has left on a closed timeline count as older than later ones for the same time: the rule is
    also applied to all timelines that were ever live, together, sorted by logical time. Of a run,
    only its newest checkpoint counts.
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
        counted = restore_points((c.id, c.logical_time_ms, c.run) for c in history)
        for number, why in rule.select(counted).items():
            kept[number] = tuple(dict.fromkeys((*kept.get(number, ()), *why)))
    return kept


@dataclass(frozen=True, slots=True)
class Rules:
    """The rule of a pipeline, as its DAG has declared it."""

    coordinator: CheckpointCoordinator

    @property
    def series(self) -> Series[RetentionRecord]:
        """All declared rules, numbered."""
        return Series(self.coordinator.objects, RetentionRecord, "retention/", keys.retention_key)

    def current(self) -> Retention | None:
        """The rule in effect; None if none was declared, so that everything is kept.

        Raises:
            DeclarationError: a later release wrote the rule, and this release does not know it.
        """
        _, found = self.series.newest()
        return None if found is None else parse_retention(found.rule)

    def record(self, rule: Retention | None) -> bool:
        """Stores a rule if it differs from the one in effect. Returns whether it was stored."""
        text, c = "" if rule is None else str(rule), self.coordinator
        number, found = self.series.newest()
        if text == ("" if found is None else found.rule):
            return False
        record = RetentionRecord(rule=text, at_ms=c.clock.now_ms(), write_id=c.write_ids())
        return self.series.put(number + 1, record) is PutOutcome.WON
