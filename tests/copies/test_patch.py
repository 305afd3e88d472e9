"""`tidemark savepoint patch`: a corrected savepoint beside the one that it comes from, from the form to the promote."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from tests.copies.transfer_pipeline import DECLARATION, SEED, UIDS, TransferPipeline, transfer_pipeline
from tests.support.cli import Answer
from tests.support.disk_context import commands_over
from tidemark.coordinator.recovery.savepoints import Savepoints
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.readers.state_reader import files_of

PLAIN = "\n".join(line for line in DECLARATION.splitlines() if not any(w in line for w in ("ttl=", "till.last")))
"""The market with nothing that expires, so that rows of its fold merge in any order."""


class Given:
    """A market of three checkpoints, the second of which has a savepoint, and tables that correct it."""

    def __init__(self, folder: Path, declared: str = DECLARATION) -> None:
        print(f"seed {SEED}; repeat with TIDEMARK_TEST_SEED={SEED}")
        self.folder = folder
        self.source: TransferPipeline = transfer_pipeline(folder / "first", declared=declared).grown(3, compacted=1)
        request = SavepointRequest(name="june", owner="ann", origin="test", checkpoint=2)
        Savepoints(self.source.line.coordinator).create(request)
        self.rows = {uid: self.source.rows(uid, 2) for uid in UIDS}
        self.stall = self.rows["tills"][0]["stall"]
        self.tills = self.table("tills.parquet", [{**self.rows["tills"][0], "by_item": {"cake": 7}, "tax": 111}])
        self.gone = folder / "gone.parquet"
        pq.write_table(pa.table({"item": [self.rows["sold"][0]["item"], "never"]}), self.gone)
        self.options = ("--set", f"tills={self.tills}", "--delete", f"sold={self.gone}")

    def table(self, name: str, rows: list[dict[str, Any]]) -> Path:
        """Resolved rows of tills as a table."""
        self.source.tidemark("state", "export", "market", "tills", "--to", str(self.folder / "any.parquet")).ok()
        schema = pq.read_schema(self.folder / "any.parquet")
        path = self.folder / name
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
        (self.folder / "any.parquet").unlink()
        return path

    def __call__(self, *options: str, source: str = "june", name: str = "fixed", plain: bool = True) -> Answer:
        with commands_over(self.source.line):
            chosen = self.options if plain else ()
            return self.source.tidemark("savepoint", "patch", "market", source, "--as", name, *chosen, *options)

    def tidemark(self, *arguments: str) -> Answer:
        """Another command."""
        with commands_over(self.source.line):
            return self.source.tidemark(*arguments)

    @property
    def objects(self) -> dict[str, bytes]:
        """Every file of the pipeline, but for folders that a reader makes."""
        return self.source.tidemark.objects("market")


@pytest.fixture
def given(tmp_path: Path) -> Given:
    """One of its own."""
    return Given(tmp_path)


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Given]:
    """One that nothing is written to, and that all tests find as it was."""
    made = Given(tmp_path_factory.mktemp("refused"))
    before = made.objects
    yield made
    assert made.objects == before


def test_without_execute_it_is_told_what_would_change_and_nothing_is_written(refused: Given) -> None:
    answer = refused("--json").ok()
    told = answer.json
    assert (told["from"], told["savepoint"], told["timeline"], told["checkpoint"]) == ("chk-2", "fixed", "fixed", None)
    by_uid = {state.pop("uid"): state for state in told["states"]}
    counts = ("new", "changed", "equal", "deleted", "absent")
    assert [by_uid["tills"][name] for name in counts] == [0, 1, 0, 0, 0]
    assert [by_uid["sold"][name] for name in counts] == [0, 0, 0, 1, 1]
    assert by_uid["sold"]["rows"] == 1, "what is not there needs no tombstone"
    assert by_uid["tills"]["rows"] == 2 + len(refused.rows["tills"][0]["by_item"])
    assert answer.err.endswith("nothing was written. Next: the same command with --execute\n")
    same = refused.table("same.parquet", refused.rows["tills"])
    told = refused("--set", f"tills={same}", "--json", plain=False).ok().json["states"][0]
    assert (told["new"], told["changed"], told["equal"]) == (0, 0, len(refused.rows["tills"]))


def test_a_patch_is_a_savepoint_on_a_fork_and_the_diff_of_both_is_what_was_asked_for(given: Given) -> None:
    before = given.objects
    answer = given("--execute", "--json", "--note", "cake", "--expires", "30d").ok()
    told = answer.json
    made = told["checkpoint"]
    assert "tidemark restore market --savepoint fixed" in answer.err
    assert f"tidemark state diff market tills --from chk-2 --to {made} --values" in answer.err
    after = given.objects
    assert {key: after[key] for key in before} == before, "what was patched is as it was, bit for bit"
    shown = given.tidemark("savepoint", "show", "market", "fixed", "--json").ok().json
    assert (shown["checkpoint"], shown["timeline"], shown["note"]) == (made, "fixed", "cake")
    tills = given.source.rows("tills", int(made.removeprefix("chk-")))
    assert tills[0]["by_item"] == {"cake": 7}
    assert tills[1:] == given.rows["tills"][1:]
    for uid, key, change in (("tills", {"stall": given.stall}, "updated"), ("sold", None, "deleted")):
        found = given.tidemark(
            "state", "diff", "market", uid, "--from", "june", "--to", "fixed", "--inserts", "--json"
        ).ok().json["rows"]  # fmt: skip
        wanted = key or {"item": given.rows["sold"][0]["item"]}
        assert [(r["key"], r["change"]) for r in found] == [(wanted, change)]
    given.tidemark("verify", "market", "--content").ok()
    again = given("--execute", "--json").ok().json
    assert again == told, "it finds its own work"
    assert given("--execute", "--delete", f"tills={given.table('k.parquet', given.rows['tills'][1:])}").failed(
        4, "savepoint fixed exists already"
    )
    given("--execute", "--timeline", "fixed", name="other").failed(4, "timeline fixed exists already", "--timeline")


def test_the_live_timeline_goes_back_to_a_patch_and_reads_again(given: Given) -> None:
    given("--execute").ok()
    told = given.tidemark("restore", "market", "--savepoint", "fixed", "--execute", "--json").ok().json
    assert told["left"] == ["chk-3"]
    given.source.send()
    done = given.source.line.checkpoint()
    assert done.plan.slot.timeline == told["timeline"]
    item = given.rows["sold"][0]["item"]
    anew = {r["item"]: r for r in given.source.rows("sold")}
    # From chk-2 on, and not what was deleted: the third batch and the one that was sent now.
    whole = {r["item"]: r["sales"] for r in given.source.rows("sold", 3)}
    assert anew[item]["sales"] < whole[item]
    tills = {r["stall"]: r for r in given.source.rows("tills")}
    assert given.stall not in tills or tills[given.stall]["tax"] != 0
    given.tidemark("verify", "market", "--content").ok()


def test_a_patched_fork_catches_up_and_is_promoted(given: Given) -> None:
    given("--execute").ok()
    given.tidemark("run", "market", "--timeline", "fixed").ok()
    given.tidemark("promote", "market", "fixed", "--execute").ok()
    assert given.source.line.coordinator.timelines.live() == "fixed"
    given.source.send()
    given.source.line.checkpoint()
    given.tidemark("verify", "market", "--content").ok()


def test_what_was_recorded_since_is_repeated_upon_a_patch(given: Given) -> None:
    made = given("--execute", "--json").ok().json["checkpoint"]
    given.tidemark("backfill", "market", "--from-savepoint", "fixed", "--name", "again", "--execute").ok()
    newest = next(given.source.line.coordinator.checkpoints("again"))
    assert newest.plan.replays == (3,)
    assert f"chk-{newest.plan.parent}" == made
    assert newest.now == given.source.line.coordinator.checkpoint(3).now


@pytest.mark.parametrize("dies", ["write", "commit", "record", "plan", "complete", "pin"])
def test_a_patch_that_was_killed_is_finished_by_the_same_command(
    given: Given, dies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = {
        "write": "tidemark.operations.savepoint_states.patch._write_patch",
        "commit": "tidemark.tables.delta_tables.DeltaTables.make_durable",
        "record": "tidemark.coordinator.recovery.idle_plans.Idle.plan",
        "plan": "tidemark.coordinator.records.timelines.Freezer.freeze",
        "complete": "tidemark.coordinator.recovery.savepoint_transform.Transformer._complete",
        "pin": "tidemark.coordinator.recovery.savepoints.Savepoints.create",
    }
    with monkeypatch.context() as patch:
        patch.setattr(where[dies], _killed)
        with pytest.raises(RuntimeError, match="killed"):
            given("--execute")
    told = given("--execute", "--json").ok().json
    assert told["checkpoint"] == ("chk-5" if dies in ("write", "commit", "record", "plan") else "chk-4")
    number = int(told["checkpoint"].removeprefix("chk-"))
    assert given.source.rows("tills", number)[0]["by_item"] == {"cake": 7}
    given.tidemark("verify", "market", "--content").ok()


def _killed(*args: object, **kwargs: object) -> None:
    raise RuntimeError("killed")


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ((), 2, ("nothing to patch", "--set")),
        (("--set", "nothing=x"), 2, ("no operator 'nothing'",)),
        (("--delete", "rates=x"), 2, ("rates is broadcast state", "correct the source")),
        (("--set", "tills=no.parquet"), 3, ("no table at",)),
        (("--set", "tills=a", "--set", "tills=b"), 2, ("two tables for tills",)),
        (("--set", "tills"), 2, ("UID=TABLE",)),
    ],
)
def test_what_cannot_be_patched_is_said(
    refused: Given, options: tuple[str, ...], code: int, words: tuple[str, ...]
) -> None:
    for more in ((), ("--execute",)):
        refused(*options, *more, plain=False).failed(code, *words)


def test_tables_that_do_not_fit_are_refused_row_by_row(refused: Given) -> None:
    refused("--delete", f"tills={refused.tills}").failed(2, "keys of tills are both set and deleted", refused.stall)
    refused("--delete", f"tills={refused.gone}").failed(2, "cannot name keys of tills", "stall STRING is missing")
    twice = refused.table("twice.parquet", [refused.rows["tills"][0]] * 2)
    refused("--set", f"tills={twice}", plain=False).failed(2, "keys occur twice")
    none = refused.folder / "none.parquet"
    pq.write_table(pa.table({"item": ["never"]}), none)
    refused("--delete", f"sold={none}", plain=False).failed(2, "no existing key is deleted")
    long = refused.table("long.parquet", [{**refused.rows["tills"][0], "receipts": [1], "by_item": None}])
    refused("--set", f"tills={long}", plain=False).ok()
    torn = refused.folder / "torn.parquet"
    columns = {"item": ["tea"], "mean__sum": [7], "mean__count": pa.array([None], pa.int64())}
    others = {"sales": 1, "cents": 1, "least": 1, "most": 1, "opened_by": "a", "last_at": "a", "today": 1}
    lists = {"stalls": ["a"], "history": [1], "recent": [1]}
    pq.write_table(pa.table({**columns, **{k: [v] for k, v in (others | lists).items()}}), torn)
    refused("--set", f"sold={torn}", plain=False).failed(2, "mean__sum and mean__count must both be known, or neither")


def test_access_times_are_given_or_those_of_the_checkpoint(refused: Given) -> None:
    refused("--at", "2030-01-01T00:00:00Z").failed(2, "--at is later than chk-2")
    refused("--at", "2001-01-01T00:00:00Z").failed(2, "would have expired already at chk-2")
    now = refused.source.line.coordinator.checkpoint(2).now.event_time_ms
    assert now is not None
    hour_ago = f"SELECT strftime(make_timestamp({now - 3_600_000} * 1000), '%Y-%m-%dT%H:%M:%SZ')"
    early = duckdb.execute(hour_ago).fetchall()
    assert refused("--at", early[0][0], "--json").ok().json["states"]


def test_names_that_are_taken_and_points_that_are_not_there_are_refused(refused: Given) -> None:
    refused(name="june").failed(4, "savepoint june exists already")
    refused("--timeline", "t9").failed(2, "t9")
    refused(source="july").failed(3, "july")
    refused(source="chk-77").failed(3, "chk-77")


def test_a_checkpoint_that_is_not_whole_is_not_patched(given: Given) -> None:
    pinned = given.source.line.coordinator.checkpoint(2)
    root = given.source.tidemark.warehouse
    (segment, file), *_ = files_of(str(root), pinned.handles["tills"])
    Path(root, segment.path, file.path).unlink()
    for more in ((), ("--execute",)):
        given(*more).failed(6, file.path)
    assert "fixed" not in given.source.line.coordinator.timelines.names()


def test_a_delta_table_patches_a_fold_whose_rows_merge_in_any_order(tmp_path: Path) -> None:
    """And the printed query, which needs no code of ours, tells values and tombstones too."""
    given = Given(tmp_path, PLAIN.replace('    mean: float | None = state.mean("cents")\n', ""))
    exported = tmp_path / "sold.parquet"
    given.tidemark("state", "export", "market", "sold", "--to", str(exported)).ok()
    rows = pq.read_table(exported).slice(0, 1).drop_columns(["_changed"])
    first = rows["item"][0].as_py()
    second = next(r["item"] for r in given.rows["sold"] if r["item"] != first)
    delta = tmp_path / "sold"
    write_deltalake(str(delta), rows.set_column(1, "sales", pa.array([1000])))
    keys = tmp_path / "keys.parquet"
    pq.write_table(pa.table({"item": [second]}), keys)
    line = ("--set", f"sold={delta}", "--delete", f"sold={keys}", "--execute", "--json")
    assert given(*line, plain=False).ok().json["checkpoint"] == "chk-4"
    printed = given.tidemark("state", "query", "market", "sold", "--checkpoint", "4", "--dialect", "duckdb").ok().out
    with duckdb.connect() as connection:
        cursor = connection.execute(printed)
        names = [d[0] for d in cursor.description]
        answered = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    assert sorted(answered, key=lambda r: r["item"]) == given.source.rows("sold", 4)
    found = {r["item"]: r["sales"] for r in given.source.rows("sold", 4)}
    assert found[first] == 1000
    assert second not in found
    given.tidemark("run", "market", "--timeline", "fixed").ok()
    assert given.source.line.compact("sold", full=True, timeline="fixed")
    given.source.send()
    done = given.source.line.checkpoint(timeline="fixed")
    assert done.plan.schemas["sold"].patched == 0, "a whole compaction leaves nothing that hides"
    assert {r["item"]: r["sales"] for r in given.source.rows("sold", done.id)}[first] > 1000


def test_a_declaration_that_has_changed_is_patched_in_its_own_columns(given: Given) -> None:
    tax = "    tax: int = state.value(0)\n"
    changed = DECLARATION.replace(tax, f"{tax}    fee: int = state.value(0)\n")
    given.source.tidemark.declare(changed, file="market.py", name="market")
    given.source.line.pipeline = given.source.tidemark.context.pipeline("market")
    given("--execute").failed(2, "fee BIGINT is missing")
    table = pq.read_table(given.tills).append_column("fee", pa.array([9]))
    pq.write_table(table, given.tills)
    told = given("--execute", "--json").ok().json
    rows = given.source.rows("tills", int(told["checkpoint"].removeprefix("chk-")))
    assert [(r["fee"], r["by_item"]) for r in rows[:1]] == [(9, {"cake": 7})]
    assert [r["tax"] for r in rows[1:]] == [r["tax"] for r in given.rows["tills"][1:]]
    given.tidemark("run", "market", "--timeline", "fixed").ok()
    given.tidemark("verify", "market", "--content").ok()


def test_operators_that_are_gone_are_left_behind_where_that_is_allowed(given: Given) -> None:
    fold = '        Fold("sold", key_by="item", state=Sold, input="sales"),\n'
    assert fold in DECLARATION
    given.source.tidemark.declare(DECLARATION.replace(fold, ""), file="market.py", name="market")
    given.source.line.pipeline = given.source.tidemark.context.pipeline("market")
    line = ("--set", f"tills={given.tills}", "--execute")
    given(*line, plain=False).failed(2, "sold: is no longer declared", "--allow-non-restored-state")
    given(*line, "--allow-non-restored-state", plain=False).ok()
    assert "sold" not in given.source.line.coordinator.checkpoint(4).handles
    assert given.source.rows("tills", 4)[0]["by_item"] == {"cake": 7}


def test_a_patch_is_exported_and_imported_like_any_checkpoint(given: Given, tmp_path: Path) -> None:
    made = int(given("--execute", "--json").ok().json["checkpoint"].removeprefix("chk-"))
    given.tidemark("export", "market", "--savepoint", "fixed", "--to", str(tmp_path / "export")).ok()
    other = given.source.beside(given.source.tidemark, "bazaar")
    other.tidemark("import", str(tmp_path / "export"), "--as", "bazaar", "--execute").ok()
    assert {uid: other.rows(uid) for uid in UIDS} == {uid: given.source.rows(uid, made) for uid in UIDS}
    given.source.send()
    done = given.source.line.checkpoint(timeline="fixed")
    other.line.checkpoint()
    bare = [
        [{k: v for k, v in r.items() if k != "_changed"} for r in rows]
        for rows in (other.rows("sold"), given.source.rows("sold", done.id))
    ]
    assert bare[0] == bare[1]
