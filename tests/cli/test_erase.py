"""`tidemark erase`: the real command over real tables; deltalake, pyarrow and plain bytes say whether a key is gone."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.support.disk_context import commands_over
from tests.support.sales_pipeline import SalesPipeline

ERASE = ("erase", "till", "accounts", "--key", "bob")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[SalesPipeline]:
    """Five checkpoints, the second one compacted."""
    made = SalesPipeline.opened(tmp_path)
    made.checkpoints(2, compact_every=2)
    made.checkpoints(3)
    with commands_over(made.line):
        yield made


def named(shop: SalesPipeline, uid: str = "accounts") -> dict[str, list[Path]]:
    """Data files of an operator per checkpoint, as deltalake says which a version has."""
    found: dict[str, list[Path]] = {}
    for c in shop.line.coordinator.timelines.all():
        for s in c.handles[uid]:
            table = DeltaTable(str(shop.line.root / s.path), version=s.version)
            for a in pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all().to_pylist():
                if s.after < int(a["partition._checkpoint"]) <= s.through:
                    found.setdefault(c.plan.name, []).append(shop.line.root / s.path / a["path"])
    return found


def rows(shop: SalesPipeline, key: str) -> dict[str, int]:
    """Rows of a key that every checkpoint names."""
    return {
        name: sum(pq.read_table(p, partitioning=None)["account"].to_pylist().count(key) for p in paths)
        for name, paths in named(shop).items()
    }


def states(shop: SalesPipeline) -> dict[int, dict[str, int]]:
    """Sales per account at every checkpoint, as the command line tells it."""
    told = {}
    for n in shop.made:
        found = shop.tidemark("state", "show", "till", "accounts", "--checkpoint", str(n), "--json").ok().json
        told[n] = {row["account"]: row["sales"] for row in found}
    return told


def without(shop: SalesPipeline, key: str) -> dict[int, dict[str, int]]:
    """The same by plain Python, less a key."""
    return {n: {k: v for k, v in shop.accounts(n).items() if k != key} for n in shop.made}


def test_a_dry_run_says_where_the_key_is_and_what_stays(shop: SalesPipeline) -> None:
    before = shop.tidemark.objects("till")
    told = shop.tidemark(*ERASE, "--json").ok().json
    assert (told["executed"], told["erasure"], told["key"]) == (False, None, ["bob"])
    assert told["restore_points"].keys() == {f"chk-{n}" for n in range(1, 6)}
    assert sum(f["rows"] for f in told["files"]) == told["rows"] > 0
    assert {f["file"].split("/")[2] for f in told["files"]} == {"accounts"}
    assert told["topics"] == {"sales": {str(p): len(sent) for p, sent in sorted(shop.sales.sent.items())}}
    people = shop.tidemark(*ERASE).ok()
    assert "Next: tidemark erase till accounts --key bob --execute" in people.err
    assert "not erased: records in topic sales" in people.err
    assert shop.tidemark.objects("till") == before, "a dry run writes nothing"


def test_an_erased_key_is_in_no_file_that_any_restore_point_names(shop: SalesPipeline) -> None:
    shop.tidemark("savepoint", "create", "till", "june", "--checkpoint", "2").ok()
    shop.tidemark("fork", "till", "trial", "--checkpoint", "3").ok()
    assert min(rows(shop, "bob").values()) > 0
    done = shop.tidemark(*ERASE, "--execute", "--json").ok().json
    assert (done["executed"], done["erasure"], done["deleted_files"]) == (True, 1, None)
    assert set(rows(shop, "bob").values()) == {0}
    assert states(shop) == without(shop, "bob")
    for paths in named(shop).values():
        assert not [p for p in paths if b"bob" in p.read_bytes()]
    shop.tidemark("verify", "till", "--content").ok()
    shop.tidemark("state", "show", "till", "accounts", "--key", "bob", "--savepoint", "june").failed(3)
    again = shop.tidemark(*ERASE, "--execute", "--json").ok().json
    assert (again["erasure"], again["restore_points"]) == (None, {})


def test_with_now_the_bytes_are_gone_from_tables_and_logs(shop: SalesPipeline) -> None:
    tables = shop.tidemark.warehouse / "till" / "state" / "accounts"
    for first in ("", "ann"):
        # What is written again has bounds in the log: now the key is the least one of each file.
        shop.tidemark("erase", "till", "accounts", "--key", first, "--execute").ok()
    assert [p for p in tables.rglob("*.json") if b"bob" in p.read_bytes()]
    assert [p for p in tables.rglob("*") if p.is_file() and b"bob" in p.read_bytes()]
    done = shop.tidemark(*ERASE, "--now", "--execute", "--json").ok().json
    assert done["deleted_files"] > 0
    assert done["deleted_log_files"] > 0
    left = [p for p in tables.rglob("*") if p.is_file() and b"bob" in p.read_bytes()]
    assert left == []
    gone = ("", "ann", "bob")
    assert states(shop) == {n: {k: v for k, v in shop.accounts(n).items() if k not in gone} for n in shop.made}
    shop.tidemark("verify", "till", "--content").ok()
    shop.checkpoint()
    shop.line.compact("accounts", full=True)
    shop.checkpoint()
    newest = shop.tidemark("state", "show", "till", "accounts", "--json").ok().json
    since = sum(s["account"] == "bob" for sent in shop.sales.sent.values() for s in sent) - 0
    assert {r["account"] for r in newest} == set(shop.accounts(7))
    assert 0 < next(r["sales"] for r in newest if r["account"] == "bob") < since, "later records count"
    shop.tidemark("verify", "till", "--content").ok()


def test_a_composite_key_takes_a_value_per_column(shop: SalesPipeline) -> None:
    key = next(iter(shop.sales.tills({0: 1, 1: 1})))
    asked = ("erase", "till", "tills", "--key", key[0], f"--key={key[1]}", "--key", key[2])
    assert shop.tidemark(*asked, "--json").ok().json["restore_points"]
    shop.tidemark(*asked, "--execute").ok()
    assert shop.tidemark(*asked, "--json").ok().json["restore_points"] == {}
    shop.tidemark("erase", "till", "tills", "--key", "north").failed(2, "1 key values for tills")
    shop.tidemark("erase", "till", "nobody", "--key", "x").failed(3, "no checkpoint of till has an operator 'nobody'")


def test_a_legal_hold_refuses(shop: SalesPipeline) -> None:
    shop.tidemark("savepoint", "create", "till", "audit", "--checkpoint", "2").ok()
    shop.tidemark("savepoint", "hold", "till", "audit", "--why", "case 7", "--owner", "legal").ok()
    before = shop.tidemark.objects("till")
    shop.tidemark(*ERASE, "--execute").failed(4, "savepoint audit", "a legal hold of legal: case 7")
    assert shop.tidemark.objects("till") == before
    shop.tidemark("savepoint", "release", "till", "audit").ok()
    shop.tidemark(*ERASE, "--execute").ok()


def test_a_blocked_key_never_comes_back(shop: SalesPipeline) -> None:
    shop.tidemark(*ERASE, "--block", "--execute").ok()
    for _ in range(2):
        shop.checkpoint()
    assert set(rows(shop, "bob").values()) == {0}
    newest = shop.line.coordinator.timelines.all()[-1]
    ack = newest.ack("accounts")
    assert ack is not None
    sold = sum(r.end - r.start for r in newest.plan.ranges.by_partition.values())
    assert ack.read < sold, "its records are not counted"
    other = newest.ack("tills")
    assert other is not None
    assert other.read == sold, "of other operators they are"
