"""Work of a small batch that runs before its step: in threads, as soon as its inputs are there.

Spark's driver takes about as long to analyse and plan the query of a small batch as its tasks take, and during that
time the other processors wait. So operators that do not read each other run at the same time; the steps then take the
results in their order. Early work writes to folders of its own attempt only, which no state names before its commit.
"""

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

from tidemark.declare.flat_map import FlatMap
from tidemark.declare.operators import Fold, Process
from tidemark.engine.read.operator_records import OperatorRecords
from tidemark.model.checkpoint.manifest import WrittenRun
from tidemark.model.checkpoint.plan import dead_letters_path
from tidemark.ports import UidCounts

T = TypeVar("T")
EarlyStep = Literal["fold", "call", "letters", "emitted"]
"""The steps that may run early; `call` is that of a function."""
_RECORDS = 100_000
"""Records of a batch whose operators run at the same time. The tasks of a larger one use all processors anyway."""
_AT_ONCE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSteps:
    """The steps that may run early. Each may run in any thread, and changes nothing of the batch.

    Attributes:
        fold: writes the run of a fold, by its uid, to a folder relative to the warehouse.
        call: calls the function of an operator.
        letters: writes the dead letters of an operator.
        emitted: writes the rows of an output.
    """

    fold: Callable[[str, str], WrittenRun]
    call: Callable[[Any], Any]
    letters: Callable[[str, str], WrittenRun]
    emitted: Callable[[str, str], WrittenRun]


class EarlyWork:
    """The early work of one attempt. One thread starts it and takes its results.

    Args:
        records: the records of the operators.
        folders: the folder of each run by uid, relative to the warehouse; nothing is early without them.
        steps: the steps.
    """

    def __init__(self, records: OperatorRecords, folders: Mapping[str, str], steps: OperatorSteps) -> None:
        self._records, self._folders, self._steps = records, folders, steps
        self._pool: ThreadPoolExecutor | None = None
        self._started: dict[tuple[EarlyStep, str], Future[Any]] = {}
        read = sum(records.intake.tally.records.values())
        self._is_small = bool(folders) and records.intake.is_kept and read <= _RECORDS and not records.letters_again

    def start_operators(self, counts: Mapping[str, UidCounts], written: Collection[str]) -> None:
        """Starts the operators that read nothing but the batch, and broadcast states whose runs are written.

        Args:
            counts: the counts of the operators so far.
            written: uids whose steps are complete.
        """
        pipeline = self._records.pipeline
        has_states = all(b.uid in written or not counts[b.uid].applied for b in pipeline.broadcast)
        for operator in pipeline.operators if self._is_small else ():
            uid = operator.uid
            if not self._reads_only_the_batch(uid, counts):
                continue
            if isinstance(operator, Fold):
                self._start("fold", uid, partial(self._steps.fold, uid, self._folders[uid]))
                self._start_letters(uid, counts)
            elif isinstance(operator, FlatMap | Process) and (has_states or not _takes_states(operator)):
                self._start("call", uid, partial(self._steps.call, operator))

    def start_outputs(self, uid: str, counts: Mapping[str, UidCounts]) -> None:
        """Starts the rows of an operator whose function was called early."""
        if ("call", uid) not in self._started:
            return
        self._start_letters(uid, counts)
        for output, table in self._records.plan.sinks_of(uid).items():
            if table.keeps_rows and counts[uid].emitted.get(output):
                self._start("emitted", output, partial(self._steps.emitted, output, self._own_folder(table.path)))

    def result(self, step: EarlyStep, uid: str, otherwise: Callable[[], T]) -> T:
        """Waits for early work, or does the work now.

        Raises:
            Exception: whatever the work raised.
        """
        started = self._started.get((step, uid))
        return otherwise() if started is None else started.result()

    def close(self) -> None:
        """Waits for all early work; errors of steps that were never taken are dropped."""
        if self._pool is not None:
            wait(self._started.values())
            self._pool.shutdown()

    def _reads_only_the_batch(self, uid: str, counts: Mapping[str, UidCounts]) -> bool:
        """Whether an operator applies records of an input, has no run yet, and needs no other state or clock."""
        schema, records = self._records.plan.schemas[uid], self._records
        applies = uid in counts and counts[uid].applied > 0 and uid not in records.intake.written
        needs_more = schema.joins or schema.timers is not None or schema.window is not None
        return applies and not needs_more and not records.is_fed(uid)

    def _start_letters(self, uid: str, counts: Mapping[str, UidCounts]) -> None:
        if counts[uid].dead_lettered:
            plan = self._records.plan
            folder = self._own_folder(dead_letters_path(plan.pipeline, uid, plan.slot.timeline))
            self._start("letters", uid, partial(self._steps.letters, uid, folder))

    def _start(self, step: EarlyStep, uid: str, act: Callable[[], Any]) -> None:
        if (step, uid) not in self._started:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_AT_ONCE, "tidemark-operator")
            self._started[step, uid] = self._pool.submit(act)

    def _own_folder(self, table: str) -> str:
        """Returns the attempt's own folder in a table."""
        return f"{table}/{next(iter(self._folders.values())).rpartition('/')[2]}"


def _takes_states(operator: FlatMap | Process) -> bool:
    return isinstance(operator, Process) and operator.takes_broadcast
