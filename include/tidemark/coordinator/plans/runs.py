"""Runs that make several checkpoints: the first plan fixes where the run ends, so that it ends under load (adr/0032).

Only the head's plan would not do: an aborted plan, a checkpoint of another run between two of this one, or a restore
would fix later ends again and again. So the ends have an object of their own, and every plan of the run goes to
them, whichever head it builds on.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import takewhile

from tidemark.coordinator.plans.initial_offsets import to_ms
from tidemark.coordinator.records.objects import Objects, Series
from tidemark.coordinator.records.timelines import Head, Timelines
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.store_objects import RunRecord
from tidemark.model.core.offsets import TopicPartition
from tidemark.ports import Clock, PlanRequest, PutOutcome, WriteIds


def id_of(request: PlanRequest) -> str:
    """Returns the id of a request's run; empty if it has none.

    The interval's end is part of it: if you delete a DAG run and trigger one with its id for another interval, that one
    must not inherit the ends.
    """
    if not request.run:
        return ""
    end = "" if request.interval_end is None else str(to_ms(request.interval_end))
    return sha256(f"{request.run}\n{end}".encode()).hexdigest()[:32]


def last_of_run(timelines: Timelines, head: Head, request: PlanRequest) -> Checkpoint | None:
    """Returns the checkpoint that ended the request's run, if it is an ancestor of a head; None while it continues."""
    run = id_of(request)
    record = newest_run(timelines.objects, run) if run else None
    if record is None:
        return None
    since = takewhile(lambda found: found.plan.planned_at_ms >= record.at_ms, timelines.chain(head.timeline))
    newest = next((found for found in since if found.plan.run == run), None)
    return newest if newest is not None and newest.plan.covers else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The records of one run.

    Attributes:
        objects: the pipeline's objects.
        clock: the time of the record.
        write_ids: its id.
        request: the run's request.
    """

    objects: Objects
    clock: Clock
    write_ids: WriteIds
    request: PlanRequest

    @property
    def id(self) -> str:
        """The run's id."""
        return id_of(self.request)

    def newest(self) -> tuple[int, RunRecord | None]:
        """Returns the run's newest record with its number; 0 and None before its first plan."""
        return _series(self.objects, self.id).newest()

    def fix(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        *,
        after: int,
        inputs: Iterable[str],
        topic_ids: Mapping[str, str],
        whole: bool,
    ) -> PutOutcome:
        """Fixes the run's ends, unless another process was faster.

        `after` is the number of the record that was found wanting: a record that was put since then must not be
        replaced, because plans may go by it already.
        """
        end = None if self.request.interval_end is None else to_ms(self.request.interval_end)
        record = RunRecord(
            run=self.request.run,
            interval_end_ms=end,
            inputs=tuple(sorted(inputs)),
            topic_ids=topic_ids,
            starts=starts,
            ends=ends,
            whole=whole,
            at_ms=self.clock.now_ms(),
            write_id=self.write_ids(),
        )
        return _series(self.objects, self.id).put(after + 1, record)


def is_valid(record: RunRecord, inputs: Iterable[str], topic_ids: Mapping[str, str]) -> bool:
    """Whether a record's ends hold for these inputs.

    An input that is new since then needs ends, and an offset of a recreated topic means nothing.
    """
    return not set(inputs) - set(record.inputs) and all(
        record.topic_ids.get(topic, number) == number for topic, number in topic_ids.items()
    )


def newest_run(objects: Objects, run: str) -> RunRecord | None:
    """Returns the newest record of a run, by the plans' id of it; None if it has none."""
    return _series(objects, run).newest()[1]


def _series(objects: Objects, run: str) -> Series[RunRecord]:
    return Series(objects, RunRecord, keys.run_folder(run), lambda number: keys.run_key(run, number))
