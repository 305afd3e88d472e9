"""`tidemark savepoint transform`: queries over a savepoint become the states of a fork.

The oracle of new keys is a pipeline with the new declaration that has read the same records from the beginning.
"""

import json
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.copies.test_patch import Given
from tests.copies.transfer_pipeline import SEED, UIDS
from tests.support.cli import Answer, Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import commands_over
from tidemark.coordinator.recovery.savepoint_transform import Transformer
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.model.checkpoint.store_objects import JobRecord
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.readers.checkpoint_reader import read_checkpoint
from tidemark.readers.state_reader import files_of
from tidemark.testing.twin.memory import MemoryLog

HEAD = '''
"""Sales, folded in several ways."""

from dataclasses import dataclass
from datetime import datetime

from tidemark import Fold, KafkaSource, Pipeline, state


@dataclass(frozen=True)
class Sale:
    """One record."""

    stall: str
    item: str
    cents: int
    at: datetime


class Sold(state.Keyed):
    """Fields whose merge SQL can say."""

    sales: int = state.count()
    cents: int | None = state.sum("cents")
    least: int | None = state.min("cents")
    most: int | None = state.max("cents")
    mean: float | None = state.mean("cents")
    items: list[str] = state.distinct("item")


depot = Pipeline(
    name="$name",
    source=KafkaSource("sales", Sale, event_time="at"),
    operators=[$operators],
)
'''
BY_BOTH = 'Fold("sold", key_by=("stall", "item"), state=Sold)'
BY_STALL = 'Fold("sold", key_by="stall", state=Sold)'
NEW = 'Fold("by_stall", key_by="stall", state=Sold)'
SPLIT = 'Fold("by_stall", key_by="stall", state=Sold), Fold("by_item", key_by="item", state=Sold)'
PARTS = (
    'Fold("teas", key_by="stall", state=Sold, where="item = \'tea\'"), '
    'Fold("others", key_by="stall", state=Sold, where="item <> \'tea\'")'
)


def grouped(key: str, source: str) -> str:
    """The query that merges rows of a table by a key."""
    return (
        f"SELECT {key}, sum(sales) AS sales, sum(cents) AS cents, min(least) AS least, max(most) AS most,"
        " sum(mean__sum) AS mean__sum, sum(mean__count) AS mean__count, flatten(list(items)) AS items"
        f" FROM {source} GROUP BY {key}"
    )


class Depot:
    """A pipeline whose declaration changes, over a log that a second one reads, too."""

    def __init__(self, folder: Path, operators: str, name: str = "depot", log: MemoryLog | None = None) -> None:
        self.folder, self.name, self.log = folder, name, log or MemoryLog()
        self.tidemark = Command(folder, "127.0.0.1:1", "sc://127.0.0.1:1")
        self.chance, self.hour = random.Random(SEED), 0
        self._write(operators)
        self.line = DiskPipeline(
            self.tidemark.warehouse, self.tidemark.context.pipeline(name), "sales", partitions=2, log=self.log
        )

    def _write(self, operators: str) -> None:
        self.tidemark.declare(HEAD, file=f"{self.name}.py", name=self.name, operators=operators)

    def declare(self, operators: str) -> None:
        """Changes the declaration."""
        self._write(operators)
        self.line.pipeline = self.tidemark.context.pipeline(self.name)

    def send(self, count: int = 15) -> None:
        """Sales at random."""
        for _ in range(count):
            self.hour += 1
            sale = {
                "stall": self.chance.choice("abcd"),
                "item": self.chance.choice(["tea", "mug", "jam"]),
                "cents": self.chance.choice([0, 5, 10, 250]),
                "at": f"2024-05-{1 + self.hour // 24:02}T{self.hour % 24:02}:00:00Z",
            }
            self.line.send([(self.chance.randrange(2), json.dumps(sale).encode(), 0)])

    def grown(self, checkpoints: int = 3) -> "Depot":
        """Some checkpoints more, one of them compacted."""
        for n in range(checkpoints):
            self.send()
            self.line.checkpoint()
            if n == 1:
                for uid in self.line.pipeline.schemas():
                    self.line.compact(uid)
        return self

    def rows(self, uid: str, checkpoint: int | None = None) -> list[dict[str, Any]]:
        """The resolved state of an operator without `_changed`, in order of keys."""
        coordinator = self.line.coordinator
        found = next(coordinator.checkpoints()) if checkpoint is None else coordinator.checkpoint(checkpoint)
        table = read_checkpoint(str(self.tidemark.warehouse), found, uid).drop_columns(["_changed"])
        keys = [(k.name, "ascending") for k in found.plan.schemas[uid].keys]
        rows: list[dict[str, Any]] = table.sort_by(keys).to_pylist()
        return rows

    def __call__(self, *arguments: str) -> Answer:
        with commands_over(self.line):
            return self.tidemark(*arguments)

    def transform(self, *options: str, source: str = "chk-3", fork: str = "rewritten", **queries: str) -> Answer:
        """The command, with a query per operator."""
        given = [word for uid, query in queries.items() for word in ("--query", f"{uid}={query}")]
        return self("savepoint", "transform", self.name, "--from", source, "--fork", fork, *given, *options)

    def number(self, answer: Answer) -> int:
        """Id of the checkpoint that a command made."""
        return int(answer.ok().json["checkpoint"].removeprefix("chk-"))

    def stored(self, uid: str, checkpoint: int) -> list[dict[str, Any]]:
        """The rows in the files of a state, in their order."""
        handle = self.line.coordinator.checkpoint(checkpoint).handles[uid]
        root = str(self.tidemark.warehouse)
        return [
            row
            for segment, file in files_of(root, handle)
            for row in pq.read_table(Path(root, segment.path, file.path), partitioning=None).to_pylist()
        ]


@pytest.mark.parametrize(
    ("before", "after", "queries"),
    [
        (BY_BOTH, NEW, {"by_stall": grouped("stall", "sold")}),
        (BY_BOTH, SPLIT, {"by_stall": grouped("stall", "sold"), "by_item": grouped("item", "sold")}),
        (PARTS, BY_STALL, {"sold": grouped("stall", "(FROM teas UNION ALL BY NAME FROM others)")}),
        (BY_STALL, 'Fold("kept", key_by="stall", state=Sold)', {"kept": "FROM sold;"}),
    ],
    ids=["re-keyed", "split", "merged", "renamed"],
)
def test_new_keys_are_those_of_a_pipeline_that_had_them_from_the_beginning(
    before: str, after: str, queries: dict[str, str], tmp_path: Path
) -> None:
    depot = Depot(tmp_path / "one", before).grown()
    sources = {uid: depot.rows(uid, 3) for uid in depot.line.pipeline.schemas()}
    depot.declare(after)
    fresh = Depot(tmp_path / "other", after, "fresh", depot.log)
    expected = fresh.line.checkpoint()
    planned = depot.transform("--json", **queries).ok().json
    assert planned["checkpoint"] is None
    reported = depot.transform("--json", "--execute", **queries).ok().json
    assert reported == {**planned, "checkpoint": "chk-4"}
    assert reported["left_behind"] == sorted(sources.keys() - queries.keys())
    for state in reported["states"]:
        uid = state["uid"]
        assert depot.rows(uid, 4) == fresh.rows(uid, expected.id), uid
        assert state["after"] == state["inserted"] == len(depot.rows(uid, 4))
        assert state["before"] == state["deleted"] == 0
    assert {uid: depot.rows(uid, 3) for uid in sources} == sources, "the source is as it was"
    depot("verify", "depot", "--content").ok()
    for _ in range(2):
        depot.send()
        one, other = depot.line.checkpoint(timeline="rewritten"), fresh.line.checkpoint()
        for uid in queries:
            assert depot.rows(uid, one.id) == fresh.rows(uid, other.id), f"{uid}, read on"
            depot.line.compact(uid, full=True, timeline="rewritten")
    depot("promote", "depot", "rewritten", "--execute").ok()
    depot.send()
    one, other = depot.line.checkpoint(), fresh.line.checkpoint()
    assert one.plan.slot.timeline == "rewritten"
    assert [depot.rows(uid, one.id) for uid in queries] == [fresh.rows(uid, other.id) for uid in queries]


def test_a_state_in_other_key_groups_is_the_same_and_goes_on_in_these(tmp_path: Path) -> None:
    depot = Depot(tmp_path, SPLIT).grown()
    before = {uid: depot.rows(uid, 3) for uid in ("by_stall", "by_item")}
    answer = depot.transform("--key-groups", "16", "--execute", "--json")
    made = depot.number(answer)
    assert [(s["uid"], s["key_groups"], s["unchanged"]) for s in answer.json["states"]] == [
        (uid, 16, len(rows)) for uid, rows in before.items()
    ]
    for uid, key in (("by_stall", "stall"), ("by_item", "item")):
        assert depot.rows(uid, made) == before[uid]
        assert depot.line.coordinator.checkpoint(made).plan.schemas[uid].key_groups == 16
        rows = depot.stored(uid, made)
        assert [row["_key_group"] for row in rows] == [zlib.crc32(row[key].encode()) % 16 for row in rows]
        assert [row["_key_group"] for row in rows] == sorted(row["_key_group"] for row in rows)
        assert depot("state", "diff", "depot", uid, "--from", "3", "--to", str(made), "--json").ok().json["rows"] == []
    depot.send()
    one, other = depot.line.checkpoint(timeline="rewritten"), depot.line.checkpoint()
    for uid, key in (("by_stall", "stall"), ("by_item", "item")):
        assert one.plan.schemas[uid].key_groups == 16
        assert depot.rows(uid, one.id) == depot.rows(uid, other.id)
        assert all(row["_key_group"] == zlib.crc32(row[key].encode()) % 16 for row in depot.stored(uid, one.id))
        key_of_row = depot.rows(uid, one.id)[0][key]
        shown = depot("state", "show", "depot", uid, "--key", key_of_row, "--checkpoint", str(one.id), "--json").ok()
        assert [row[key] for row in shown.json] == [key_of_row]
    depot("promote", "depot", "rewritten", "--execute").ok()
    depot.send()
    depot.line.checkpoint()
    depot("verify", "depot", "--content").ok()
    back = depot.transform("--key-groups", "16", source="chk-4", fork="again").failed(
        2, "all states have 16 key groups"
    )
    assert "--key-groups" in back.err


def test_a_query_that_changes_nothing_changes_nothing(tmp_path: Path) -> None:
    given = Given(tmp_path)
    line, folder = given.source.line, given.source
    before = given.objects
    words = [word for uid in ("sold", "tills") for word in ("--query", f"{uid}=FROM {uid}")]
    command = ("savepoint", "transform", "market", "--from", "june", "--fork", "same", *words, "--json")
    planned = given.tidemark(*command).ok().json
    assert given.objects == before, "a dry run writes nothing"
    counts = ("inserted", "changed", "deleted")
    for state in planned["states"]:
        assert [state[name] for name in counts] == [0, 0, 0], state
        assert state["before"] == state["after"] == state["unchanged"] == len(given.rows[state["uid"]])
    made = given.tidemark(*command, "--execute").ok().json
    after = given.objects
    assert {key: after[key] for key in before} == before, "what was read is as it was, bit for bit"
    number = int(made["checkpoint"].removeprefix("chk-"))
    done = line.coordinator.checkpoint(number)
    assert done.handles["rates"] == line.coordinator.checkpoint(2).handles["rates"], "by reference"
    for uid in UIDS:
        assert folder.rows(uid, number) == given.rows[uid], "also `_changed`"
    for uid in ("sold", "tills"):
        diff = ("state", "diff", "market", uid, "--from", "june", "--to", "same", "--inserts", "--json")
        assert given.tidemark(*diff).ok().json["rows"] == []
    line.clock.advance(1)
    given.tidemark("run", "market", "--timeline", "same").ok()
    ran = next(line.coordinator.checkpoints("same"))
    bare = [[{k: v for k, v in r.items() if k != "_changed"} for r in folder.rows("sold", n)] for n in (3, ran.id)]
    assert bare[0] == bare[1], "accumulators, places and access times were kept"
    assert ran.operator_states == line.coordinator.checkpoint(3).operator_states
    given.tidemark("verify", "market", "--content").ok()


def test_changes_are_counted_and_a_diff_shows_them(tmp_path: Path) -> None:
    depot = Depot(tmp_path, BY_BOTH).grown()
    query = (
        "SELECT * REPLACE (if(item = 'jam', sales + 1, sales) AS sales) FROM sold WHERE item <> 'mug'"
        " UNION ALL BY NAME SELECT * REPLACE ('x' AS stall) FROM sold WHERE item = 'tea'"
    )
    rows = depot.rows("sold", 3)
    by_item = {item: sum(r["item"] == item for r in rows) for item in ("tea", "jam", "mug")}
    answer = depot.transform("--json", "--execute", sold=query.replace("('x' AS stall)", "('x' || stall AS stall)"))
    (state,) = answer.ok().json["states"]
    wanted = {
        "inserted": by_item["tea"],
        "changed": by_item["jam"],
        "deleted": by_item["mug"],
        "unchanged": by_item["tea"],
    }
    assert {name: state[name] for name in wanted} == wanted
    diff = depot("state", "diff", "depot", "sold", "--from", "3", "--to", "4", "--inserts", "--json").ok().json["rows"]
    changes = [row["change"] for row in diff]
    assert [changes.count(c) for c in ("inserted", "updated", "deleted")] == [
        wanted["inserted"], wanted["changed"], wanted["deleted"]
    ]  # fmt: skip
    depot.transform("--execute", sold=query).failed(
        4, "savepoint rewritten exists already", "--fork NAME, or --as NAME"
    )
    depot.transform("--execute", "--as", "other", sold=query).failed(
        4, "timeline rewritten exists already", "--fork NAME"
    )


def test_rows_that_cannot_be_state_are_counted_by_reason_and_refused(tmp_path: Path) -> None:
    depot = Depot(tmp_path, BY_STALL).grown()
    before = depot.tidemark.objects("depot")
    query = (
        "SELECT * FROM sold"
        " UNION ALL BY NAME FROM sold WHERE stall = 'a'"
        " UNION ALL BY NAME SELECT * REPLACE (NULL AS stall) FROM sold WHERE stall IN ('b', 'c')"
        " UNION ALL BY NAME SELECT * REPLACE ('q' AS stall, cents + 0.5 AS cents) FROM sold WHERE stall = 'd'"
        " UNION ALL BY NAME SELECT * REPLACE ('r' AS stall, NULL AS mean__sum) FROM sold WHERE stall = 'd'"
    )
    answer = depot.transform("--json", sold=query).ok()
    found = {r["why"]: (r["rows"], r["some"]) for r in answer.json["states"][0]["refused"]}
    assert found == {
        "stall is null": (2, ["null", "null"]),
        "cents is not exact as BIGINT": (1, ["q"]),
        "its key occurs more than once": (2, ["a"]),
        "mean__sum and mean__count must both be known, or neither": (1, ["r"]),
    }
    assert "Next: correct the query" in answer.err
    depot.transform("--execute", sold=query).failed(2, "6 rows cannot be state", "sold: 2 x stall is null")
    objects = depot.tidemark.objects("depot")
    assert {k: v for k, v in objects.items() if "/jobs/" not in f"/{k}"} == before
    assert "rewritten" not in depot.line.coordinator.timelines.names()


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT stall FROM sold", ("sales BIGINT is missing", "items ARRAY<STRING> is missing")),
        ("SELECT * REPLACE (1 AS stall) FROM sold", ("stall is INTEGER, not STRING",)),
        ("SELECT *, 1 AS Sales FROM sold", ("column sales is there twice",)),
        ("SELECT * FROM nothing", ("nothing", "it can read: sold")),
        ("SELECT", ("correct the query",)),
        ("DROP TABLE sold", ("one SELECT",)),
        ("FROM sold; FROM sold", ("one SELECT",)),
        ("COPY sold TO 'x.parquet'", ("one SELECT",)),
        ("SELECT * FROM read_csv('/etc/passwd')", ("the query for sold fails",)),
        ("SELECT * FROM '/etc/passwd'", ("the query for sold fails",)),
        ("SELECT * REPLACE (CAST(stall AS INTEGER)::VARCHAR AS stall) FROM sold", ("Could not convert", "correct it")),
        ("SELECT * REPLACE ([1] AS items) FROM sold", ("items is INTEGER[], not ARRAY<STRING>",)),
    ],
)
def test_a_query_reads_states_alone_and_returns_the_declared_columns(
    refusing: Depot, query: str, words: tuple[str, ...]
) -> None:
    for more in ((), ("--execute",)):
        refusing.transform(*more, sold=query).failed(2, *words)


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Depot:
    """One that every test finds as it was."""
    return Depot(tmp_path_factory.mktemp("refusing"), BY_STALL).grown()


def test_requests_that_make_no_sense_are_refused(refusing: Depot) -> None:
    refusing.transform().failed(2, "nothing to transform", "--query")
    refusing.transform(nothing="FROM sold").failed(2, "no operator 'nothing'")
    refusing.transform("--query", "sold").failed(2, "UID=SQL")
    refusing.transform("--query-file", "sold=nowhere.sql").failed(2, "cannot read nowhere.sql")
    refusing.transform("--query", "sold=FROM sold", sold="FROM sold").failed(2, "two queries for sold")
    refusing.transform("--key-groups", "0").failed(2, "0 key groups")
    refusing.transform(source="chk-9", sold="FROM sold").failed(3, "chk-9")
    refusing.transform(fork="t9", sold="FROM sold").failed(2, "t9")


def test_other_key_columns_need_a_new_uid(tmp_path: Path) -> None:
    depot = Depot(tmp_path, BY_STALL).grown()
    query = "SELECT *, 'tea' AS item FROM sold"
    depot.declare(BY_BOTH)
    words = ("the key columns of sold changed from (stall STRING) to (stall STRING, item STRING)", "under a new uid")
    depot.transform(sold=query).failed(2, *words)
    depot.declare(BY_BOTH.replace('"sold"', '"pairs"').replace("state=Sold", 'state=Sold, was="sold"'))
    depot.transform(pairs=query).failed(2, "the key columns of pairs changed", "without was=")
    depot.declare(BY_BOTH.replace('"sold"', '"pairs"'))
    depot.transform("--execute", pairs=query).ok()


def test_a_key_is_erased_from_states_of_every_number_of_key_groups(tmp_path: Path) -> None:
    depot = Depot(tmp_path, BY_STALL).grown()
    for number, fork in ((5, "five"), (1000, "many")):
        depot.transform("--execute", "--key-groups", str(number), fork=fork).ok()
    depot.send()
    depot.line.checkpoint(timeline="five")
    depot("erase", "depot", "sold", "--key", "b", "--execute").ok()
    for n in range(1, 7):
        assert {row["stall"] for row in depot.rows("sold", n)} == set("acd"), f"chk-{n}"
        assert all(row["stall"] != "b" for row in depot.stored("sold", n)), f"chk-{n}"
    depot("verify", "depot", "--content").ok()


def test_a_query_of_a_file_is_the_same(refusing: Depot, tmp_path: Path) -> None:
    file = tmp_path / "sold.sql"
    file.write_text("-- as it is\nFROM sold -- all of it\n")
    one = refusing.transform("--query-file", f"sold={file}", "--json").ok().json
    assert one == refusing.transform("--json", sold="FROM sold").ok().json


def test_what_is_left_behind_without_being_read_needs_a_word(tmp_path: Path) -> None:
    depot = Depot(tmp_path, SPLIT).grown()
    depot.declare('Fold("by_stall", key_by="stall", state=Sold)')
    depot.transform(by_stall="FROM by_stall").failed(2, "by_item: is no longer declared", "--allow-non-restored-state")
    reported = depot.transform("--allow-non-restored-state", "--json", by_stall="FROM by_stall").ok().json
    assert reported["left_behind"] == ["by_item"]
    both = "SELECT * FROM by_stall WHERE stall NOT IN (SELECT item FROM by_item)"
    assert depot.transform("--json", "--execute", by_stall=both).ok().json["left_behind"] == ["by_item"]


@pytest.mark.parametrize("dies", ["write", "commit", "record", "plan", "complete", "pin"])
def test_a_transform_that_was_killed_is_finished_by_the_same_command(
    dies: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = {
        "write": "tidemark.operations.savepoint_states.transform._write_rows",
        "commit": "tidemark.tables.delta_tables.DeltaTables.make_durable",
        "record": "tidemark.coordinator.recovery.idle_plans.Idle.plan",
        "plan": "tidemark.coordinator.records.timelines.Freezer.freeze",
        "complete": "tidemark.coordinator.recovery.savepoint_transform.Transformer._complete",
        "pin": "tidemark.coordinator.recovery.savepoints.Savepoints.create",
    }
    depot = Depot(tmp_path, BY_BOTH).grown()
    rows = depot.rows("sold", 3)
    depot.declare(NEW)
    # Other rows at every call: one process still writes all that a plan names.
    query = f"SELECT * REPLACE (sales + 0 * CAST(random() * 9 AS INT) AS sales) FROM ({grouped('stall', 'sold')})"
    with monkeypatch.context() as patch:
        patch.setattr(where[dies], _killed)
        with pytest.raises(RuntimeError, match="killed"):
            depot.transform("--execute", by_stall=query)
    if dies in ("write", "commit", "record", "plan"):
        depot("run", "depot", "--timeline", "rewritten").failed(2, "sold: is no longer declared")
    reported = depot.transform("--execute", "--json", by_stall=query)
    number = depot.number(reported)
    assert number == (5 if dies in ("write", "commit", "record", "plan") else 4)
    found = {r["stall"]: r["sales"] for r in depot.rows("by_stall", number)}
    assert found == {s: sum(r["sales"] for r in rows if r["stall"] == s) for s in found}
    assert depot.transform("--execute", "--json", by_stall=query).ok().json == reported.json, "it finds its own work"
    assert list((depot.tidemark.warehouse / "depot").glob("scratch/*")) == []
    depot("verify", "depot", "--content").ok()


def _killed(*args: object, **kwargs: object) -> None:
    raise RuntimeError("killed")


def _meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Lets something happen between the read of the rows and the first object of the fork."""
    original = Transformer.transform

    def transform(self: Transformer, wanted: Any) -> Any:
        monkeypatch.setattr(Transformer, "transform", original)
        happens()
        return original(self, wanted)

    monkeypatch.setattr(Transformer, "transform", transform)


def test_a_key_that_is_erased_while_rows_are_read_comes_back_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    depot = Depot(tmp_path, BY_STALL).grown()
    erased = ("erase", "depot", "sold", "--key", "a", "--execute")
    _meanwhile(monkeypatch, lambda: depot.tidemark(*erased).ok())
    depot.transform("--execute", sold="FROM sold").failed(4, "a key was erased from chk-3", "another name")
    reported = depot.transform("--execute", "--json", fork="clean", sold="FROM sold")
    assert [r["stall"] for r in depot.rows("sold", depot.number(reported))] == ["b", "c", "d"]


def test_the_source_is_pinned_while_rows_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    depot = Depot(tmp_path, BY_STALL).grown()
    Savepoints(depot.line.coordinator).create(SavepointRequest(name="june", owner="a", origin="test", checkpoint=1))
    gone: list[Any] = []

    def release() -> None:
        depot.tidemark("savepoint", "dispose", "depot", "june", "--execute").ok()
        swept = depot.tidemark(
            "retention", "apply", "depot", "--keep", "keep_last(1)", "--grace", "0", "--execute", "--json"
        )
        gone.append(swept.ok().json)

    _meanwhile(monkeypatch, release)
    # The savepoint that it began at is gone by now, so it ends as a fork of it would; no file is missing meanwhile.
    depot.transform("--execute", source="june", sold="FROM sold").failed(4, "june")
    assert gone
    assert depot.rows("sold", 1)
    _meanwhile(monkeypatch, release)
    objects = depot.line.coordinator.objects
    jobs = [objects.read(JobRecord, key) for key in objects.list("jobs/") if not key.endswith(".end.json")]
    assert {job.kind for job in jobs if job is not None} == {"query"}


def test_a_transform_goes_through_an_export_and_an_import(tmp_path: Path) -> None:
    depot = Depot(tmp_path / "one", BY_BOTH).grown()
    depot.declare(NEW)
    query = grouped("stall", "sold")
    number = depot.number(depot.transform("--execute", "--json", "--key-groups", "32", by_stall=query))
    depot("export", "depot", "--savepoint", "rewritten", "--to", str(tmp_path / "export")).ok()
    other = Depot(tmp_path / "other", NEW, "bazaar", depot.log)
    other("import", str(tmp_path / "export"), "--as", "bazaar", "--execute").ok()
    assert other.rows("by_stall") == depot.rows("by_stall", number)
    depot.send()
    one, two = depot.line.checkpoint(timeline="rewritten"), other.line.checkpoint()
    assert other.rows("by_stall", two.id) == depot.rows("by_stall", one.id)
    assert two.plan.schemas["by_stall"].key_groups == one.plan.schemas["by_stall"].key_groups == 32


def test_a_changed_declaration_with_the_same_keys_keeps_what_it_does_not_change(tmp_path: Path) -> None:
    depot = Depot(tmp_path, BY_STALL).grown()
    before = depot.rows("sold", 3)
    text = (depot.tidemark.pipelines / "depot.py").read_text()
    added = text.replace("    items: list", '    firsts: int | None = state.max("cents")\n    items: list')
    depot.tidemark.declare(added, file="depot.py")
    depot.line.pipeline = depot.tidemark.context.pipeline("depot")
    query = "SELECT *, if(stall = 'a', most, NULL) AS firsts FROM sold"
    (state,) = depot.transform("--execute", "--json", sold=query).ok().json["states"]
    assert (state["changed"], state["unchanged"]) == (1, len(before) - 1)
    found = depot.rows("sold", 4)
    assert [r.pop("firsts") for r in found] == [before[0]["most"], None, None, None]
    assert found == before
