"""How many requests an answer takes over a bucket, by the proxy in front of the store.

The pipeline has two operators, dead letters and 31 checkpoints without compaction and retention. Its engine is a
twin; what the twin reads and writes itself, which are data files, does not count. A bound is a little above what was
measured when it was set: a change that exceeds it has added a request per object somewhere.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock
from uuid import uuid4

import pytest

from tests.s3.waves import Waves
from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext
from tests.support.s3 import Bucket, S3Server, only_moto
from tests.support.s3_proxy import S3Request
from tests.support.sales import Sales
from tests.support.sales_pipeline import DECLARATION, SEED
from tidemark import glance
from tidemark.answers.checkpoint_overview import CheckpointsOverview
from tidemark.context import Context
from tidemark.glance import glance_at
from tidemark.operations import checkpoints, verification
from tidemark.ports import PlanRequest
from tidemark.settings import load_settings
from tidemark.storage import key_survey, shared_listing
from tidemark.storage.s3_folder import S3Folder
from tidemark.testing.twin.memory import ManualClock
from tidemark.web import columns, details, graphs, history_cache, overview, publication_lag, retention_calendar
from tidemark.web.history_lines import HistoryQuery
from tidemark.web.retention_calendar import WhatIf

pytestmark = [pytest.mark.slow, only_moto]
CHECKPOINTS = 31


@dataclass
class Counted:
    """The pipeline, and the context of a process that only reads it."""

    line: DiskPipeline
    context: DiskContext
    bucket: Bucket
    sales: Sales

    def count(self, answer: Callable[[], object]) -> int:
        """The requests of an answer, but for those of data files."""
        requests = self.bucket.server.proxy.requests
        requests.clear()
        answer()
        return sum("/part-0.parquet" not in path for _, path in requests)

    def waves(self, answer: Callable[[], object]) -> list[list[str]]:
        """The requests of an answer in the order of its round trips, but for those of data files."""
        proxy = self.bucket.server.proxy
        proxy.rule = found = Waves()
        try:
            answer()
        finally:
            proxy.reset()
        return [wave for wave in found.waves if not all("/part-0.parquet" in request for request in wave)]

    def fresh_context(self) -> DiskContext:
        """The context of another process on the same host."""
        return DiskContext(self.line, load_settings())

    def on_new_host(self, home: Path) -> DiskContext:
        """The context of a process on a host that has read nothing yet."""
        return DiskContext(self.line, load_settings(home=str(home)))

    def checkpoint(self) -> None:
        self.line.send(self.sales.more(20))
        self.line.checkpoint()


@pytest.fixture(scope="module")
def counted(s3_server: S3Server, s3_folder: S3Folder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    s3_server.proxy.reset()
    bucket = s3_server.make_bucket(f"counted-{uuid4().hex[:12]}")
    folder = replace(s3_folder, access=replace(s3_folder.access, place=replace(s3_folder.place, bucket=bucket.name)))
    tidemark = Command(tmp_path_factory.mktemp("counted"), "127.0.0.1:1", "sc://127.0.0.1:1")
    tidemark.declare(DECLARATION, topic="sales")
    there = {"TIDEMARK_WAREHOUSE": f"s3://{bucket.name}/house", **s3_server.variables}
    with mock.patch.dict(os.environ, tidemark.environment(**there)):
        line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("till"), "sales", bucket=folder)
        made = Counted(line, DiskContext(line, load_settings()), bucket, Sales(SEED))
        for _ in range(CHECKPOINTS):
            made.checkpoint()
        yield made


POLLED: dict[str, Callable[[Context], object]] = {
    "overview": lambda context: overview.get_overview(context, "till", HistoryQuery()),
    "series": lambda context: overview.list_points(context, "till", 100),
    "timelines": lambda context: overview.list_timelines(context, "till"),
    "savepoints": lambda context: overview.list_savepoints(context, "till"),
    "lineage": lambda context: graphs.build_graph(context, "till", CHECKPOINTS),
    "publications": lambda context: publication_lag.list_publication_lags(context, "till", lambda names: {}),
}


@pytest.mark.parametrize("page", POLLED)
def test_a_page_that_is_polled_lists_the_records_and_reads_none_again(counted: Counted, page: str) -> None:
    first = POLLED[page](counted.context)
    assert counted.count(lambda: POLLED[page](counted.context)) <= 5, "one per part of the listing"
    assert repr(POLLED[page](counted.fresh_context())) == repr(first) or page == "overview", (
        "a new process says the same"
    )


def test_an_overview_of_a_new_process_reads_each_checkpoint_once(counted: Counted) -> None:
    fresh = counted.fresh_context()
    assert counted.count(lambda: POLLED["overview"](fresh)) <= 2 * CHECKPOINTS + 8


OPENED = POLLED | {
    "details": lambda context: details.get_details(context, "till", 7),
    "configuration": lambda context: details.get_config(context, "till"),
}


@pytest.mark.parametrize("page", OPENED)
def test_answers_take_few_round_trips_in_a_row(counted: Counted, page: str) -> None:
    """The first one of a process lists, reads ends, ids and manifests; a polled one only lists."""
    fresh = counted.fresh_context()
    first, polled = [counted.waves(lambda: OPENED[page](fresh)) for _ in range(2)]
    assert len(first) <= MOST.get(page, (5, 1))[0] and len(polled) <= MOST.get(page, (5, 1))[1], (first, polled)


MOST = {"details": (10, 6), "configuration": (6, 2)}
"""The first answer and later ones: a plan is not listed, and the logs of tables are read each time."""


@pytest.fixture
def with_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages and chunks so small that a first listing leaves out most of `ids/` and of the timeline."""
    sizes = {"PAGE": 12, "FIRST_PAGE": 5, "LONG": 10, "TAIL": 4, "_GROWTH": 3, "PART": 7, "PARTS": 3}
    for module in (key_survey, shared_listing):
        for name in sizes.keys() & vars(module).keys():
            monkeypatch.setattr(module, name, sizes[name])


ANSWERS: dict[str, Callable[[Context], object]] = OPENED | {
    "retention": lambda context: retention_calendar.get_calendar(context, "till", WhatIf()),
    "neighbours": lambda context: [history_cache.get_neighbours(context, "till", n) for n in range(1, CHECKPOINTS)],
    "neighbours of an old one": lambda context: history_cache.get_neighbours(context, "till", 12),
    "lineage of an old one": lambda context: graphs.build_graph(context, "till", 9),
    "columns": lambda context: columns.recorded_columns(context, "till", None),
}


@pytest.mark.parametrize("page", ANSWERS)
def test_answers_are_the_same_when_the_first_listing_has_gaps(
    counted: Counted, with_gaps: None, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    fresh, whole = counted.fresh_context(), counted.fresh_context()
    for context in (fresh, whole):
        context.clock = ManualClock(context.clock.now_ms())

    def answer(context: DiskContext, times: int) -> str:
        return [repr(ANSWERS[page](glance_at(context))) for _ in range(times)][-1]

    first = answer(fresh, 1)
    assert answer(fresh, 8) == first or page in CONTINUED
    monkeypatch.undo()
    assert answer(whole, 9) == answer(fresh, 1)


CONTINUED = {"overview", "series", "retention"}
"""Answers that read the history, or manifests, in portions."""


def test_a_first_overview_leaves_old_keys_unlisted(
    counted: Counted, with_gaps: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_cache, "FIRST_PORTION", 4)
    fresh, found = counted.fresh_context(), list[CheckpointsOverview]()
    waves = counted.waves(lambda: found.append(overview.get_overview(fresh, "till", HistoryQuery(limit=3))))
    assert len(waves) <= 7, "three to list, then ends, ids with manifests, and the plans of those without"
    assert glance._LISTINGS[fresh]["till"]._snapshot.gaps
    assert (found[0].counts.total, found[0].indexed.read, found[0].indexed.of) == (4, 4, CHECKPOINTS)


def test_a_page_reads_only_what_a_new_checkpoint_has_added(counted: Counted) -> None:
    before = overview.get_overview(counted.context, "till", HistoryQuery())
    counted.checkpoint()
    assert counted.count(lambda: POLLED["overview"](counted.context)) <= 8
    after = overview.get_overview(counted.context, "till", HistoryQuery())
    assert (after.counts.completed, after.health.newest) == (before.counts.completed + 1, before.counts.completed + 1)


def test_details_of_a_checkpoint_open_each_of_its_tables_once(counted: Counted) -> None:
    details.get_details(counted.context, "till", 7)
    assert counted.count(lambda: details.get_details(counted.context, "till", 7)) <= 80


def test_verify_reads_each_record_once_and_later_only_what_a_restore_point_needs(counted: Counted) -> None:
    checked = verification.verify(counted.fresh_context(), "till")
    assert (len(checked.points), checked.damages) == (CHECKPOINTS + 2, ()), "and the end of the timeline"
    again = verification.verify(counted.fresh_context(), "till")
    assert (again.points, again.inspected, again.damages) == (checked.points, checked.inspected, ())
    assert counted.count(lambda: verification.verify(counted.fresh_context(), "till")) <= 200
    every = counted.count(lambda: verification.verify(counted.fresh_context(), "till", content=True))
    assert every <= 300, "it reads all records again"
    assert counted.count(lambda: verification.verify(counted.fresh_context(), "till", at=CHECKPOINTS)) <= 60
    assert counted.count(lambda: verification.verify(counted.fresh_context(), "till", at=7)) <= 45, (
        "reads no later ones"
    )


def test_the_first_verify_on_a_host_makes_a_request_per_record_and_a_dozen_more(
    counted: Counted, tmp_path: Path
) -> None:
    """Eight records per checkpoint: why it takes more than 200 for 31, see adr/0033."""
    records = [key for key in counted.bucket.objects("house/till/") if not key.endswith((".parquet", "_checkpoint"))]
    first = counted.count(lambda: verification.verify(counted.on_new_host(tmp_path), "till"))
    assert first <= len(records) + 12
    repeated = {at: n for at, n in Counter(counted.bucket.server.proxy.requests).items() if n > 1}
    assert not repeated, "nothing is read or listed twice"


ROTTEN = {
    "plan": "plans/t1/000000000003.0001.json",
    "revoked attempt": "plans/t1/000000000004.0001/000000.outcome.json",
    "sealed attempt": "plans/t1/000000000005.0001/000001.outcome.json",
    "id": "ids/000000000006.json",
    "manifest": "timelines/t1/000000000007.json",
    "commit": "state/accounts/t1-1/runs/_delta_log/00000000000000000008.json",
}


def test_what_rots_in_the_store_under_its_old_etag_is_found_on_a_new_host(counted: Counted, tmp_path: Path) -> None:
    """One record of each kind; the listing shows what was put there, so only reading finds it."""
    bodies = counted.bucket.objects("house/till/")
    rotten = {key: bodies[key].replace(b'":', b'" :', 1).replace(b"1", b"2", 1) for key in ROTTEN.values()}
    assert all(rotten[key] != bodies[key] for key in rotten)

    def rots(request: S3Request) -> bytes | None:
        key = request.path.partition("?")[0].partition("/house/till/")[2]
        return rotten.get(key) if request.method == "GET" else None

    def found(*, content: bool = False) -> set[str]:
        damages = verification.verify(counted.on_new_host(tmp_path), "till", content=content).damages
        return {damage.where.removeprefix("till/") for damage in damages}

    counted.bucket.server.proxy.rule = rots
    try:
        assert found() == set(rotten)
        needed = {ROTTEN[kind] for kind in ("id", "manifest", "commit")}
        assert needed <= found() and found(content=True) == set(rotten)
    finally:
        counted.bucket.server.proxy.reset()
    assert found() == set()


def test_a_checkpoint_takes_no_request_per_checkpoint_before_it(counted: Counted) -> None:
    """It opens the logs ten times, and reads each from its newest Delta log checkpoint on: at most 20 commits."""
    counts = [counted.count(counted.checkpoint) for _ in range(3)]
    assert max(counts) <= 330, counts


def test_a_checkpoint_of_one_process_makes_a_bounded_number_of_requests(counted: Counted) -> None:
    """Without requests for logs, which the twin reads, too, and which get a Delta log checkpoint now and then.

    `tests/contract/test_tables.py` counts those of a commit. A round with dead letters makes four requests more.
    """
    requests = counted.bucket.server.proxy.requests

    def made() -> int:
        counted.line.send(counted.sales.more(20))
        requests.clear()
        assert checkpoints.run_once(counted.context, "till", PlanRequest(origin="test")).checkpoint is not None
        paths = [path.replace("%2F", "/") for _, path in requests]
        return sum("/part-0.parquet" not in path and "/_delta_log" not in path for path in paths)

    made()  # the first one opens the tables
    counts = [made() for _ in range(6)]
    assert max(counts) <= 54, counts
    assert max(counts) - min(counts) <= 4, counts


def test_what_is_damaged_after_a_verify_is_found_by_the_next_one(counted: Counted) -> None:
    """The ETag says that it is not what was read; this is the last test, because it damages the pipeline."""
    assert verification.verify(counted.fresh_context(), "till").damages == ()
    key = "house/till/plans/t1/000000000003.0001/000000.outcome.json"
    body = counted.bucket.objects(key)[""]
    counted.bucket.put(key, body.replace(b'"attempt":0', b'"attempt":7'))
    (found,) = verification.verify(counted.fresh_context(), "till").damages
    assert found.where.endswith("000000.outcome.json")
    counted.bucket.put(key, body)
    assert verification.verify(counted.fresh_context(), "till").damages == ()
