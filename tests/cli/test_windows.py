"""Commands over a fold with windows, in a warehouse on disk: reads, restores, exports, and the refused ones."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.support.cli import Command
from tests.support.disk import DiskPipeline, ParquetFiles
from tests.support.disk_context import commands_over
from tests.support.window_cases import START
from tidemark.model.portable_sql.dialects import DUCKDB
from tidemark.operations import reads
from tidemark.readers.portable_query import duckdb_query

DECLARATION = """
from dataclasses import dataclass
from datetime import datetime

from tidemark import DeltaSink, FlatMap, Fold, KafkaSource, Pipeline, Session, Sliding, Tumbling, Watermark, state


@dataclass(frozen=True)
class Sale:
    shop: str
    cents: int
    at: datetime


class Sales(state.Keyed):
    n: int = state.count()
    cents: int | None = state.sum("cents")


@dataclass(frozen=True)
class Big:
    shop: str


def big(row):
    raise ValueError("no")


shops = Pipeline(
    name="shops",
    source=KafkaSource("sales", Sale, event_time="at", watermark=Watermark(delay="1m")),
    operators=[
        Fold("sold", key_by="shop", state=Sales, window=$window, sink=DeltaSink("sold")),
        $more
    ],
    max_dead_letters=1.0,
)
"""


FAILING = """
        FlatMap("big", function=big, input="sold", emits=Big, sink=DeltaSink("big"), on_error="dead_letter"),
"""


HOURS = 'Tumbling("1h")'


BEHIND = """
        Fold("halves", key_by="shop", state=Sales, input="sold", window=Tumbling("12h")),
"""


class WindowedShops:
    """The command line over a warehouse."""

    def __init__(self, home: Path, window: str = HOURS) -> None:
        self.tidemark = Command(home=home, broker="nowhere:1", spark="local[1]")
        self.declare(window)
        found = self.tidemark.context.pipeline("shops")
        self.disk = DiskPipeline(self.tidemark.warehouse, found, "sales", partitions=1)

    def declare(self, window: str, *, failing: bool = False, behind: bool = False) -> None:
        more = FAILING if failing else BEHIND if behind else ""
        self.tidemark.declare(DECLARATION, file="shops.py", window=window, more=more)

    def sell(self, *sales: tuple[str, int, int]) -> None:
        """Sells at minutes: (shop, minute, cents)."""
        for shop, minute, cents in sales:
            at = START + timedelta(minutes=minute)
            value = json.dumps({"shop": shop, "cents": cents, "at": at.isoformat()}).encode()
            self.disk.send([(0, value, int(at.timestamp() * 1000))])

    def run(self, *sales: tuple[str, int, int]) -> Any:
        self.sell(*sales)
        return self("run", "shops", "--json").ok().json

    def __call__(self, *words: str) -> Any:
        with commands_over(self.disk):
            return self.tidemark(*words)

    def closed(self) -> list[tuple[Any, ...]]:
        """The rows of the sink: shop, minute of the end, count, sum."""
        newest = reads.get_checkpoint(self.tidemark.context, "shops")
        rows = ParquetFiles(str(self.tidemark.warehouse), {}).rows(newest.sinks["sold"].handle)
        return sorted((r["shop"], (r["window_end"] - START) // timedelta(minutes=1), r["n"], r["cents"]) for r in rows)


@pytest.fixture
def line(tmp_path: Path) -> WindowedShops:
    """Three checkpoints; the hour to minute 60 closes in the second."""
    made = WindowedShops(tmp_path)
    made.run(("a", 5, 70), ("b", 50, 20))
    made.run(("a", 62, 1))
    made.run(("a", 59, 1000), ("b", 70, 2))
    return made


def test_reads_show_open_windows_and_the_frontier(line: WindowedShops) -> None:
    assert line.closed() == [("a", 60, 1, 70), ("b", 60, 1, 20)]
    shown = line("checkpoint", "show", "shops", "3", "--json").ok().json
    frontier = shown["sealed"]["facts"]["clocks"]["sold"]["watermark_ms"]
    assert frontier == int((START + timedelta(minutes=69)).timestamp() * 1000)
    rows = line("state", "sql", "shops", "SELECT shop, n, cents FROM sold ORDER BY shop", "--json").ok().json
    assert rows == [{"shop": "a", "n": 1, "cents": 1}, {"shop": "b", "n": 1, "cents": 2}]
    before = line("state", "sql", "shops", "SELECT shop, cents FROM sold_at(1) ORDER BY shop", "--json").ok().json
    assert before == [{"shop": "a", "cents": 70}, {"shop": "b", "cents": 20}]
    query = "SELECT checkpoint, late, frontier IS NOT NULL AS known FROM checkpoint_states ORDER BY 1"
    assert line("state", "sql", "shops", query, "--json").ok().json == [
        {"checkpoint": 1, "late": 0, "known": True},
        {"checkpoint": 2, "late": 0, "known": True},
        {"checkpoint": 3, "late": 1, "known": True},
    ]
    key = ["a", (START + timedelta(hours=1)).isoformat(), (START + timedelta(hours=2)).isoformat()]
    options = [word for part in key for word in ("--key", part)]
    found = line("state", "show", "shops", "sold", *options, "--json")
    assert [row["cents"] for row in found.ok().json] == [1]
    of_key = line("state", "show", "shops", "sold", "--key", "b", "--json")
    assert [row["cents"] for row in of_key.ok().json] == [2]
    assert "late" in line("dead-letters", "list", "shops", "sold").ok().out


def test_the_stored_query_hides_closed_windows_without_tidemark(line: WindowedShops) -> None:
    context = line.tidemark.context
    for number, right in ((1, [("a", 70), ("b", 20)]), (3, [("a", 1), ("b", 2)])):
        found = reads.get_checkpoint(context, "shops", number)
        text = duckdb_query(
            str(line.tidemark.warehouse), found, "sold", reads.get_query(context, found, "sold", DUCKDB)
        )
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            assert sorted((shop, cents) for shop, _, _, _, cents, *_ in connection.sql(text).fetchall()) == right


@pytest.mark.parametrize(
    ("window", "right"),
    [
        ('Sliding("1h", every="30m")', [("a", 60, 120, 1), ("a", 30, 90, 1001), ("b", 60, 120, 2), ("b", 30, 90, 22)]),
        ('Session("15m")', [("a", 62, 77, 1), ("b", 70, 85, 2)]),
    ],
)
def test_panes_and_sessions_are_windows_for_every_reader(
    tmp_path: Path, window: str, right: list[tuple[Any, ...]]
) -> None:
    line = WindowedShops(tmp_path, window)
    line.run(("a", 5, 70), ("b", 50, 20))
    line.run(("a", 62, 1))
    line.run(("a", 59, 1000), ("b", 70, 2))

    def minutes(row: Any) -> tuple[Any, ...]:
        start, end = ((row[bound] - START) // timedelta(minutes=1) for bound in ("window_start", "window_end"))
        return row["shop"], start, end, row["cents"]

    context = line.tidemark.context
    found = reads.get_checkpoint(context, "shops")
    text = duckdb_query(str(line.tidemark.warehouse), found, "sold", reads.get_query(context, found, "sold", DUCKDB))
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        assert sorted(map(minutes, connection.sql(text).to_arrow_table().to_pylist())) == sorted(right)
    query = "SELECT shop, window_end, cents FROM sold"
    shown = line("state", "sql", "shops", query, "--json").ok().json
    assert sorted((r["shop"], r["cents"]) for r in shown) == sorted((shop, cents) for shop, _, _, cents in right)
    bounds = [(START + timedelta(minutes=at)).isoformat() for at in right[0][1:3]]
    key = [word for part in (right[0][0], *bounds) for word in ("--key", part)]
    assert [row["cents"] for row in line("state", "show", "shops", "sold", *key, "--json").ok().json] == [right[0][3]]
    line("compact", "shops", "--full").ok()
    line.run(("c", 71, 3))
    again = line("state", "sql", "shops", query, "--json").ok().json
    assert sorted((r["shop"], r["cents"]) for r in again if r["shop"] != "c") == sorted((r[0], r[3]) for r in right)
    line("verify", "shops").ok()
    line("export", "shops", "--to", str(tmp_path / "out")).ok()


def test_a_compaction_drops_closed_windows_and_changes_no_answer(line: WindowedShops) -> None:
    before = line("state", "show", "shops", "sold", "--json").ok().out
    line("compact", "shops", "--full").ok()
    line.run(("c", 71, 3))
    compacted = reads.get_checkpoint(line.tidemark.context, "shops").handles["sold"]
    assert compacted.rows == 3, "two rows of the compaction, and the new run"
    after = line("state", "sql", "shops", "SELECT shop, cents FROM sold ORDER BY shop", "--json").ok().json
    assert after == [{"shop": "a", "cents": 1}, {"shop": "b", "cents": 2}, {"shop": "c", "cents": 3}]
    assert '"cents"' in before
    line("verify", "shops").ok()


def test_a_restore_that_keeps_the_sink_repeats_checkpoints_one_by_one(line: WindowedShops) -> None:
    planned = line("restore", "shops", "--checkpoint", "1", "--json").ok().json
    assert planned["repeats"] == ["chk-2", "chk-3"]
    line("restore", "shops", "--checkpoint", "1", "--execute").ok()
    line.run(("a", 130, 5))
    made = line("checkpoint", "list", "shops", "--json").ok().json
    assert [(c["id"], c["timeline"]) for c in made][:3] == [(f"chk-{n}", "t2") for n in (6, 5, 4)]
    assert line.closed() == [("a", 60, 1, 70), ("a", 120, 1, 1), ("b", 60, 1, 20), ("b", 120, 1, 2)]
    rows = line("state", "sql", "shops", "SELECT shop, cents FROM sold", "--json").ok().json
    assert rows == [{"shop": "a", "cents": 5}]
    late = "SELECT checkpoint, late FROM checkpoint_states WHERE checkpoint > 3 ORDER BY 1"
    assert [r["late"] for r in line("state", "sql", "shops", late, "--json").ok().json] == [0, 1, 0]
    line("verify", "shops").ok()


def test_a_restore_takes_the_sink_back_and_closes_again(line: WindowedShops) -> None:
    line("restore", "shops", "--checkpoint", "1", "--restore-sinks", "--execute").ok()
    assert line.closed() == []
    line.run()
    # All records are one batch now: the sale of minute 59 comes before the frontier moves.
    assert line.closed() == [("a", 60, 2, 1070), ("b", 60, 1, 20)]


def test_an_export_has_the_frontier(line: WindowedShops, tmp_path: Path) -> None:
    line("export", "shops", "--to", str(tmp_path / "out")).ok()
    told = json.loads((tmp_path / "out" / "export.json").read_text())["body"]
    assert told["clocks"]["sold"]["watermark_ms"] == int((START + timedelta(minutes=69)).timestamp() * 1000)


def test_a_diff_has_the_windows_that_closed_although_no_row_says_so(line: WindowedShops) -> None:
    for options, change in (((), "upserted"), (("--inserts",), "inserted")):
        told = line("state", "diff", "shops", "sold", "--from", "1", "--to", "3", *options, "--json").ok().json
        found = {(r["key"]["shop"], r["key"]["window_end"][11:16], r["change"]) for r in told["rows"]}
        assert found == {
            ("a", "01:00", "deleted"),
            ("b", "01:00", "deleted"),
            ("a", "02:00", change),
            ("b", "02:00", change),
        }


def test_letters_of_closed_windows_are_kept_and_their_redrive_is_refused(line: WindowedShops) -> None:
    line.declare(HOURS, failing=True)
    line.disk.pipeline = line.tidemark.context.pipeline("shops")
    line.run(("a", 200, 1))
    assert "process_failed" in line("dead-letters", "list", "shops", "big").ok().out
    refused = line("dead-letters", "redrive", "shops", "big", "--out-of-order", "--execute")
    refused.failed(2, "big gets rows of the closed windows of sold", "backfill")
    line("dead-letters", "redrive", "shops", "sold", "--execute").failed(2, "its windows close", "--out-of-order")


def test_another_size_needs_another_uid_and_another_lateness_does_not(line: WindowedShops) -> None:
    line.declare('Tumbling("30m")')
    line.sell(("a", 80, 1))
    line.disk.pipeline = line.tidemark.context.pipeline("shops")
    line("run", "shops").failed(2, "window_end of tumbling windows of 3600000 ms")


def test_a_drain_closes_all_windows_and_a_forced_resume_opens_them_again(line: WindowedShops, tmp_path: Path) -> None:
    line.sell(("a", 71, 5))
    stopped = line("stop", "shops", "--savepoint", "end", "--drain", "--json").ok()
    told = stopped.json
    assert (told["drained"], told["checkpoint"], told["drain"], told["followed_by"]) == (True, "chk-4", "chk-5", None)
    assert "chk-5 closed all windows. The savepoint pins chk-4" in stopped.err
    assert line.closed() == [("a", 60, 1, 70), ("a", 120, 2, 6), ("b", 60, 1, 20), ("b", 120, 1, 2)]
    assert line("state", "sql", "shops", "SELECT * FROM sold", "--json").ok().json == []
    assert line("checkpoint", "show", "shops", "chk-5", "--json").ok().json["plan"]["drains"] is True
    shown = line("checkpoint", "list", "shops", "--json").ok().json[0]
    assert (shown["drains"], shown["frontiers"]) == (True, {"sold": "9999-12-31T00:00:00Z"})
    query = "SELECT frontier FROM checkpoint_states WHERE checkpoint = 5"
    (row,) = line("state", "sql", "shops", query, "--json").ok().json
    assert row["frontier"].startswith("9999-12-31")
    assert line("stop", "shops", "--savepoint", "end", "--drain", "--json").ok().json["drain"] == "chk-5"
    line("verify", "shops").ok()
    line("compact", "shops", "--full").ok()
    assert line("checkpoint", "replay", "shops", "chk-5", "--json").ok().json[0]["equal"]
    line("run", "shops").failed(4, "STOPPED")

    line("restore", "shops", "--checkpoint", "chk-5").failed(4, "chk-5 has drained shops", "begin at chk-4")
    line("fork", "shops", "other", "--checkpoint", "chk-5").failed(4, "begin at chk-4")
    line("export", "shops", "--to", str(tmp_path / "out")).ok()
    again = ("import", str(tmp_path / "out"), "--as", "shops", "--timeline", "again")
    line(*again).failed(4, "chk-5, which has drained its pipeline")

    line("resume", "shops").failed(4, "drained into savepoint end", "goes back to chk-4, sinks included")
    line("resume", "shops", "--force", "--json").ok()
    assert line.closed() == [("a", 60, 1, 70), ("b", 60, 1, 20)]
    line.run(("a", 100, 3))
    assert line.closed() == [("a", 60, 1, 70), ("b", 60, 1, 20)], "their hour is open again, and the sale not late"
    line.run(("a", 125, 1))
    assert line.closed() == [("a", 60, 1, 70), ("a", 120, 3, 9), ("b", 60, 1, 20), ("b", 120, 1, 2)]
    line("verify", "shops").ok()


def test_a_backfill_shows_which_windows_have_other_rows(line: WindowedShops) -> None:
    line.run(("c", 150, 4))
    line.declare(f'{HOURS}, where="cents <> 2", lateness="5m"')
    command = ("backfill", "shops", "--from-checkpoint", "chk-1", "--execute")
    told = line(*command, "--json").ok().json
    (sold,) = told["sinks"]
    # With five minutes more, the sale of minute 59 is in time in chk-3. That of two cents was the only one of its hour.
    assert {name: sold[name] for name in ("uid", "sink", "inserted", "deleted", "changed", "equal")} == {
        "uid": "sold",
        "sink": "sold",
        "inserted": 0,
        "deleted": 1,
        "changed": 1,
        "equal": 2,
    }
    found = {(one["change"], (one["after"] or one["before"])["window_end"][11:16]): one for one in sold["examples"]}
    late = found["changed", "01:00"]
    assert (late["before"]["cents"], late["after"]["cents"], late["after"]["shop"]) == (70, 1070, "a")
    assert found["deleted", "02:00"]["before"]["shop"] == "b" and found["deleted", "02:00"]["after"] is None
    shown = line(*command).ok().out
    assert "changed: " in shown and "window_end" in shown


def test_an_erasure_takes_all_windows_of_a_key_from_state_and_sink(line: WindowedShops) -> None:
    planned = line("erase", "shops", "sold", "--key", "a", "--json").ok().json
    assert (planned["key"], planned["sinks"]) == (["a"], {})
    assert "late" in line("dead-letters", "list", "shops", "sold").ok().out
    line("erase", "shops", "sold", "--key", "a", "--execute").ok()
    assert "late" not in line("dead-letters", "list", "shops", "sold").ok().out, "it was of the key"
    assert line.closed() == [("b", 60, 1, 20)]
    rows = "SELECT shop, cents FROM sold ORDER BY 1"
    assert line("state", "sql", "shops", rows, "--json").ok().json == [{"shop": "b", "cents": 2}]
    line("verify", "shops").ok()
    line("restore", "shops", "--checkpoint", "1", "--execute").ok()
    line.run(("a", 75, 4), ("b", 130, 5))
    assert line.closed() == [("a", 120, 1, 4), ("b", 60, 1, 20), ("b", 120, 1, 2)], "its old records stay blocked"


def test_an_erasure_reaches_windows_behind_the_operator(line: WindowedShops) -> None:
    line.declare(HOURS, behind=True)
    line.disk.pipeline = line.tidemark.context.pipeline("shops")
    line.run(("b", 72, 1))
    line.run(("b", 140, 1))
    told = line("erase", "shops", "sold", "--key", "a", "--execute", "--json").ok().json
    assert [(part["uid"], part["key"]) for part in told["chained"]] == [("halves", ["a"])]
    rows = "SELECT DISTINCT shop FROM halves"
    assert line("state", "sql", "shops", rows, "--json").ok().json == [{"shop": "b"}]
