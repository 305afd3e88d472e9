"""A fault at every single put of a checkpoint in a bucket, and rivals in between: the line goes on and state is exact.

The coordinator, the store, deltalake and the order of steps are the real ones; only the engine is its twin, so that
there is no Spark to wait for. The oracle is plain Python over what was sent.
"""

import itertools
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from unittest import mock
from uuid import uuid4

import pytest

from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.s3 import S3Server
from tests.support.s3_proxy import Fault, S3Proxy, S3Request, Times
from tests.support.sales import Sales
from tests.support.sales_pipeline import DECLARATION, SEED
from tidemark.errors import FencedError, StoreError
from tidemark.ports import StepListener
from tidemark.readers.state_reader import read_state
from tidemark.storage.s3_folder import S3Folder

pytestmark = pytest.mark.slow


@dataclass
class Denies:
    """A rule: the reply of the first put that fits is lost, and everything behind it is denied."""

    path: str
    met: bool = False

    def __call__(self, request: S3Request) -> Fault | int | None:
        if self.met:
            return 403
        self.met = request.method == "PUT" and re.search(self.path, request.path) is not None
        return Fault.DROP_REPLY if self.met else None


@dataclass
class Till:
    """The line in a bucket."""

    line: DiskPipeline
    sales: Sales
    proxy: S3Proxy

    def sell(self) -> None:
        self.line.send(self.sales.more(20))

    def check(self) -> None:
        """State is that of every record that was sent, each once; ranges are contiguous."""
        chain = list(self.line.coordinator.checkpoints())
        newest = chain[0]
        ends = {tp.partition: r.end for tp, r in newest.plan.ranges.items()}
        assert sum(ends.values()) == sum(len(sent) for sent in self.sales.sent.values())
        state = read_state(
            self.line.warehouse, newest.plan.schemas["accounts"], newest.handles["accounts"], newest.now
        ).to_pylist()
        wanted = {key: row["sales"] for key, row in self.sales.accounts(ends).items()}
        assert {row["account"]: row["sales"] for row in state} == wanted
        assert [c.plan.slot.sequence for c in chain] == list(range(len(chain), 0, -1))
        for later, earlier in itertools.pairwise(chain):
            assert later.plan.ranges.breaks_from(earlier.plan.ranges) == []

    def rival(self) -> DiskPipeline:
        """Another host's driver of the same pipeline: no lock, no memory in common."""
        made = replace(self.line)
        made._ids = (uuid4().hex for _ in itertools.count())
        return made


@pytest.fixture(scope="module")
def till(s3_server: S3Server, s3_folder: S3Folder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Till]:
    s3_server.proxy.reset()
    place = replace(s3_folder.place, bucket=s3_server.make_bucket(f"till-{uuid4().hex[:12]}").name)
    folder = replace(s3_folder, access=replace(s3_folder.access, place=place))
    tidemark = Command(tmp_path_factory.mktemp("till"), "127.0.0.1:1", "sc://127.0.0.1:1")
    tidemark.declare(DECLARATION, topic="sales")
    with mock.patch.dict(os.environ, s3_server.variables):
        line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("till"), "sales", bucket=folder)
        made = Till(line, Sales(SEED), s3_server.proxy)
        made.sell()
        line.checkpoint()
        made.check()
        yield made
    s3_server.proxy.reset()


OBJECTS = {
    "id": "/ids/",
    "plan": r"/plans/t1/\d+\.\d+\.json",
    "the attempt is taken": r"000000\.outcome",
    "data": r"/runs/.*\.parquet",
    "commit": r"/runs/_delta_log/",
    "dead letters": r"/dead_letters/.*_delta_log/",
    "seal": r"000001\.outcome",
    "manifest": "/timelines/",
}


@pytest.mark.parametrize("object_", OBJECTS)
def test_a_lost_reply_of_any_put_counts_once(till: Till, object_: str) -> None:
    till.sell()
    lost = Times(Fault.DROP_REPLY, 1, "PUT", OBJECTS[object_])
    till.proxy.rule = lost
    till.line.checkpoint()
    till.proxy.reset()
    assert lost.met == 1
    till.check()


@pytest.mark.parametrize("object_", OBJECTS)
def test_a_store_that_denies_from_any_put_on_is_repaired_by_a_plain_re_run(till: Till, object_: str) -> None:
    till.sell()
    denies = Denies(OBJECTS[object_])
    till.proxy.rule = denies
    with pytest.raises(StoreError):
        till.line.checkpoint()
    assert denies.met
    till.proxy.reset()
    till.line.checkpoint()
    while _behind(till):
        till.line.checkpoint()
    till.check()


def _behind(till: Till) -> bool:
    """What was sealed or published before the fault is finished first; then there may be more to read."""
    newest = next(till.line.coordinator.checkpoints())
    ends = sum(r.end for _, r in newest.plan.ranges.items())
    return ends < sum(len(sent) for sent in till.sales.sent.values())


@pytest.mark.parametrize("step", ["read", "commit.runs.accounts", "commit.runs.tills", "gate", "fsync", "seal"])
def test_a_driver_that_sleeps_while_a_rival_publishes_wakes_up_fenced(till: Till, step: str) -> None:
    till.sell()
    met: list[str] = []
    till.line.crash = _once(
        step,
        "after" if step.startswith("commit") else "before",
        lambda: met.append(till.rival().checkpoint().plan.name),
    )
    try:
        with pytest.raises(FencedError):
            till.line.checkpoint()
    finally:
        till.line.crash = lambda step, moment: None
    assert len(met) == 1
    till.check()


def _once(step: str, moment: str, act: Callable[[], None]) -> StepListener:
    waiting, wanted = [act], (step, moment)

    def listener(step: str, moment: str) -> None:
        if (step, moment) == wanted and waiting:
            waiting.pop()()

    return listener
