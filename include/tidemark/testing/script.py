"""The parts of a replay's script, next to lists of records: barriers, crashes, tables, restores and declarations."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tidemark.declare.pipeline import Pipeline

__all__ = ["BARRIER", "CRASH", "Barrier", "Crash", "Overwrite", "Restore", "Script"]


@dataclass(frozen=True)
class Barrier:
    """Ends a checkpoint, to which all records before the barrier belong.

    Attributes:
        logical_time: the checkpoint's logical time, with a time zone; the default is that of the barrier before. It
            never goes back.
        until: the end of the checkpoint's interval: the checkpoint ends before the first record of each partition whose
            Kafka timestamp reaches it, as with `until="interval_end"` in a DAG and `tidemark run --until`. The records
            behind it wait for the next barrier. It is the logical time as well.
        savepoint: the name of a savepoint that pins the checkpoint.
        allow_non_restored_state: leave the state of operators behind that the pipeline does not declare any more.
        drains: the checkpoint reads nothing and closes all windows, as the last one of `tidemark stop --drain`. Only a
            `Restore` to an earlier checkpoint may follow.
    """

    logical_time: datetime | None = None
    until: datetime | None = None
    savepoint: str | None = None
    allow_non_restored_state: bool = False
    drains: bool = False


@dataclass(frozen=True)
class Crash:
    """Kills the attempt at the next barrier; a plain rerun then completes the checkpoint.

    Attributes:
        step: the crash point, one of `ids queries plan attempt read process.<uid> fold.<uid> runs.<uid>
            dead_letters.<uid> sinks.<uid> emitted.<uid> outputs.<uid> gate fsync sent.<uid> seal publish`; inside
            `runs`, `sinks` (dead letters) and `outputs`, between the table's version and the commit,
            `commit.runs.<uid>`, `commit.sinks.<uid>`, `commit.outputs.<uid>`. `Replayed.crash_points` lists those of a
            checkpoint.
        moment: `before` or `after`.
    """

    step: str = "seal"
    moment: str = "before"

    def at(self, step: str, moment: str = "before") -> "Crash":
        """Returns a crash at another point."""
        return Crash(step, moment)


BARRIER = Barrier()
CRASH = Crash()


@dataclass(frozen=True)
class Overwrite:
    """Writes a new version of a broadcast state's table.

    Attributes:
        path: the path of the `DeltaTable`.
        records: the table's new rows, as instances of the declared record.
    """

    path: str
    records: Sequence[object]


@dataclass(frozen=True, kw_only=True)
class Restore:
    """Continues from an earlier checkpoint, as `tidemark restore` does; the next barrier reads the later records again.

    Attributes:
        to: `"chk-2"`, or the name of a savepoint.
        pipeline: the declaration from here on; the default is the one before.
        restore_sinks: take Delta sinks back as well; otherwise they keep their rows, and no row twice.
        renamed: old uids of the state, with their new uids.
        allow_non_restored_state: leave the state of operators behind that the pipeline does not declare.
    """

    to: str
    pipeline: Pipeline | None = None
    restore_sinks: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)
    allow_non_restored_state: bool = False


Script = Sequence[Iterable[object] | Barrier | Crash | Overwrite | Restore | Pipeline]
"""Lists of records, barriers, crashes, new versions of tables, restores, and declarations for what follows."""
