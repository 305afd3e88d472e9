"""The retention calendar: what the next sweep does with each checkpoint and why, also for another rule."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from tidemark.answers.checkpoint_facts import iso, iso_or_none
from tidemark.answers.checkpoint_overview import ReadIds
from tidemark.answers.retention_facts import CalendarLine, PinFacts, RetentionCalendar
from tidemark.context import Context
from tidemark.coordinator.records.timelines import Stops
from tidemark.coordinator.retention.deletion_plan import sweeps_of
from tidemark.coordinator.retention.root_set import Survey, collect_roots
from tidemark.coordinator.retention.stored_rule import NO_RULE, Lines, kept_by
from tidemark.coordinator.retention.sweep import GRACE_MS
from tidemark.declare.retention import NEWEST, DeleteOnStop, KeepFor, KeepLast, KeepNewestOf, Member, Retention
from tidemark.declare.retention_text import parse_retention
from tidemark.glance import glance_at
from tidemark.model.retention.manifest_lines import ManifestLine
from tidemark.model.retention.shared_state import SharedStateRegistry
from tidemark.operations import retention, savepoints
from tidemark.web import history_cache

MOST = 200
"""Lines of a calendar: all that are released, then the newest ones."""
HORIZON = 24
"""How many further checkpoints a calendar looks ahead."""
PORTION, FEW = 200, 32
"""Manifests that one answer reads at most, in about 0.2 s, and one that does not read on.

Until all are read, a calendar has no lines.
"""
PACE = 10
"""From how many of the newest checkpoints the time between two is taken."""
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_PERIODS = {"hourly": "hour", "daily": "day", "monthly": "month"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What a calendar assumes; without both it is that of the next sweep.

    Attributes:
        keep: a rule in place of the declared one, as text; empty = keep everything; None = the declared one.
        without: a savepoint that is disposed of.
    """

    keep: str | None = None
    without: str | None = None


def get_calendar(
    context: Context, name: str, what_if: WhatIf, *, sizes: bool = False, more: bool = True
) -> RetentionCalendar:
    """Computes the calendar from manifests, pins and the rule, as a sweep does; writes nothing.

    Args:
        context: of this process.
        name: the pipeline.
        what_if: see `WhatIf`.
        sizes: also computes how many bytes would be freed, from the logs of the tables.
        more: read one more portion of the manifests that are not read; the first answer of a page has no time for it.

    Raises:
        NotFoundError: no such pipeline or savepoint.
        DeclarationError: `keep` is no rule.
        StoreError, CorruptObjectError: some reason to keep files is unknown.
    """
    context = glance_at(context)
    coordinator = context.coordinator(history_cache.require_planned(context, name))
    declared = retention.get_rule(context, name)
    rule = declared if what_if.keep is None else parse_retention(what_if.keep)
    in_force = rule and rule.in_force(stopped=Stops(coordinator.objects).current() is not None)
    done, of = coordinator.index.read_some(coordinator.objects, PORTION if more else FEW)
    read = ReadIds(read=done, of=of)
    if read.read < read.of:
        return _unread(name, rule, in_force, read, is_declared=what_if.without is None and str(rule) == str(declared))
    survey = collect_roots(coordinator, rule)
    by_rule = kept_by(in_force, survey.lines)
    gone = None if what_if.without is None else savepoints.open_savepoints(context, name).get(what_if.without).name
    pins = _pins(survey, by_rule, gone)
    survey = replace(survey, reasons={n: (*by_rule.get(n, ()), *pins.get(n, ())) for n in survey.reasons})
    reasons = _Reasons(
        by_rule=by_rule,
        pins=pins,
        ahead=_look_ahead(in_force, survey.lines),
        members={str(member): member for member in _members(in_force)},
        expiries={f"savepoint {r.name}": r.expires_at_ms for r in savepoints.open_savepoints(context, name).list()},
    )
    lines = [reasons.line(c) for c in reversed(survey.lines.all())]
    _, last = sweeps_of(coordinator).newest()
    waiting = [] if last is None else [at for at in last.free.values() if at + last.grace_ms > last.at_ms]
    return RetentionCalendar(
        pipeline=name,
        rule=None if rule is None else str(rule),
        is_declared=gone is None and str(rule) == str(declared),
        keeps=[_keeps(member) for member in _members(in_force)],
        lets_go=[_releases(member) for member in _members(in_force)],
        checkpoints=sorted(lines, key=lambda line: not line.released)[:MOST],
        total=len(lines),
        released=[c.name for c in survey.subsumed],
        disposed=[record.name for record in (*survey.names.expired, *survey.names.void)],
        horizon=HORIZON,
        freed_bytes=_freed(context, survey) if sizes else None,
        waiting_files=len(waiting),
        waiting_until=iso(min(waiting) + last.grace_ms) if last is not None and waiting else None,
        last_sweep=None if last is None else iso(last.at_ms),
        grace_ms=GRACE_MS if last is None else last.grace_ms,
        indexed=read,
    )


def _unread(
    name: str, rule: Retention | None, in_force: Retention | None, read: ReadIds, *, is_declared: bool
) -> RetentionCalendar:
    """The answer while manifests are still being read: nothing but the rule is certain."""
    return RetentionCalendar(
        pipeline=name,
        rule=None if rule is None else str(rule),
        is_declared=is_declared,
        keeps=[_keeps(member) for member in _members(in_force)],
        lets_go=[_releases(member) for member in _members(in_force)],
        checkpoints=[],
        total=0,
        released=[],
        disposed=[],
        horizon=HORIZON,
        freed_bytes=None,
        waiting_files=0,
        waiting_until=None,
        last_sweep=None,
        grace_ms=GRACE_MS,
        indexed=read,
    )


def _pins(survey: Survey, by_rule: Mapping[int, tuple[str, ...]], gone: str | None) -> dict[int, tuple[str, ...]]:
    """The reasons that are not the rule's, without those of a savepoint that is assumed to be gone."""
    found = {number: tuple(reasons[len(by_rule.get(number, ())) :]) for number, reasons in survey.reasons.items()}
    if gone is None:
        return found
    own = f"savepoint {gone}"
    return {n: tuple(why for why in whys if why.partition(",")[0] != own) for n, whys in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reasons:
    """All that a line of the calendar says, by id of the checkpoint; members and expiries by their text."""

    by_rule: Mapping[int, tuple[str, ...]]
    pins: Mapping[int, tuple[str, ...]]
    ahead: Mapping[int, int]
    members: Mapping[str, Member]
    expiries: Mapping[str, int | None]

    def line(self, found: ManifestLine) -> CalendarLine:
        rules, pins = self.by_rule.get(found.id, ()), self.pins.get(found.id, ())
        return CalendarLine(
            id=found.id,
            checkpoint=found.name,
            timeline=found.timeline,
            logical_time=iso(found.logical_time_ms),
            released=not rules and not pins,
            rules=[_reason(why, self.members.get(why)) for why in rules],
            pins=[PinFacts(why=why, until=iso_or_none(self.expiries.get(why.partition(",")[0]))) for why in pins],
            goes_after=self.ahead.get(found.id),
        )


def _look_ahead(rule: Retention | None, lines: Lines) -> dict[int, int]:
    """After how many more checkpoints of the live timeline the rule lets go of each that it keeps now."""
    live = list(lines.line(lines.once_live[-1]))
    if rule is None or not live:
        return {}
    newest, times = live[0], [c.logical_time_ms for c in live[:PACE]]
    step = max(1, (times[0] - times[-1]) // max(1, len(times) - 1))
    last = max(c.id for c in lines.all())
    kept, gone = set(kept_by(rule, lines)), dict[int, int]()
    for ahead in range(1, HORIZON + 1):
        more = [
            replace(newest, id=last + n, timeline=lines.once_live[-1], run="", logical_time_ms=times[0] + n * step)
            for n in range(1, ahead + 1)
        ]
        own = (*lines.checkpoints.get(lines.once_live[-1], ()), *more)
        then = kept_by(rule, replace(lines, checkpoints={**lines.checkpoints, lines.once_live[-1]: own}))
        gone |= {number: ahead for number in kept if number not in then}
        kept &= then.keys()
    return gone


def _freed(context: Context, survey: Survey) -> int:
    """Bytes of the files that nothing but released checkpoints needs."""
    before = SharedStateRegistry.of(survey.holders(), context.table_files.history)
    after = SharedStateRegistry.of(survey.holders(after_release=True), context.table_files.history)
    return sum(size for path, size in before.sizes.items() if path not in after)


def _members(rule: Retention | None) -> Sequence[Member]:
    return () if rule is None else rule.members


def _reason(why: str, member: Member | None) -> str:
    """A reason of the rule in words."""
    if member is not None:
        return _keeps(member)
    return {NEWEST: "the newest of its timeline", NO_RULE: "no rule is declared"}.get(why, why)


def _keeps(member: Member) -> str:
    match member:
        case KeepLast(n=n):
            return f"one of the last {n}"
        case KeepFor(duration=duration):
            return f"not older than {_span(duration)}"
        case KeepNewestOf(period=period, n=n, timezone=zone):
            return f"the last of its {_PERIODS[period]}, for {n} {_PERIODS[period]}s ({zone})"
        case DeleteOnStop():
            return "nothing, once the pipeline is stopped"
        case _:
            return str(member)


def _releases(member: Member) -> str:
    match member:
        case KeepLast(n=n):
            return f"older than the last {n}"
        case KeepFor(duration=duration):
            return f"older than {_span(duration)}"
        case KeepNewestOf(period=period, n=n):
            return f"not the last of one of the last {n} {_PERIODS[period]}s"
        case DeleteOnStop():
            return "of a stopped pipeline"
        case _:
            return f"not kept by {member}"


def _span(span: timedelta) -> str:
    """`7 d`, `1 d 12 h`."""
    rest, parts = round(span.total_seconds()), list[str]()
    for unit, seconds in _UNITS:
        whole, rest = divmod(rest, seconds)
        parts += [f"{whole} {unit}"] if whole else []
    return " ".join(parts) or "0 s"
