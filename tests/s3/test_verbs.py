"""Every verb that starts no Spark over a warehouse in a bucket: it answers what the same line on a disk answers."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import pytest

from tests.support.cli import Answer, Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import commands_over
from tests.support.key_group_ranges import read_by_ranges
from tests.support.s3 import SECRETS, Bucket, S3Server, one_store
from tests.support.s3_proxy import strips_conditions
from tests.support.sales import Sales
from tests.support.sales_pipeline import DECLARATION, SEED
from tidemark.storage.s3_folder import S3Folder

pytestmark = [pytest.mark.slow, one_store]


JOINED = "select account, a.sales, b.sales from accounts a join accounts_at(1) b using (account) order by 1"


@dataclass
class Side:
    """One of the two lines: the same declaration, the same records."""

    tidemark: Command
    line: DiskPipeline
    variables: dict[str, str]

    def __call__(self, *arguments: str) -> Answer:
        with commands_over(self.line):
            answer = self.tidemark(*arguments, **self.variables)
        assert not [secret for secret in SECRETS if secret in answer.out + answer.err]
        return answer

    def json(self, *arguments: str) -> Any:  # noqa: ANN401
        return self(*arguments, "--json").ok().json


@dataclass
class Twins:
    """The two."""

    disk: Side
    bucket: Side
    sales: Sales

    def checkpoint(self, count: int = 20) -> None:
        more = self.sales.more(count)
        for side in (self.disk, self.bucket):
            side.line.send(more)
            side.line.checkpoint()

    def agree(self, *arguments: str) -> Any:  # noqa: ANN401
        """What both answer; they have to agree."""
        told = self.bucket.json(*arguments)
        assert told == self.disk.json(*arguments)
        return told


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server) -> Bucket:
    s3_server.proxy.reset()
    return s3_server.make_bucket(f"verbs-{uuid4().hex[:12]}")


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory, bucket: Bucket, s3_folder: S3Folder) -> Iterator[Twins]:
    """Four checkpoints, the second one compacted. The tests grow one warehouse, in the order of this file."""
    root, place = tmp_path_factory.mktemp("twins"), replace(s3_folder.place, bucket=bucket.name)
    folder = replace(s3_folder, access=replace(s3_folder.access, place=place))

    def side(name: str, variables: dict[str, str], bucket: S3Folder | None = None) -> Side:
        tidemark = Command(root / name, "127.0.0.1:1", "sc://127.0.0.1:1")
        tidemark.declare(DECLARATION, topic="sales")
        line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("till"), "sales", bucket=bucket)
        return Side(tidemark, line, variables)

    there = {"TIDEMARK_WAREHOUSE": f"s3://{bucket.name}/house", **bucket.server.variables}
    made = Twins(side("disk", {}), side("bucket", there, bucket=folder), Sales(SEED))
    with mock.patch.dict(os.environ, bucket.server.variables):
        for number in range(4):
            made.checkpoint()
            if number == 1:
                for line in (made.disk.line, made.bucket.line):
                    line.compact("accounts", full=True)
        yield made
    bucket.server.proxy.reset()


def test_readers_answer_the_same_from_a_bucket_and_from_a_disk(twins: Twins) -> None:
    assert len(twins.agree("state", "show", "till", "accounts")) > 3
    assert twins.agree("state", "show", "till", "accounts", "--key", "ann")
    assert twins.agree("state", "show", "till", "accounts", "--checkpoint", "chk-2")
    assert twins.agree("state", "sql", "till", "select account, sales from accounts order by 1")
    assert twins.agree("state", "sql", "till", JOINED)
    assert twins.agree("state", "hash", "till", "accounts")
    assert twins.agree("state", "diff", "till", "accounts", "--from", "chk-1", "--to", "chk-4")
    assert [c["id"] for c in twins.bucket.json("checkpoint", "list", "till")] == ["chk-4", "chk-3", "chk-2", "chk-1"]
    assert _by_ranges(twins.bucket) == _by_ranges(twins.disk) != []
    query = twins.bucket.json("state", "query", "till", "accounts")
    assert "s3a://" in query["sql"] and "VERSION AS OF" in query["sql"]
    assert "'s3://" in twins.bucket.json("state", "query", "till", "accounts", "--dialect", "duckdb")["sql"]


def _by_ranges(side: Side) -> list[dict[str, Any]]:
    """As Spark's workers read it, which open a bucket by their own variables."""
    newest = next(side.line.coordinator.checkpoints())
    schema, handle = newest.plan.schemas["accounts"], newest.handles["accounts"]
    with mock.patch.dict(os.environ, side.variables):
        told = read_by_ranges(side.line.warehouse, schema, handle, newest.now)
    found: list[dict[str, Any]] = told.sort_by("account").to_pylist()
    return found


def test_a_run_is_refused_where_the_store_ignores_conditions(twins: Twins, bucket: Bucket) -> None:
    before = set(bucket.objects())
    bucket.server.proxy.rule = strips_conditions
    twins.bucket("run", "till").failed(1, "ignores If-None-Match")
    bucket.server.proxy.reset()
    assert set(bucket.objects()) - before <= {"house/.tidemark/conditional-put"}


def test_savepoints_retention_and_erasure_work_in_a_bucket(twins: Twins, bucket: Bucket) -> None:
    for side in (twins.disk, twins.bucket):
        side("savepoint", "create", "till", "june", "--checkpoint", "chk-1").ok()
    rule = ("--keep", "keep_last(1)")
    planned = twins.agree("retention", "plan", "till", *rule)
    assert planned["released"] == ["chk-2", "chk-3"] and planned["free_files"] > 0
    before = set(bucket.objects("house/till/state/"))
    for _ in range(2):
        done = twins.bucket.json("retention", "apply", "till", *rule, "--grace", "0", "--execute")
        assert done["broken"] == []
    gone = before - set(bucket.objects("house/till/state/"))
    assert {f["file"].removeprefix("till/state/") for f in planned["free"]} <= gone
    twins.bucket("verify", "till", "--content").ok()
    assert twins.bucket.json("state", "show", "till", "accounts", "--savepoint", "june")
    for side in (twins.disk, twins.bucket):
        side("erase", "till", "accounts", "--key", "ann", "--execute", "--now").ok()
    left = [row["account"] for row in twins.bucket.json("state", "show", "till", "accounts")]
    assert "ann" not in left and "bob" in left
    twins.bucket("verify", "till", "--content").ok()
    assert twins.bucket.json("storage", "till")


def test_an_export_leaves_one_bucket_for_another_and_is_imported_there(twins: Twins, tmp_path: Path) -> None:
    made = tmp_path / "export"
    twins.bucket("export", "till", "--checkpoint", "chk-4", "--to", str(made)).ok()
    twins.disk("export", "till", "--checkpoint", "chk-4", "--to", str(tmp_path / "other")).ok()
    names = [p.relative_to(made) for p in sorted(made.rglob("state/*.parquet"))]
    assert names and all((made / n).read_bytes() == (tmp_path / "other" / n).read_bytes() for n in names)
    url = f"{twins.bucket.variables['TIDEMARK_WAREHOUSE']}-exports/june"
    twins.bucket("export", "till", "--checkpoint", "chk-4", "--to", url).ok()
    twins.bucket("import", url, "--as", "till", "--timeline", "again", "--execute").ok()
    with commands_over(twins.bucket.line):
        (found,) = [t for t in twins.bucket.json("timeline", "list", "till") if t["timeline"] == "again"]
    newest = found.get("head") or found.get("newest")
    assert newest
    twins.bucket("verify", "till", "--content").ok()


def test_lineage_names_tables_by_their_bucket_and_no_object_holds_a_secret(twins: Twins, bucket: Bucket) -> None:
    from tidemark.telemetry.openlineage_columns import Naming

    named = Naming(jobs="j", broker="b:1", warehouse=f"s3://{bucket.name}/house").table("till/state/accounts/t1-1/runs")
    assert named == (f"s3://{bucket.name}", "house/till/state/accounts/t1-1/runs")
    assert not [key for key, body in bucket.objects().items() for s in SECRETS if s.encode() in body]


def test_a_damaged_object_is_named_by_its_place_in_the_warehouse(twins: Twins, bucket: Bucket) -> None:
    found = bucket.objects("house/till/state/accounts/")
    data = next(name for name in sorted(found) if name.endswith(".parquet") and "_delta_log" not in name)
    bucket.put(f"house/till/state/accounts/{data}", found[data][:-1] + b"?")
    told = twins.bucket("verify", "till", "--content")
    assert told.code != 0 and f"till/state/accounts/{data}" in told.out + told.err
    bucket.remove(f"house/till/state/accounts/{data}")
    told = twins.bucket("verify", "till")
    assert told.code != 0 and "it is gone" in told.out + told.err
    log = f"house/till/state/tills/{next(n for n in bucket.objects('house/till/state/tills/') if '_delta_log' in n)}"
    bucket.put(log, b"{}")
    told = twins.bucket("verify", "till")
    assert told.code != 0 and log.removeprefix("house/") in told.out + told.err
