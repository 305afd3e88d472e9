"""A ward whose states are published, on disk: store, tables and mirrors are real; Kafka and Spark are in-memory twins.

The oracle of a mirror is what `read_checkpoint` resolves from all rows of the checkpoint, without any difference.
"""

import json
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext
from tidemark.answers.publication_facts import PublishedFacts
from tidemark.coordinator.records.publication_steps import PublicationSteps
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.coordinator.retention.key_erasure import ErasureRequest
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.operations import erasure, timelines
from tidemark.operations.publications import publishing
from tidemark.ports import StepListener
from tidemark.readers.checkpoint_reader import read_checkpoint

DECLARATION = (Path(__file__).parents[1] / "copies" / "pipelines" / "ward.py").read_text()
NAME = "ward"
UIDS = ("sensors", "fresh", "kept")
SENSORS = "abcdef"
START = datetime(2024, 5, 1, tzinfo=UTC)
State = list[dict[str, Any]]


class Killed(Exception):
    """A process died."""


def killing(step: str, when: str) -> StepListener:
    """A listener that kills at a step."""
    wanted = (step, when)

    def listen(step: str, moment: str) -> None:
        if (step, moment) == wanted:
            raise Killed(step)

    return listen


class PublishedWard:
    """The pipeline, its log, its mirrors, and the state that each version of a mirror has to have."""

    declaration: str = DECLARATION
    uids: tuple[str, ...] = UIDS
    kind = "mirror"
    """The last word of the default names of its publications."""
    fences: tuple[type[Exception], ...] = ()
    """The errors that a publisher gets when a later one has begun; none where it makes no difference."""

    def __init__(self, folder: Path, chance: random.Random, broker: str = "127.0.0.1:1") -> None:
        self.folder, self.chance = folder, chance
        self.tidemark = Command(folder, broker, "sc://127.0.0.1:1")
        self.listener: StepListener | None = None
        self.declare()
        self.line = DiskPipeline(self.tidemark.warehouse, self.pipeline, "readings", partitions=1)
        self.context = DiskContext(self.line, self.tidemark.settings)
        self.sent = 0
        self.versions: dict[tuple[str, int], State] = {}

    @property
    def pipeline(self) -> Any:
        """The declaration."""
        return self.tidemark.context.pipeline(NAME)

    def declare(self, change: Callable[[str], str] = str) -> None:
        """Declares the pipeline, with a mirror of each operator."""
        targets = "from tidemark.targets import DeltaChangelog, DeltaMirror, JdbcUpsert, KafkaUpsert"
        text = self.declaration.replace("from tidemark import", f"{targets}\nfrom tidemark import", 1)
        for uid in self.uids:
            text = text.replace(f'("{uid}", ', f'("{uid}", publish=[{self.target(uid)}], ')
        self.tidemark.declare(change(text), file="ward.py", name=NAME)

    def target(self, uid: str) -> str:
        """The declaration of an operator's target."""
        return f'DeltaMirror("{self.mirror(uid)}")'

    def mirror(self, uid: str) -> Path:
        """The table of an operator's mirror."""
        return self.folder / "lake" / uid

    def checkpoint(self, timeline: str | None = None) -> Checkpoint:
        """Some readings more, and a checkpoint over them."""
        for _ in range(self.chance.randrange(1, 9)):
            value = self.chance.choice([None, *range(-9, 60)])
            at = START + timedelta(hours=self.sent)
            body = {"sensor": self.chance.choice(SENSORS), "room": self.chance.randrange(3), "value": value}
            self.line.send([(0, json.dumps(body | {"at": at.isoformat()}).encode(), 0)])
            self.sent += 1
        self.line.pipeline = self.pipeline
        return self.line.checkpoint(timeline=timeline)

    def expected(self, checkpoint: int, uid: str) -> State:
        """The state of a checkpoint, key by key."""
        found = self.line.coordinator.checkpoint(checkpoint)
        return ordered(read_checkpoint(str(self.line.root), found, uid))

    def publication(self, uid: str) -> str:
        """The name of an operator's publication."""
        return f"{uid}-{self.kind}"

    def publish(self, uid: str) -> list[PublishedFacts]:
        """Publishes, and notes what each version must be."""
        made = publishing.publish(self.context, NAME, self.publication(uid))
        for step in made:
            self.note(uid, step)
        return made

    def published(self, uid: str) -> list[str]:
        """Publishes, and compares what the target then has; returns the modes of the steps."""
        made = self.publish(uid)
        self.compare(uid)
        return [step.mode for step in made]

    def told(self, uid: str) -> tuple[int, int]:
        """The newest step that the target has by its own account, and the checkpoint of that step."""
        table = DeltaTable(str(self.mirror(uid)))
        told = next(e["tidemark"] for e in table.history() if "tidemark" in e)
        return int(told["number"]), int(told["checkpoint"])

    def compare(self, uid: str) -> None:
        """The target has the state of the checkpoint that it names."""
        table = DeltaTable(str(self.mirror(uid)))
        assert read(self.mirror(uid), table.version()) == self.expected(self.told(uid)[1], uid)

    def keys(self, uid: str) -> set[str]:
        """The sensors of the state that the target has."""
        return set(rows_by(read(self.mirror(uid), DeltaTable(str(self.mirror(uid))).version())))

    def rebuild(self, uid: str, *, replaces_others: bool = False) -> PublishedFacts:
        """Rebuilds, and notes what the version must be."""
        made = publishing.rebuild(self.context, NAME, self.publication(uid), replaces_others=replaces_others)
        self.note(uid, made)
        return made

    def note(self, uid: str, step: PublishedFacts) -> None:
        """Notes the state of a version; an earlier step may have become the same version by another process."""
        number = int(step.checkpoint.removeprefix("chk-"))
        self.versions[uid, int(step.version)] = self.expected(number, uid)

    def kill(self, uid: str, step: str, when: str) -> bool:
        """Publishes, dies at a step, and tells whether it was reached; the next publisher notes what it finishes."""
        before = self.context.__dict__.get("listener")
        self.context.__dict__["listener"] = killing(step, when)
        try:
            publishing.publish(self.context, NAME, self.publication(uid))
        except Killed:
            return True
        finally:
            self.context.__dict__.pop("listener")
            if before is not None:
                self.context.__dict__["listener"] = before
        return False

    def erase(self, sensor: str, uid: str) -> None:
        """Erases a key."""
        erasure.erase(self.context, NAME, ErasureRequest(uid=uid, key=(sensor,)))

    def restore(self, checkpoint: int) -> None:
        """Goes back."""
        timelines.restore(self.context, NAME, RestoreRequest(checkpoint=checkpoint))

    def steps(self, uid: str) -> PublicationSteps:
        """The steps of a publication."""
        return PublicationSteps(self.line.coordinator.objects)

    def check(self) -> None:
        """Every version of every mirror is as it was noted, for a reader who does not know Tidemark."""
        for (uid, version), state in self.versions.items():
            assert read(self.mirror(uid), version) == state, f"{uid}, version {version}"


def ordered(rows: pa.Table) -> State:
    """Rows as Python values, in order of sensors and windows."""
    names = sorted(rows.column_names)
    return sorted(rows.select(names).to_pylist(maps_as_pydicts="strict"), key=place_of)


def read(path: Path, version: int) -> State:
    """A version of a table, as deltalake's query engine reads it."""
    opened = DeltaTable(str(path), version=version)
    return ordered(pa.table(QueryBuilder().register("t", opened).execute("SELECT * FROM t").read_all()))


def rows_by(state: State) -> Mapping[str, dict[str, Any]]:
    """Rows by sensor and window."""
    return {place_of(row): row for row in state}


def place_of(row: Mapping[str, Any]) -> str:
    """The sensor of a row, and the bounds of its window if it has one."""
    bounds = [row[name] for name in ("window_start", "window_end") if name in row]
    at = (datetime.fromisoformat(bound) if isinstance(bound, str) else bound for bound in bounds)
    return " ".join([row["sensor"], *(bound.isoformat() for bound in at)])


def read_counts(path: Path, column: str) -> int:
    """The number of rows of the newest version, each with another value in a column."""
    rows = QueryBuilder().register("t", DeltaTable(str(path))).execute(f"SELECT {column} FROM t").read_all()  # noqa: S608
    found = pa.table(rows)[column].to_pylist()
    assert len(set(found)) == len(found)
    return len(found)
