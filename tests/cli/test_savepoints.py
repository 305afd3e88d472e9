"""`savepoint …`, `stop`, `resume` and readers at a savepoint: the real commands, a warehouse that no Spark wrote."""

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.disk_context import commands_over
from tests.support.sales_pipeline import SalesPipeline
from tidemark.reading import read_state

HEAVY = ("pyspark", "pandas", "pyarrow", "deltalake", "duckdb", "confluent_kafka", "airflow", "great_expectations")
SECONDS = 2.0


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[SalesPipeline]:
    """Three checkpoints."""
    made = SalesPipeline.opened(tmp_path)
    made.checkpoints(3)
    with commands_over(made.line):
        yield made


def test_a_savepoint_is_told_with_what_it_pins(shop: SalesPipeline) -> None:
    before = set(shop.tidemark.objects("till"))
    told = shop.tidemark(
        "savepoint", "create", "till", "june", "--checkpoint", "chk-2", "--note", "half", "--expires", "30d",
        "--owner", "finance", "--json",
    ).ok().json  # fmt: skip
    assert set(shop.tidemark.objects("till")) - before == {"savepoints/june/000001.json"}, "one small object, no copy"
    size = sum(h.bytes for h in shop.made[2].handles.values())
    created = datetime.fromisoformat(told.pop("created_at"))
    lasts = datetime.fromisoformat(told.pop("expires_at")) - created
    assert abs(lasts - timedelta(days=30)) < timedelta(minutes=5)
    assert datetime.now(UTC) - created < timedelta(minutes=5)
    assert told.pop("changed_at")
    assert told.pop("logical_time")
    assert told == {
        "name": "june", "pipeline": "till", "checkpoint": "chk-2", "timeline": "t1", "full_bytes": size,
        "owner": "finance", "note": "half", "expired": False, "drained": False, "revision": 1, "disposed": False,
        "claimed_by": None,
    }  # fmt: skip
    newest = shop.tidemark("savepoint", "create", "till", "now", "--json").ok().json
    assert (newest["checkpoint"], newest["expires_at"]) == ("chk-3", None)
    assert newest["owner"]
    listed = shop.tidemark("savepoint", "list", "till", "--json").ok().json
    assert [(s["name"], s["checkpoint"], s["owner"]) for s in listed][0] == ("june", "chk-2", "finance")
    table = shop.tidemark("savepoint", "list", "till").ok().out
    assert "never" in table
    assert "half" in table


def test_checkpoints_are_shown_with_what_pins_them(shop: SalesPipeline) -> None:
    for name in ("one", "two"):
        shop.tidemark("savepoint", "create", "till", name, "--checkpoint", "2").ok()
    listed = shop.tidemark("checkpoint", "list", "till", "--json").ok().json
    assert {c["id"]: c["savepoints"] for c in listed} == {"chk-3": [], "chk-2": ["one", "two"], "chk-1": []}
    assert "one, two" in shop.tidemark("checkpoint", "list", "till").ok().out
    assert shop.tidemark("checkpoint", "show", "till", "2", "--json").ok().json["savepoints"] == ["one", "two"]
    assert "one, two" in shop.tidemark("checkpoint", "show", "till", "2").ok().out


def test_every_reader_takes_a_savepoint_in_place_of_a_checkpoint(shop: SalesPipeline, tmp_path: Path) -> None:
    shop.tidemark("savepoint", "create", "till", "june", "--checkpoint", "1").ok()
    wanted = shop.accounts(1)
    assert wanted != shop.accounts(3)
    at = ("--savepoint", "june")
    shown = shop.tidemark("state", "show", "till", "accounts", *at, "--json").ok().json
    assert {row["account"]: row["sales"] for row in shown} == wanted
    one = shop.tidemark("state", "show", "till", "accounts", "--key", "ann", *at, "--json").ok().json
    assert one[0]["sales"] == wanted["ann"]
    told = shop.tidemark("state", "sql", "till", "select account, sales from accounts", *at, "--json").ok().json
    assert {row["account"]: row["sales"] for row in told} == wanted
    assert shop.tidemark("state", "sql", "till", "select id from checkpoints", *at, "--json").ok().json == [{"id": 1}]
    file = tmp_path / "accounts.csv"
    shop.tidemark("state", "export", "till", "accounts", "--to", str(file), *at).ok()
    assert len(file.read_text().splitlines()) >= len(wanted)
    by_id, by_name = (
        shop.tidemark("state", "hash", "till", "accounts", *place, "--json").ok().json
        for place in (("--checkpoint", "chk-1"), at)
    )
    assert by_id == by_name
    query = shop.tidemark("state", "query", "till", "accounts", *at, "--json").ok().json
    assert query["checkpoint"] == "chk-1"
    ids, names = (
        shop.tidemark("state", "diff", "till", "accounts", "--from", one, "--to", "3", "--json").ok().json
        for one in ("chk-1", "june")
    )
    assert ids == names


def test_two_restore_points_at_once_and_unknown_ones_are_refused(shop: SalesPipeline) -> None:
    shop.tidemark("savepoint", "create", "till", "june", "--checkpoint", "1").ok()
    show = ("state", "show", "till", "accounts")
    shop.tidemark(*show, "--savepoint", "june", "--checkpoint", "2").failed(2, "both a checkpoint and a savepoint")
    shop.tidemark(*show, "--savepoint", "july").failed(3, "no savepoint 'july'")
    shop.tidemark("savepoint", "dispose", "till", "june", "--execute").ok()
    shop.tidemark(*show, "--savepoint", "june").failed(3, "it was disposed")
    with pytest.raises(Exception, match="both checkpoint and savepoint"):
        read_state(None, "till", "accounts", checkpoint=1, savepoint="june")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="savepiont"):
        read_state(None, "till", "accounts", savepiont="june")  # type: ignore[arg-type,call-arg]
    with pytest.raises(Exception, match="by='flink'"):
        read_state(None, "till", "accounts", by="flink")  # type: ignore[arg-type]


def test_what_cannot_be_created_says_so_by_exit_code(shop: SalesPipeline) -> None:
    create = ("savepoint", "create", "till")
    shop.tidemark(*create, "june").ok()
    shop.tidemark(*create, "june").failed(4, "savepoint june pins chk-3", "use another name")
    shop.tidemark(*create, "chk-3").failed(2, "reads as a checkpoint id")
    shop.tidemark(*create, "../x").failed(2, "../x")
    shop.tidemark(*create, "july", "--checkpoint", "9").failed(3, "chk-9")
    shop.tidemark(*create, "july", "--expires", "soon").failed(2, "not an expiry: 'soon'")
    shop.tidemark(*create, "july", "--expires", "2001-01-01").failed(2, "expired already")
    shop.tidemark("savepoint", "create", "nobody", "june").failed(3, "nobody")
    shop.tidemark("savepoint", "show", "till", "july").failed(3, "no savepoint 'july'")
    shop.tidemark("savepoint", "update", "till", "june").failed(2, "nothing to change")


def test_a_broken_pipeline_can_be_pinned_and_listed(shop: SalesPipeline) -> None:
    (shop.tidemark.pipelines / "till.py").write_text("raise RuntimeError('broken')\n")
    shop.tidemark("savepoint", "create", "till", "june").ok()
    assert shop.tidemark("savepoint", "list", "till", "--json").ok().json[0]["name"] == "june"


def test_a_list_does_not_fail_of_a_damaged_manifest(shop: SalesPipeline) -> None:
    shop.tidemark("savepoint", "create", "till", "june", "--checkpoint", "1").ok()
    (manifest,) = (shop.tidemark.warehouse / "till" / "timelines" / "t1").glob("*1.json")
    manifest.write_text("{}")
    assert shop.tidemark("savepoint", "list", "till", "--json").ok().json[0]["full_bytes"] is None


def test_note_and_expiry_change_and_the_rest_stays(shop: SalesPipeline) -> None:
    shop.tidemark("savepoint", "create", "till", "june", "--expires", "2w").ok()
    told = (
        shop.tidemark("savepoint", "update", "till", "june", "--note", "kept", "--expires", "never", "--json").ok().json
    )
    assert (told["note"], told["expires_at"], told["revision"], told["checkpoint"]) == ("kept", None, 2, "chk-3")
    shown = shop.tidemark("savepoint", "show", "till", "june", "--json").ok().json
    assert shown == {**told, "needed_by": []}


def test_a_disposal_is_a_dry_run_until_it_is_executed(shop: SalesPipeline) -> None:
    for name in ("june", "july"):
        shop.tidemark("savepoint", "create", "till", name).ok()
    before = shop.tidemark.objects("till")
    dry = shop.tidemark("savepoint", "dispose", "till", "june", "--json").ok()
    assert dry.json == {
        "name": "june", "checkpoint": "chk-3", "also_pinned_by": ["july"], "disposed": False, "needed_by": [],
    }  # fmt: skip
    assert "tidemark savepoint dispose till june --execute" in dry.err
    assert shop.tidemark.objects("till") == before
    done = shop.tidemark("savepoint", "dispose", "till", "june", "--execute", "--json").ok().json
    assert done["disposed"] is True
    assert [s["name"] for s in shop.tidemark("savepoint", "list", "till", "--json").ok().json] == ["july"]
    ended = shop.tidemark("savepoint", "list", "till", "--disposed").ok().out
    assert "disposed" in ended
    data = {k: v for k, v in shop.tidemark.objects("till").items() if not k.startswith(("savepoints", "tombstones"))}
    assert data == {k: v for k, v in before.items() if not k.startswith("savepoints")}, "no file is touched"


def test_what_is_needed_is_not_disposed(shop: SalesPipeline) -> None:
    shop.tidemark("stop", "till", "--savepoint", "last").ok()
    answer = shop.tidemark("savepoint", "dispose", "till", "last")
    assert (answer.code, "stopped with it" in answer.err, "stopped with it" in answer.out) == (4, True, True)
    shop.tidemark("savepoint", "dispose", "till", "last", "--execute").failed(4, "stopped with it")


def test_stop_with_a_savepoint_takes_what_waits_and_lets_no_plan_be_made(shop: SalesPipeline) -> None:
    shop.sell(7)
    done = shop.tidemark("stop", "till", "--savepoint", "last", "--note", "disk swap", "--json").ok()
    assert done.json == {
        "pipeline": "till", "stopped": True, "why": "disk swap", "savepoint": "last", "checkpoint": "chk-4",
        "drained": False, "in_progress": None, "followed_by": None, "drain": None, "paused_dags": [],
    }  # fmt: skip
    assert "no Airflow runs here" in done.err
    assert sum(s["records"] for s in shop.tidemark("checkpoint", "list", "till", "--json").ok().json) == 67
    shop.tidemark("run", "till").failed(4, "STOPPED", "disk swap", "tidemark resume till")
    again = shop.tidemark("stop", "till", "--savepoint", "last", "--json").ok().json
    assert again == done.json
    shop.tidemark("stop", "till", "--savepoint", "other").failed(4, "stopped already, with savepoint last")
    resumed = shop.tidemark("resume", "till", "--json").ok().json
    assert resumed == {"pipeline": "till", "resumed": True, "unpaused_dags": []}
    shop.tidemark("run", "till").ok()
    assert shop.tidemark("resume", "till", "--json").ok().json["resumed"] is False


def test_a_drained_pipeline_goes_on_only_when_it_is_forced(shop: SalesPipeline) -> None:
    shop.tidemark("stop", "till", "--drain").failed(2, "--drain requires --savepoint")
    assert shop.tidemark("stop", "till", "--savepoint", "end", "--drain", "--json").ok().json["drained"] is True
    assert shop.tidemark("savepoint", "show", "till", "end", "--json").ok().json["drained"] is True
    shop.tidemark("resume", "till").failed(4, "drained into savepoint end", "--force")
    shop.tidemark("run", "till").failed(4, "STOPPED")
    shop.tidemark("resume", "till", "--force").ok()
    shop.tidemark("run", "till").ok()


def test_a_stop_without_a_savepoint_makes_no_checkpoint(shop: SalesPipeline) -> None:
    done = shop.tidemark("stop", "till", "--json").ok().json
    assert (done["savepoint"], done["stopped"]) == (None, True)
    assert len(shop.tidemark("checkpoint", "list", "till", "--json").ok().json) == 3
    shop.tidemark("savepoint", "create", "till", "while-stopped").ok()


def test_a_stop_that_fails_leaves_the_pipeline_running_and_says_so(shop: SalesPipeline) -> None:
    with shop.tidemark.context.lock("till", "t1"):
        shop.tidemark("stop", "till", "--savepoint", "last").failed(4, "Safe: the pipeline is not stopped and runs on")
    shop.tidemark("run", "till").ok()
    assert shop.tidemark("savepoint", "list", "till", "--json").ok().json == []


PROBE = """
import json, resource, sys
from tidemark.cli.main import entry
for verb in json.loads(sys.argv[1]):
    sys.argv = ["tidemark", "savepoint", *verb]
    try:
        entry()
    except SystemExit as ended:
        assert not ended.code, verb
used = resource.getrusage(resource.RUSAGE_SELF)
heavy = sorted(set({heavy!r}) & set(sys.modules))
print(json.dumps({{"heavy": heavy, "seconds": used.ru_utime + used.ru_stime}}), file=sys.stderr)
"""


def test_all_verbs_of_savepoints_together_load_nothing_heavy_and_take_less_than_two_seconds(
    shop: SalesPipeline,
) -> None:
    verbs = [
        ("create", "till", "june"),
        ("list", "till"),
        ("show", "till", "june"),
        ("update", "till", "june", "--note", "x"),
        ("dispose", "till", "june", "--execute"),
    ]
    command = [sys.executable, "-c", PROBE.format(heavy=HEAVY), json.dumps(verbs)]
    done = subprocess.run(command, env=shop.tidemark.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stderr.splitlines()[-1])
    assert told["heavy"] == []
    # Processor time: what else runs on the machine is no fault of the commands.
    assert told["seconds"] <= SECONDS
