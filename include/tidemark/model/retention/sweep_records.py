"""The records that retention writes: the rule, legal holds, decisions of a sweep and their results."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRecord:
    """`retention/<n>.json`: the rule for keeping checkpoints; the newest one counts.

    Attributes:
        rule: text of a `Retention`; empty = everything is kept.
        at_ms: clock of the writer, for people.
    """

    rule: str
    at_ms: int
    write_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldRecord:
    """`holds/<savepoint>/<revision>.json`: a legal hold on a savepoint, or its end; the newest one counts.

    While the hold exists you cannot dispose of the savepoint, and its expiry has no effect.

    Attributes:
        savepoint: name of the savepoint.
        revision: ascending from 1.
        why: for people: the case, the request.
        owner: the responsible person.
        released: whether it has ended.
        at_ms: clock of the writer, for people.
    """

    savepoint: str
    revision: int
    why: str
    owner: str
    released: bool
    at_ms: int
    write_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRecord:
    """`sweeps/<n>.json`: the files that a sweep has found free, written before it deletes anything.

    From the newest one, the next sweep learns since when a file has been free, and deletes it after its grace time.

    Attributes:
        rule: text of the rule that was in force; empty = none.
        released: names of the checkpoints that it has released.
        free: per file, relative to the warehouse, since when it has been free, in milliseconds since the epoch.
        grace_ms: how long a file must have been free before this sweep deletes it.
        at_ms: clock of the writer.
    """

    rule: str
    released: tuple[str, ...]
    free: Mapping[str, int]
    grace_ms: int
    at_ms: int
    write_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptRecord:
    """`swept/<n>.json`: a sweep is over.

    Attributes:
        files: number of data files that it deleted.
        bytes: bytes of these files.
        log_files: number of log files that it deleted.
        at_ms: clock of the writer, for people.
    """

    files: int
    bytes: int
    log_files: int
    at_ms: int
    write_id: str
