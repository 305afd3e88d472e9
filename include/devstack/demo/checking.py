"""Compares every row of checkpoints with the data set; the oracles import nothing from Tidemark."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from devstack.demo.oracle import KEYS, Oracle, Rows, differences
from devstack.demo.rotations import RotationOracle
from tidemark.cli.output import note, to_datetime
from tidemark.context import Context
from tidemark.errors import NotFoundError, TidemarkError
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.operations import queries, reads, sinks

END_OF_YEAR = datetime(2014, 1, 1, 5, tzinfo=UTC)
AIRCRAFT, DISTANCE, RECORDS, WITHOUT_TAIL_NUMBER = 4_043, 350_217_607, 336_776, 2_512
"""Known totals of the whole year."""
Span = tuple[datetime, datetime]


class MismatchError(TidemarkError):
    """The state differs from the data set."""


@dataclass(kw_only=True)
class Checker:
    """Compares checkpoints, row by row.

    Attributes:
        context: the context for reading the state.
        pipeline: the pipeline's name.
        wrong: fingerprint of the code that cannot read flights without a departure delay; None = it never ran.
        whole: the oracle that knows every flight.
        partial: oracles that know only the flights that the code with the bug could read, by the span in which it ran.
    """

    context: Context
    pipeline: str
    wrong: str | None = None
    whole: Oracle = field(default_factory=Oracle)
    partial: dict[Span, Oracle] = field(default_factory=dict)

    def check(self, line: Sequence[Checkpoint], chosen: Sequence[Checkpoint]) -> None:
        """Compares all rows of some checkpoints of a line, and the totals of the line.

        Args:
            line: the newest checkpoint and all of its ancestors, oldest first.
            chosen: the checkpoints whose rows are compared.

        Raises:
            MismatchError: rows or totals differ; the message lists them.
        """
        wrong: list[str] = []
        for checkpoint in chosen:
            oracle = self._oracle(upto(line, checkpoint))
            wrong += self._folds(checkpoint, oracle)
            wrong += self._rotations(checkpoint, RotationOracle(oracle.flights))
        wrong += self._totals(line)
        if wrong:
            raise MismatchError(
                "\n".join([*wrong, "the state differs from the data set"]),
                safe="the comparison changed nothing.",
                next="this is a bug in Tidemark: report it, with the rows above.",
            )

    def hashes(self, checkpoint: Checkpoint) -> dict[str, str]:
        """Returns the hash of each operator's state, by uid."""
        uids = checkpoint.plan.schemas
        return {uid: queries.hash_state(self.context, self.pipeline, uid, checkpoint.id)[1].sha256 for uid in uids}

    def _oracle(self, line: Sequence[Checkpoint]) -> Oracle:
        """Returns the oracle that knows the flights that the code of a line could read."""
        span = span_of([interval_of(found) for found in line if found.plan.fingerprint == self.wrong])
        if span is None:
            return self.whole
        if span not in self.partial:
            self.partial[span] = self.whole.blind(*span)
        return self.partial[span]

    def _folds(self, checkpoint: Checkpoint, oracle: Oracle) -> list[str]:
        name, (_, cut) = checkpoint.plan.name, interval_of(checkpoint)
        wrong: list[str] = []
        for uid, keys in KEYS.items():
            expected = oracle.expected(uid, cut)
            table = reads.read_state(self.context, self.pipeline, uid, checkpoint=checkpoint.id)
            found: Rows = {tuple(row[key] for key in keys): row for row in table.to_pylist()}
            differing = differences(expected, found)
            note(f"{name} (flights before {cut:%Y-%m-%d %H:%M} UTC), {uid}: {_verdict(differing, len(expected))}")
            wrong += [f"{name} {uid} {line}" for line in differing]
        return wrong

    def _rotations(self, checkpoint: Checkpoint, oracle: RotationOracle) -> list[str]:
        """Compares the process operator's state and its sink, as of a checkpoint, with a loop over the data set."""
        name, wrong = checkpoint.plan.name, list[str]()
        state, alerts = oracle.expected(interval_of(checkpoint)[1])
        kept = reads.read_state(self.context, self.pipeline, "rotations", checkpoint=checkpoint.id).to_pylist()
        sent = sinks.read_sink(self.context, self.pipeline, "knock_on_delays", checkpoint=checkpoint.id).to_pylist()
        by_aircraft: Rows = {(row["tail_number"],): row | _sorted_map(row) for row in kept}
        by_alert: Rows = {_alert_key(row): row for row in sent}
        for what, expected, found in (("rotations", state, by_aircraft), ("alerts", alerts, by_alert)):
            differing = differences(expected, found)
            if what == "alerts" and len(sent) != len(found):
                differing.append(f"{len(sent)} rows for {len(found)} alerts")
            note(f"{name}, {what}: {_verdict(differing, len(expected))}")
            wrong += [f"{name} {what} {line}" for line in differing]
        return wrong

    def _totals(self, line: Sequence[Checkpoint]) -> list[str]:
        """Compares the counts of a line's checkpoints, the sums of its newest one, and a full year's known totals."""
        newest, oracle = line[-1], self._oracle(line)
        cut = interval_of(newest)[1]
        routes = reads.read_state(self.context, self.pipeline, "routes", checkpoint=newest.id).to_pylist()
        acks = [ack for found in line for ack in found.sealed.acks if ack.uid == "aircraft"]
        records, without = self.whole.counts(cut)
        unread = records - oracle.counts(cut)[0]
        wanted = {
            "aircraft": len(oracle.expected("aircraft", cut)),
            "sum of distance over routes": sum(row["distance"] for row in oracle.expected("routes", cut).values()),
            "records": records,
            "dead letters of aircraft": unread + oracle.counts(cut)[1],
        }
        if oracle is self.whole and cut == END_OF_YEAR:
            wanted = dict(zip(wanted, (AIRCRAFT, DISTANCE, RECORDS, WITHOUT_TAIL_NUMBER), strict=True))
        actual = {
            "aircraft": reads.read_state(self.context, self.pipeline, "aircraft", checkpoint=newest.id).num_rows,
            "sum of distance over routes": sum(row["distance"] for row in routes),
            "records": sum(ack.read for ack in acks),
            "dead letters of aircraft": sum(ack.dead_lettered for ack in acks),
        }
        note(f"up to {newest.plan.name}: " + ", ".join(f"{name} {found:,}" for name, found in actual.items()))
        return [
            f"{name}: {actual[name]:,}, should be {wanted[name]:,}" for name in actual if actual[name] != wanted[name]
        ]


def upto(line: Sequence[Checkpoint], checkpoint: Checkpoint) -> list[Checkpoint]:
    """Returns a checkpoint of a line and the checkpoints before it."""
    return [found for found in line if found.id <= checkpoint.id]


def span_of(intervals: Sequence[Span]) -> Span | None:
    """Returns the span of consecutive intervals, or None if there are none."""
    return (min(first for first, _ in intervals), max(end for _, end in intervals)) if intervals else None


def interval_of(checkpoint: Checkpoint) -> Span:
    """Returns the interval in which the flights of a checkpoint were scheduled.

    Raises:
        NotFoundError: the checkpoint was not made for an interval.
    """
    interval = checkpoint.interval
    first, end = (None, None) if interval is None else (to_datetime(interval.start_ms), to_datetime(interval.end_ms))
    if first is None or end is None:
        raise NotFoundError(
            f"{checkpoint.plan.name} was not made for a month",
            next="the demo needs a separate warehouse: set TIDEMARK_HOME to an empty folder, then make demo.",
        )
    return first, end


def _sorted_map(row: dict[str, Any]) -> dict[str, Any]:
    return {"destinations": sorted(dict(row["destinations"]).items())}


def _alert_key(row: dict[str, Any]) -> tuple[str, ...]:
    return row["tail_number"], str(row["scheduled_at"]), str(row["flight"])


def _verdict(differing: Sequence[str], rows: int) -> str:
    return f"{len(differing)} differences" if differing else f"all {rows:,} rows agree"
