"""`state sql`, `diff`, `hash`, `query` and `checkpoint replay`, over a warehouse that no Spark has written.

What is right is told by `tests.support.sales`, one pass of plain Python over the records sent.
"""

import csv
import io
import json
import resource
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import pytest

from tests.support.cli import Answer
from tests.support.disk import DiskPipeline
from tests.support.sales_pipeline import DECLARATION, SalesPipeline
from tidemark.context import Context
from tidemark.coordinator.checkpoints.job import dead_letters_table, runs_table
from tidemark.errors import DataLostError
from tidemark.model.checkpoint.manifest import Sealed
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.operations.replay import Rehearsal
from tidemark.ports import Attempt

VIEWS = [
    "checkpoints",
    "checkpoint_states",
    "checkpoint_offsets",
    "source_watermarks",
    "operator_states",
    "metrics",
    "accounts",
    "tills",
]


class AskedShop(SalesPipeline):
    """A till's warehouse of nine checkpoints, with compactions of either operator between."""

    def ask(self, statement: str, *options: str) -> Any:
        return self.tidemark("state", "sql", "till", statement, *options, "--json").ok().json

    def touched(self, after: int, through: int) -> set[str]:
        """Accounts with a sale in the ranges of checkpoints (after, through]."""
        starts, ends = self.ends(after), self.ends(through)
        sold = [s for p, end in ends.items() for s in self.sales.sent[p][starts.get(p, 0) : end]]
        return {s["account"] for s in sold} - {None}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AskedShop]:
    made = AskedShop.opened(tmp_path_factory.mktemp("shop"), seed=20241121)
    for n in range(1, 10):
        made.checkpoint(0 if n == 4 else 3 if n > 6 else 30)
        if n in (3, 6):
            assert made.line.compact("accounts", full=n == 6)
            assert made.line.compact("tills")
    yield made


def test_the_newest_state_is_a_view(shop: AskedShop) -> None:
    rows = shop.ask("select * from accounts order by account")
    told = {r["account"]: {k: v for k, v in r.items() if k not in ("account", "_changed")} for r in rows}
    assert told == shop.states(9)


@pytest.mark.parametrize("n", [1, 3, 4, 7, 9])
def test_every_checkpoint_is_a_table_function(shop: AskedShop, n: int) -> None:
    rows = shop.ask(f"select account, sales from accounts_at({n})")
    assert {r["account"]: r["sales"] for r in rows} == {k: v["sales"] for k, v in shop.states(n).items()}


def test_one_query_joins_two_checkpoints_and_the_offsets(shop: AskedShop) -> None:
    rows = shop.ask(
        "select account, n.sales - coalesce(o.sales, 0) as more, f.end_offset as upto, c.records"
        " from accounts_at(9) as n left join accounts_at(5) as o using (account)"
        " join checkpoint_offsets f on f.checkpoint = 9 and f.partition = 0 join checkpoints c on c.id = 9"
    )
    old, new = shop.states(5), shop.states(9)
    expected = {k: v["sales"] - old.get(k, {"sales": 0})["sales"] for k, v in new.items()}
    assert {r["account"]: r["more"] for r in rows} == expected
    assert {r["upto"] for r in rows} == {shop.ends(9)[0]}
    assert {r["records"] for r in rows} == {3}


def test_manifests_are_tables(shop: AskedShop) -> None:
    told = {r["id"]: r for r in shop.ask("select * from checkpoints")}
    assert sorted(told) == list(shop.made)
    assert [told[n]["parent"] for n in (1, 2, 9)] == [None, 1, 8]
    assert told[4]["records"] == told[4]["run_bytes"] == 0
    states = shop.ask("select * from checkpoint_states where uid = 'accounts'")
    for row in states:
        ack = shop.made[row["checkpoint"]].ack("accounts")
        assert ack is not None
        assert (row["rows"], row["bytes"], row["keys"]) == (ack.handle.rows, ack.handle.bytes, ack.keys)
        assert row["dead_letters"] == ack.dead_lettered
    spans = shop.ask("select checkpoint, sum(end_offset - start_offset) as n from checkpoint_offsets group by all")
    assert {r["checkpoint"]: r["n"] for r in spans} == {n: told[n]["records"] for n in shop.made}


def test_percentiles_are_a_query_over_all_checkpoints(shop: AskedShop) -> None:
    """Of what the K5 page of Flink keeps for the last ones; the oracle is the statistics module."""
    asked = "select count(*) as n, quantile_cont({0}, 0.5) as p50, quantile_cont({0}, 0.9) as p90 from checkpoints"
    for name, values in (
        ("seconds", [sum(c.sealed.timings_ms.values()) / 1000 for c in shop.made.values()]),
        ("run_bytes", [sum(a.run_bytes for a in c.sealed.acks) for c in shop.made.values()]),
    ):
        (told,) = shop.ask(asked.format(name))
        tenths = statistics.quantiles(values, n=10, method="inclusive")
        assert told["n"] == len(shop.made)
        assert (told["p50"], told["p90"]) == pytest.approx((statistics.median(values), tenths[8]))


def test_tables_and_columns_can_be_listed(shop: AskedShop) -> None:
    assert [r["name"] for r in shop.ask("SHOW TABLES")] == [*VIEWS, "accounts_at(N)", "tills_at(N)"]
    assert {r["column_name"]: r["column_type"] for r in shop.ask("describe tills")} == {
        "shop": "VARCHAR", "till": "BIGINT", "day": "DATE", "sales": "BIGINT", "total": "DECIMAL(38,2)",
        "_changed": "BIGINT",
    }  # fmt: skip
    assert [r["column_name"] for r in shop.ask("describe select * from tills_at(2)")][:3] == ["shop", "till", "day"]


def test_only_what_a_statement_names_is_opened(shop: AskedShop, tmp_path: Path) -> None:
    hidden = shop.tidemark.warehouse / "till" / "state" / "tills"
    hidden.rename(tmp_path / "tills")
    try:
        assert shop.ask("select count(*) as n from accounts -- not of tills, 'tills'")[0]["n"] == len(shop.states(9))
        shop.tidemark("state", "sql", "till", "select count(*) from tills").failed(1, "tills", "backup")
    finally:
        (tmp_path / "tills").rename(hidden)


def test_damaged_files_are_told_as_what_they_are(shop: AskedShop) -> None:
    asked = ("state", "sql", "till", "select * from tills")
    for path in (shop.tidemark.warehouse / "till" / "state" / "tills").rglob("*.parquet"):
        sound = path.read_bytes()
        for damage in (b"x" * len(sound), sound[: len(sound) // 2]):
            path.write_bytes(damage)
            answer = shop.tidemark(*asked)
            path.write_bytes(sound)
            if answer.code:  # the newest state may do without that file
                assert len(answer.failed(1, "cannot be read", "backup").err.splitlines()) == 3
    path.write_bytes(sound[:4] + b"\xff" * 60 + sound[64:])
    shop.tidemark(*asked).failed(1, "state cannot be read", "backup")
    path.write_bytes(sound)
    shop.tidemark(*asked).ok()


def test_an_answer_starts_no_jvm_and_takes_less_than_three_seconds(shop: AskedShop) -> None:
    asked = ("state", "sql", "till", "select count(*) as n from accounts, checkpoints, accounts_at(3)", "--json")
    shop.tidemark.process(*asked).ok()  # compiles what was not yet
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = shop.tidemark.process(*asked, PYTHONPROFILEIMPORTTIME="1").ok()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert answer.json == [{"n": len(shop.states(9)) * len(shop.made) * len(shop.states(3))}]
    imported = {line.rpartition("|")[2].strip() for line in answer.err.splitlines() if line.startswith("import time")}
    assert "duckdb" in imported
    assert not imported & {"pandas", "pyspark", "pyarrow.dataset", "airflow", "confluent_kafka"}
    # Of processor time, because the machine may do other things meanwhile.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 3


def test_a_statement_may_come_from_a_file_or_from_stdin(shop: AskedShop, tmp_path: Path) -> None:
    file = tmp_path / "query.sql"
    file.write_text("select sum(sales) as n from accounts;")
    sold = sum(v["sales"] for v in shop.states(9).values())
    assert shop.tidemark("state", "sql", "till", "--file", str(file), "--json").ok().json == [{"n": sold}]
    with mock.patch("sys.stdin", io.StringIO("select sum(sales) as n from accounts")):
        assert shop.tidemark("state", "sql", "till", "-", "--json").ok().json == [{"n": sold}]
    shop.tidemark("state", "sql", "till").failed(2, "one statement")
    shop.tidemark("state", "sql", "till", "select 1", "--file", str(file)).failed(2, "one statement")
    shop.tidemark("state", "sql", "till", "--file", str(tmp_path / "none.sql")).failed(2, "none.sql")


def test_csv_has_a_header_and_json_for_lists(shop: AskedShop) -> None:
    answer = shop.tidemark("state", "sql", "till", "select account, shops, last_at from accounts", "--csv").ok()
    rows = list(csv.DictReader(io.StringIO(answer.out)))
    assert {r["account"]: json.loads(r["shops"]) for r in rows} == {k: v["shops"] for k, v in shop.states(9).items()}
    shop.tidemark("state", "sql", "till", "select 1", "--csv", "--json").failed(2, "--csv")


def test_values_of_every_sql_type_can_be_told(shop: AskedShop) -> None:
    [row] = shop.ask(
        "select 1.5::decimal(3,1) as a, sum(1)::hugeint as b, time '10:00' as c, 'nan'::double as d, {'x': [1]} as e,"
        " uuid '00000000-0000-0000-0000-000000000001' as f, 1 as g, 2 as g, timestamp '2024-01-01' as h,"
        " map {7: 'x'} as i"
    )
    assert (row["a"], row["b"], row["c"], row["d"], row["e"]) == ("1.5", 1, "10:00:00", "nan", {"x": [1]})
    assert (row["g"], row["g_1"], row["h"]) == (1, 2, "2024-01-01T00:00:00+00:00")
    assert row["i"] == {"7": "x"}


@pytest.mark.parametrize(
    ("statement", "code", "word"),
    [
        ("select * from nowhere", 3, "accounts, tills, accounts_at(N)"),
        ("select nothing from accounts", 2, "nothing"),
        ("selec 1", 2, "syntax error"),
        ("", 2, "nothing"),
        ("select 1; select 2", 2, "one SELECT"),
        ("drop view accounts", 2, "DROP"),
        ("create table x as select 1", 2, "CREATE"),
        ("copy accounts to 'x.csv'", 2, "COPY"),
        ("attach 'x.db'", 2, "ATTACH"),
        ("install httpfs", 2, "LOAD"),
        ("set enable_external_access = true", 2, "SET"),
        ("call enable_logging()", 2, "CALL"),
        ("pragma version", 2, "PRAGMA"),
        ("select * from read_csv('/etc/hostname')", 2, "only state"),
        ("select * from read_text('/etc/hostname')", 2, "only state"),
        ("select * from glob('/etc/*')", 2, "only state"),
        ("select * from '/etc/hostname'", 3, "no view"),
        ("select * from statement", 3, "no view statement"),
        ("select * from enable_logging(storage = 'file')", 2, "locked"),
        ("select * from accounts_at(99)", 3, "chk-99"),
        ("select * from accounts_at(1 + 1)", 2, "accounts_at(17)"),
        ("select * from accounts_at(-1)", 2, "accounts_at(17)"),
    ],
)
def test_what_cannot_be_asked_says_why(shop: AskedShop, statement: str, code: int, word: str) -> None:
    shop.tidemark("state", "sql", "till", statement, "--json").failed(code, word)


def test_a_diff_names_the_keys_that_were_touched_between(shop: AskedShop) -> None:
    for before, after in ((1, 2), (2, 7), (6, 9), (3, 4)):
        arguments = ("state", "diff", "till", "accounts", "--from", str(before), "--to", f"chk-{after}", "--values")
        told = shop.tidemark(*arguments, "--json").ok().json
        old, new = shop.states(before), shop.states(after)
        expected = {k: "updated" if k in old else "inserted" for k in shop.touched(before, after)}
        assert {r["key"]["account"]: r["change"] for r in told["rows"]} == expected
        assert sum(told["counts"].values()) == len(expected)
        for row in told["rows"]:
            account = row["key"]["account"]
            for side, state in (("before", old), ("after", new)):
                values = row[side] and {k: v for k, v in row[side].items() if k != "_changed"}
                assert values == state.get(account)


def test_a_diff_for_people_and_its_cost(shop: AskedShop) -> None:
    tills = ("state", "diff", "till", "tills", "--from", "6", "--to", "7")
    answer = shop.tidemark(*tills).ok()
    assert {line.split()[-1] for line in answer.out.splitlines()} == {"change", "upserted"}
    assert "the state has" in answer.err
    inserts = shop.tidemark(*tills, "--inserts").ok()
    assert {line.split()[-1] for line in inserts.out.splitlines()} <= {"change", "inserted", "updated"}
    one = shop.tidemark(
        "state", "diff", "till", "accounts", "--from", "6", "--to", "9", "--values", "--limit", "1"
    ).ok()
    assert "sales" in one.out
    assert "→" in one.out
    assert "showing the first 1" in one.err
    nothing = shop.tidemark("state", "diff", "till", "tills", "--from", "3", "--to", "4").ok()
    assert (nothing.out, "nothing changed" in nothing.err) == ("", True)
    shop.tidemark("state", "diff", "till", "tills", "--from", "3", "--to", "99").failed(3, "99")
    shop.tidemark("state", "diff", "till", "nobody", "--from", "3", "--to", "4").failed(3, "nobody")


def test_scripts_of_0_1_get_their_word_and_a_hint(shop: AskedShop) -> None:
    tills = ("state", "diff", "till", "tills", "--from", "6", "--to", "7", "--json")
    old, new = shop.tidemark(*tills, "--keys-only").ok(), shop.tidemark(*tills).ok()
    assert "--keys-only is deprecated" in old.err
    assert "deprecated" not in new.err
    assert old.json == json.loads(new.out.replace('"upserted"', '"changed"')) != new.json
    for other in ("--inserts", "--values"):
        shop.tidemark(*tills, "--keys-only", other).failed(2, "shows no inserts and no values")


def test_a_hash_is_the_same_where_the_state_is_the_same(shop: AskedShop) -> None:
    def made(checkpoint: int) -> dict[str, Any]:
        arguments = ("state", "hash", "till", "tills", "--checkpoint", str(checkpoint), "--json")
        found: dict[str, Any] = shop.tidemark(*arguments).ok().json
        return {k: v for k, v in found.items() if k != "checkpoint"}

    assert made(3) == made(4), "an idle checkpoint, and a compaction adopted between"
    assert made(2) != made(3)
    assert len({json.dumps(made(n)) for n in shop.made}) == len(shop.made) - 1


@pytest.mark.parametrize("n", [1, 4, 9])
def test_the_printed_query_answers_in_a_plain_duckdb(shop: AskedShop, n: int) -> None:
    arguments = ("state", "query", "till", "accounts", "--checkpoint", str(n), "--dialect", "duckdb")
    connection = duckdb.connect()
    rows = connection.execute(shop.tidemark(*arguments).ok().out).fetchall()
    connection.close()
    assert {r[0]: r[1] for r in rows} == {k: v["sales"] for k, v in shop.states(n).items()}


def test_the_printed_query_for_spark_names_versions_and_ranges(shop: AskedShop) -> None:
    told = shop.tidemark("state", "query", "till", "accounts", "--json").ok().json
    handle = shop.made[9].handles["accounts"]
    assert told["segments"] == [
        {"path": s.path, "version": s.version, "after": s.after, "through": s.through} for s in handle
    ]
    for segment in handle:
        assert f"{segment.path}` VERSION AS OF {segment.version}" in told["sql"]
        assert f"`_checkpoint` > {segment.after} AND `_checkpoint` <= {segment.through}" in told["sql"]
    shown = shop.tidemark("checkpoint", "show", "till", "9", "--json").ok().json
    assert told["sql"].endswith(shown["resolving_sql"]["accounts"])


def _replayed(shop: AskedShop, *arguments: str, spoil: bool = False) -> Answer:
    """The command with the line's engine in place of Spark."""

    def rehearse(context: Context, pipeline: Any, attempt: Attempt, *_: object) -> Sealed:
        if spoil:
            plan = attempt.plan
            first = next(iter(plan.ranges))
            short = {tp: replace(r, end=r.end - (tp == first)) for tp, r in plan.ranges.items()}
            attempt._plan = replace(plan, ranges=type(plan.ranges)(short))  # type: ignore[attr-defined]
        return shop.line.execute(attempt)

    with mock.patch("tidemark.operations.replay.rehearse", rehearse):
        return shop.tidemark("checkpoint", "replay", "till", *arguments)


@pytest.mark.parametrize("n", [1, 4, 7, 9])
def test_a_replay_comes_to_the_same_state_twice_and_leaves_nothing(shop: AskedShop, n: int) -> None:
    before = shop.tidemark.objects("till")
    for _ in range(2):
        told = _replayed(shop, f"chk-{n}", "--json").ok().json
        assert [(s["uid"], s["equal"], s["differing"]) for s in told] == [("accounts", True, []), ("tills", True, [])]
        recorded = shop.tidemark("state", "hash", "till", "tills", "--checkpoint", str(n), "--json").ok().json
        assert told[1]["sha256"] == told[1]["sha256_replayed"] == recorded["sha256"]
    assert shop.tidemark.objects("till") == before
    assert not (shop.tidemark.warehouse / "till" / "scratch").exists()


def test_a_rehearsal_writes_below_its_scratch_folder_only(shop: AskedShop) -> None:
    plan = shop.made[9].plan
    sink = SinkTable(name="alerts", kind="delta", path="till/sinks/alerts/t1~v2", columns=(("n", "BIGINT"),))
    tried = Rehearsal(replace(plan, sinks={"accounts": sink}), "till/scratch/1").plan
    written = [*(runs_table(tried, uid) for uid in tried.tables), *(t.path for t in tried.sinks.values())]
    written += [dead_letters_table(tried, uid) for uid in tried.tables]
    assert all(path.startswith("till/scratch/1/") for path in written)
    kept = ("id", "slot", "parent", "ranges", "handles", "schemas", "logical_time_ms", "watermark_ms", "watermarks")
    assert all(getattr(tried, name) == getattr(plan, name) for name in kept)


def test_a_replay_that_differs_exits_1_and_names_keys(shop: AskedShop) -> None:
    answer = _replayed(shop, "7", "--json", spoil=True)
    assert answer.code == 1
    wrong = [s for s in answer.json if not s["equal"]]
    assert wrong and all(0 < len(s["differing"]) <= 5 for s in wrong)
    assert "the replay of chk-7 computed a different state" in answer.lines[0]
    assert answer.lines[2].startswith("Next: tidemark state show till ")
    assert not (shop.tidemark.warehouse / "till" / "scratch").exists()


def test_a_replay_whose_records_are_gone_exits_6(shop: AskedShop) -> None:
    lost = DataLostError("data lost: topic sales, partition 0, offsets [0, 3)", next="nothing.")
    with mock.patch.object(DiskPipeline, "execute", side_effect=lost):
        answer = _replayed(shop, "1")
    answer.failed(6, "chk-1 cannot be replayed", "offsets [0, 3)", "tidemark checkpoint list till")


def test_a_replay_by_other_code_is_refused_unless_it_is_forced(shop: AskedShop) -> None:
    told, field = DECLARATION.read_text(), 'shops: list[str] = state.distinct("shop")'
    other = told.replace(field, field.replace(")", ", limit=77)"))
    assert other != told
    shop.tidemark.declare(other, topic="sales")
    try:
        _replayed(shop, "7").failed(2, "other code planned chk-7", "--force")
        assert all(s["equal"] for s in _replayed(shop, "7", "--force", "--json").ok().json)
    finally:
        shop.tidemark.declare(DECLARATION, topic="sales")
