"""What retention writes: the rule, legal holds, what a sweep has decided and what became of it (E11, Q9)."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRecord:
    """`retention/<n>.json`: the rule that checkpoints are kept by; the newest one counts.

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

    While it stands nobody can dispose of the savepoint, and its expiry does nothing.

    Attributes:
        savepoint: its name.
        revision: ascending from 1.
        why: for people: the case, the request.
        owner: who answers for it.
        released: it has ended.
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
    """`sweeps/<n>.json`: what a sweep has found free, written before it deletes anything.

    The next sweep reads the newest one: since when a file has been free, so that it goes after its grace time.

    Attributes:
        rule: text of the rule that it went by; empty = none.
        released: names of the checkpoints that it has let go.
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
        files: data files that it deleted.
        bytes: their bytes.
        log_files: files of logs that it deleted.
        at_ms: clock of the writer, for people.
    """

    files: int
    bytes: int
    log_files: int
    at_ms: int
    write_id: str
