"""The store itself dies in the middle of a checkpoint, and comes back over what it had acknowledged: nothing is lost.

A real MinIO, killed by SIGKILL at a random moment around a put. The coordinator, the store, deltalake and the order of
steps are the real ones; only the engine is its twin. The oracle is plain Python over what was sent.
"""

import os
import random
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from unittest import mock

import pytest

from tests.s3.test_requests import OBJECTS, Till
from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext
from tests.support.minio import MinioProcess, needs_minio
from tests.support.s3 import MINIO, SECRETS, S3Server, running_server
from tests.support.s3_proxy import S3Request
from tests.support.sales import Sales
from tests.support.sales_pipeline import DECLARATION, SEED
from tidemark.errors import StoreError, TidemarkError
from tidemark.operations import verification
from tidemark.settings import load_settings
from tidemark.storage.s3_folder import open_folder
from tidemark.storage.s3_location import S3Place

pytestmark = [pytest.mark.slow, needs_minio()]
DELAYS = (0.0, 0.001, 0.003, 0.01, 0.03)
BOUND = 30
"""Seconds after which a command has said that the store is away."""


@dataclass
class Kills:
    """A rule: the store is killed a moment after the first put that fits, and started again later, or not.

    Attributes:
        store: it.
        path: pattern of the key.
        delay: seconds between the arrival of the put and the kill.
        down: seconds until it is started again; None = it stays down.
    """

    store: MinioProcess
    path: str
    delay: float
    down: float | None
    ended: threading.Event = field(default_factory=threading.Event)
    _met: bool = False

    def __call__(self, request: S3Request) -> None:
        if not self._met and request.method == "PUT" and re.search(self.path, request.path):
            self._met = True
            threading.Thread(target=self._kill).start()
            if not self.delay:
                time.sleep(0.05)

    def _kill(self) -> None:
        time.sleep(self.delay)
        self.store.kill()
        if self.down is not None:
            time.sleep(self.down)
            self.store.start()
        self.ended.set()


@dataclass
class Mortal:
    """A pipeline in a bucket of a store of its own."""

    till: Till
    tidemark: Command
    server: S3Server
    store: MinioProcess

    def repair(self) -> None:
        """Plain runs until all is read; then state is exact, and every restore point is whole."""
        self.server.proxy.reset()
        self.till.line.checkpoint()
        while self._behind():
            self.till.line.checkpoint()
        self.till.check()
        context = DiskContext(self.till.line, load_settings())
        assert verification.verify(context, "till", content=True).damages == ()

    def _behind(self) -> bool:
        newest = next(self.till.line.coordinator.checkpoints())
        read = sum(r.end for _, r in newest.plan.ranges.items())
        return read < sum(len(sent) for sent in self.till.sales.sent.values())


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mortal]:
    print(f"seed {SEED}; TIDEMARK_TEST_SEED={SEED}")
    with running_server(MINIO, tmp_path_factory.mktemp("mortal")) as server:
        assert server.process is not None
        bucket = server.make_bucket("mortal")
        tidemark = Command(tmp_path_factory.mktemp("till"), "127.0.0.1:1", "sc://127.0.0.1:1")
        tidemark.declare(DECLARATION, topic="sales")
        there = {"TIDEMARK_WAREHOUSE": f"s3://{bucket.name}/house", **server.variables}
        with mock.patch.dict(os.environ, tidemark.environment(**there)):
            place = S3Place(bucket=bucket.name, prefix="house", endpoint=server.proxy.address)
            with open_folder(place) as folder:
                line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("till"), "sales", bucket=folder)
                made = Mortal(Till(line, Sales(SEED), server.proxy), tidemark, server, server.process)
                made.till.sell()
                line.checkpoint()
                made.till.check()
                yield made


@pytest.mark.parametrize("object_", OBJECTS)
def test_a_checkpoint_waits_for_a_store_that_died_and_comes_back(mortal: Mortal, object_: str) -> None:
    chosen = random.Random(f"{SEED} {object_}")
    delay = chosen.choice(DELAYS)
    print(f"seed {SEED}: killed {delay} s after a put of {OBJECTS[object_]}")
    mortal.till.sell()
    kills = Kills(mortal.store, OBJECTS[object_], delay, down=chosen.uniform(0.2, 2))
    mortal.server.proxy.rule = kills
    mortal.till.line.checkpoint()
    assert kills.ended.wait(30), "the put was met"
    mortal.repair()


@pytest.mark.parametrize("object_", ["plan", "data", "commit", "seal", "manifest"])
def test_a_store_that_stays_away_is_told_and_a_plain_re_run_repairs(mortal: Mortal, object_: str) -> None:
    delay = random.Random(f"{SEED} away {object_}").choice(DELAYS)
    print(f"seed {SEED}: killed {delay} s after a put of {OBJECTS[object_]}")
    mortal.till.sell()
    folder = mortal.till.line.bucket
    assert folder is not None
    impatient = replace(mortal.till.line, bucket=replace(folder, patient=folder.quick))
    kills = Kills(mortal.store, OBJECTS[object_], delay, down=None)
    mortal.server.proxy.rule = kills
    message: StoreError | None = None
    try:
        impatient.checkpoint()
    except StoreError as error:
        message = error
    finally:
        assert kills.ended.wait(30)
        mortal.store.start()
    # Once its manifest is acknowledged, a checkpoint is complete; the store may have died behind that.
    assert message is not None or object_ == "manifest"
    if message is not None:
        _is_clear(message)
    mortal.repair()


def test_commands_say_soon_that_the_store_is_away(mortal: Mortal) -> None:
    direct = {"TIDEMARK_WAREHOUSE": "s3://mortal/house", "TIDEMARK_S3_ENDPOINT": mortal.server.address}
    mortal.tidemark("checkpoint", "list", "till", **direct).ok()
    mortal.store.kill()
    try:
        for command in (("run", "till"), ("checkpoint", "list", "till"), ("state", "show", "till", "accounts")):
            began = time.monotonic()
            answer = mortal.tidemark(*command, **direct)
            answer.failed(1, f"S3 does not answer at 127.0.0.1:{mortal.store.port}", "is intact")
            assert time.monotonic() - began < BOUND, command
            assert not [secret for secret in SECRETS if secret in answer.err]
    finally:
        mortal.store.start()
    mortal.tidemark("checkpoint", "list", "till", **direct).ok()


def _is_clear(error: TidemarkError) -> None:
    what, safe, following = str(error).splitlines()
    assert what and safe.startswith("Safe: ") and following.startswith("Next: ")
    assert not [secret for secret in SECRETS if secret in str(error)]
