"""Diffs and SQL of state that expires: what goes without a record is told, whatever the compaction schedule."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.cli import Command
from tests.support.disk import DiskPipeline

START = datetime(2024, 5, 1, tzinfo=UTC)
DECLARATION = '''
"""Visits of a site: how many, and the newest page, for an hour."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemark import Fold, KafkaSource, Pipeline, state


@dataclass(frozen=True)
class Visit:
    """One record."""

    user: str
    page: str
    at: datetime


class User(state.Keyed):
    """What is remembered for ever, and for an hour."""

    visits: int = state.count()
    page: str | None = state.latest("page", ttl=timedelta(hours=1))


class Recent(state.Keyed):
    """What is remembered for an hour."""

    page: str | None = state.latest("page", ttl=timedelta(hours=1))


visits = Pipeline(
    name="visits",
    source=KafkaSource("visits", Visit, event_time="at"),
    operators=[Fold("users", key_by="user", state=User), Fold("recent", key_by="user", state=Recent)],
)
'''


@dataclass
class Site:
    """Four checkpoints: ann and bob, ann again, an hour later cy alone, then nobody."""

    tidemark: Command
    line: DiskPipeline

    def visit(self, *visits: tuple[str, int]) -> None:
        values = []
        for user, minute in visits:
            at = START + timedelta(minutes=minute)
            body = {"user": user, "page": f"p{minute}", "at": at.isoformat()}
            values.append((0, json.dumps(body).encode(), int(at.timestamp() * 1000)))
        self.line.send(values)
        self.line.checkpoint()

    def diff(self, uid: str, before: int, after: int, *options: str) -> Any:
        span = ("--from", str(before), "--to", str(after))
        told = self.tidemark("state", "diff", "visits", uid, *span, *options, "--json")
        found = told.ok().json
        assert found["bytes_read"] is None
        assert "in full" in told.err
        return {r["key"]["user"]: r for r in found["rows"]}


@pytest.fixture(params=["left alone", "compacted"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    tidemark = Command(tmp_path, "127.0.0.1:1", "sc://127.0.0.1:1")
    tidemark.declare(DECLARATION, file="visits.py")
    made = Site(tidemark, DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("visits"), "visits", partitions=1))
    for visits in ([("ann", 0), ("bob", 10)], [("ann", 40)], [("cy", 80)], []):
        made.visit(*visits)
        if request.param == "compacted":
            made.line.compact("users", full=True)
            made.line.compact("recent")
    return made


def test_a_key_that_expired_is_deleted_without_a_record(site: Site) -> None:
    def told(*options: str) -> dict[str, str]:
        return {key: row["change"] for key, row in site.diff("recent", 2, 3, *options).items()}

    assert told("--inserts") == {"bob": "deleted", "cy": "inserted"}
    assert told() == {"bob": "deleted", "cy": "upserted"}
    assert told("--keys-only") == {"bob": "deleted", "cy": "changed"}
    assert site.diff("recent", 3, 4) == {}


def test_a_field_that_expired_is_an_update(site: Site) -> None:
    assert {k: r["change"] for k, r in site.diff("users", 2, 3).items()} == {"bob": "upserted", "cy": "upserted"}
    changed = site.diff("users", 2, 3, "--values")
    assert {k: r["change"] for k, r in changed.items()} == {"bob": "updated", "cy": "inserted"}
    assert changed["bob"]["before"] == {"visits": 1, "page": "p10", "_changed": 1}
    assert changed["bob"]["after"] == {"visits": 1, "page": None, "_changed": 1}


def test_an_export_leaves_out_what_had_expired_by_its_checkpoint(site: Site, tmp_path: Path) -> None:
    def exported(uid: str, checkpoint: int) -> dict[str, Any]:
        to = tmp_path / f"{uid}-{checkpoint}.parquet"
        site.tidemark("state", "export", "visits", uid, "--to", str(to), "--checkpoint", str(checkpoint)).ok()
        return {row["user"]: row["page"] for row in pq.read_table(to).to_pylist()}

    assert exported("recent", 2) == {"ann": "p40", "bob": "p10"}
    assert exported("recent", 3) == {"ann": "p40", "cy": "p80"}, "without bob's row"
    assert exported("users", 3) == {"ann": "p40", "bob": None, "cy": "p80"}


def test_sql_sees_each_checkpoint_by_its_own_clock(site: Site) -> None:
    asked = "select n.user, o.page as was, n.page from users_at(3) n left join users_at(2) o using (user) order by user"
    told = site.tidemark("state", "sql", "visits", asked, "--json").ok().json
    assert told == [
        {"user": "ann", "was": "p40", "page": "p40"},
        {"user": "bob", "was": "p10", "page": None},
        {"user": "cy", "was": None, "page": "p80"},
    ]
