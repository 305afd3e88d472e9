"""A pipeline with every kind of state, and a client that makes its checkpoints under one Spark master after another.

It is a process of its own, because a process has one driver at a time. A timeline lives in files only: another driver,
under another master and another parallelism, goes on with it.
"""

import json
import pickle
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.engine.wide_batch import Wide, folded_widely
from tests.support.spark import SparkPipeline
from tests.support.visits import PIPELINE as HOUSE
from tests.support.visits import Person, Seen, Visit, follow, visits
from tidemark import DeltaSink, Fold, Process, state
from tidemark.engine.session.session import SparkSettings, open_session
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.readers.checkpoint_reader import read_checkpoint
from tidemark.readers.state_hash import hash_of
from tidemark.storage.local_store import LocalStore

CHECKPOINTS, RECORDS, SEED = 3, 40, 4


@dataclass(frozen=True)
class Note:
    """An element of a list."""

    who: str
    at: datetime


class Kept(state.Operator):
    """Both forms of operator state."""

    rooms: list[int] = state.split_list()
    notes: list[Note] = state.union_list()


class Room(state.Keyed):
    """A fold of several kinds."""

    n: int = state.count()
    least: datetime | None = state.min("at")
    last: str | None = state.latest("who")
    first: str | None = state.first("who")
    mean: float = state.mean("room")
    people: list[str] = state.distinct("who")
    visitors: list[str] = state.list("who")


def follow_and_note(who: str, visits: Iterator[Visit], person: Person, *, operator_state: Kept) -> Iterator[Seen]:
    """As `follow`, and adds to both lists; what it leaves by key does not depend on them."""

    def noted() -> Iterator[Visit]:
        for visit in visits:
            operator_state.rooms.append(visit.room)
            if visit.tags:
                operator_state.notes.append(Note(who, visit.at))
            yield visit

    yield from follow(who, noted(), person)


PIPELINE = replace(
    HOUSE,
    operators=[
        Process(
            "people",
            key_by="who",
            state=Person,
            function=follow_and_note,
            operator_state=Kept,
            emits=Seen,
            sink=DeltaSink("seen"),
            on_error="dead_letter",
        ),
        Fold("rooms", key_by="room", state=Room),
    ],
)
UIDS = tuple(sorted(PIPELINE.uids))


def batches() -> list[list[object]]:
    """The records of each checkpoint, the same in every process."""
    chance = random.Random(SEED)
    return [visits(chance, RECORDS) for _ in range(CHECKPOINTS)]


@dataclass(frozen=True)
class Job:
    """Some checkpoints of one timeline.

    Attributes:
        timeline: name of its warehouse.
        first: the checkpoint to begin with, from 0; those before were made by others.
        tasks: shuffle partitions of each.
    """

    timeline: str
    first: int
    tasks: tuple[int, ...]


@dataclass(frozen=True)
class Told:
    """What a client says of a checkpoint."""

    timeline: str
    number: int
    tasks: int
    state: dict[str, Any]
    hashes: dict[str, str]
    emitted: list[dict[str, Any]]
    letters: list[dict[str, Any]]
    lists: dict[str, list[Any]]


def lists_of(made: Checkpoint) -> dict[str, list[Any]]:
    """Elements by list."""
    return {x.name: list(x.elements) for x in made.operator_states["people"].lists}


def _rows(schema: OperatorSchema, table: pa.Table) -> list[dict[str, Any]]:
    rows = table.sort_by([(k.name, "ascending") for k in schema.keys])
    return list(rows.to_pylist(maps_as_pydicts="strict"))


def made_by(spark: Any, root: Path, job: Job) -> Iterator[Told]:
    """Makes the checkpoints of a job, and says what came of each."""
    world = SparkPipeline(PIPELINE, spark=spark, root=root / job.timeline)
    world.store, world.ids = LocalStore(world.root / PIPELINE.name), partial(lambda: uuid.uuid4().hex)
    sent = batches()
    for record in (r for batch in sent[: job.first] for r in batch):
        world.send(record)
    for number, tasks in enumerate(job.tasks, start=job.first):
        world.parallelism = tasks
        made = world.checkpoint(sent[number])
        rows = {uid: read_checkpoint(str(world.root), made, uid) for uid in UIDS}
        yield Told(
            timeline=job.timeline,
            number=number,
            tasks=tasks,
            state={uid: _rows(made.plan.schemas[uid], table) for uid, table in rows.items()},
            hashes={uid: hash_of(made.plan.schemas[uid], table).sha256 for uid, table in rows.items()},
            emitted=world.emitted("people", made),
            letters=world.letters("people", made),
            lists=lists_of(made),
        )


def main(jobs: Path, answer: Path) -> None:
    """Makes the checkpoints that a file of jobs asks for, under each of its masters, and a wide one under each."""
    asked, told, wide = json.loads(jobs.read_text()), list[Told](), list[Wide]()
    for part in asked["parts"]:
        settings = SparkSettings(master=part["master"], jars=Path(asked["jars"]), conf=part["conf"])
        spark = open_session(settings, "rescaling", 1)
        try:
            assert spark.sparkContext.master == part["master"]
            for job in part["jobs"]:
                made = Job(job["timeline"], job["first"], tuple(job["tasks"]))
                told += made_by(spark, Path(asked["root"]), made)
            wide.append(folded_widely(spark, Path(asked["root"]) / f"wide-{len(wide)}", part["tasks"]))
        finally:
            spark.stop()
    answer.write_bytes(pickle.dumps((told, wide)))
