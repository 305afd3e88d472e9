"""A warehouse in a bucket, by settings alone: real Spark, real Kafka, the command line; and faults on the way.

The pipeline, its history and its checks are those of the crash sweep: the oracle is plain Python over what was sent.
The store is MinIO, or moto's, behind a proxy; every fault is followed by a plain re-run that has to repair (I10).
"""

import json
import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.bucket_lines import HOUSE, BucketLines, BucketPipeline
from tests.support.kafka import Sent, Topics
from tests.support.killed_pipeline import PARTITIONS, SEED, KilledFold
from tests.support.prerequisites import needs
from tests.support.purchase_history import PurchaseHistory
from tests.support.s3 import SECRETS, S3Server, one_store
from tests.support.s3_proxy import Fault, Rule, S3Proxy, Times, strips_conditions
from tidemark.operations import reads
from tidemark.settings import load_settings

pytestmark = [
    one_store,
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.slow,
    needs(any((load_settings().jar_folder / "s3").glob("*.jar")), "make setup-s3 has not fetched the jars for S3"),
]
LOG = r"_delta_log/\d{20}\.json"
DATA = r"\.parquet$"
MANIFEST = r"/timelines/"


class BucketLine(BucketPipeline, KilledFold):
    """The pipeline of folds, with its warehouse in a bucket."""

    def command(self, *arguments: str) -> dict[str, object]:
        """A command that has to succeed; no secret is in what it says."""
        done = self.started(*arguments, "--json").wait()
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        assert not [secret for secret in SECRETS if secret in done.stdout + done.stderr]
        told: dict[str, object] = json.loads(done.stdout)
        return told

    def elsewhere(self) -> "BucketLine":
        """The same warehouse as a host sees it that shares nothing else: no lock of this one is seen there."""
        made = BucketLine(self.topics, self.settings.model_copy(update={"home": self.settings.home / "b"}), self.topic,
                          self._zygote)  # fmt: skip
        made.bucket, made.history = self.bucket, self.history
        return made


@pytest.fixture(scope="module")
def line(
    topics: Topics,
    spark_server: str,
    broker: str,
    s3_server: S3Server,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[BucketLine]:
    with BucketLines(topics, broker, spark_server, s3_server, tmp_path_factory).open(BucketLine, "warehouse") as made:
        yield made


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[S3Proxy]:
    s3_server.proxy.reset()
    yield s3_server.proxy
    s3_server.proxy.reset()


def test_a_pipeline_lives_in_a_bucket_by_settings_alone(line: BucketLine, proxy: S3Proxy) -> None:
    for _ in range(2):
        made = line.run()
        assert made.returncode == 0, made.stderr
        line.check()
        line.send()
    listed = line.command("checkpoint", "list", "sweep")
    found = listed["checkpoints"] if isinstance(listed, dict) else listed
    assert isinstance(found, list) and len(found) == 2
    assert line.command("savepoint", "create", "sweep", "june")
    assert line.run().returncode == 0
    line.check()
    whole = line.started("verify", "sweep", "--content", "--json").wait()
    assert whole.returncode == 0, whole.stdout + whole.stderr
    assert line.command("compact", "sweep", "--full") is not None
    line.send()
    assert line.run().returncode == 0, "it adopts what was compacted"
    line.check()
    before = set(line.bucket.objects(f"{HOUSE}/"))
    assert line.command("retention", "plan", "sweep", "--keep", "keep_last(1)")["released"]
    sweep = ("retention", "apply", "sweep", "--keep", "keep_last(1)", "--grace", "0", "--execute")
    applied = [line.command(*sweep) for _ in range(2)]
    assert [told["broken"] for told in applied] == [[], []]
    gone = before - set(line.bucket.objects(f"{HOUSE}/"))
    assert len(gone) >= sum(int(str(told["deleted_files"])) for told in applied) > 0
    line.check_state()


FAULTS: dict[str, Rule] = {
    "replies of puts to logs are lost": Times(Fault.DROP_REPLY, 4, "PUT", LOG),
    "replies of puts of data are lost": Times(Fault.DROP_REPLY, 3, "PUT", DATA),
    "replies of puts of manifests are lost": Times(Fault.DROP_REPLY, 2, "PUT", MANIFEST),
    "errors come in a burst": Times(503, 20),
    "data cannot be put for a while": Times(500, 4, "PUT", DATA),
    "bodies of data break off": Times(Fault.CUT_BODY, 2, "GET", DATA),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_on_the_way_to_the_bucket_changes_nothing(line: BucketLine, proxy: S3Proxy, fault: str) -> None:
    print(f"seed {SEED}; TIDEMARK_TEST_SEED={SEED}")
    line.send()
    proxy.rule = FAULTS[fault]
    done = line.run()
    met = FAULTS[fault]
    assert isinstance(met, Times) and met.met > 0, "the fault was met"
    assert done.returncode in (0, 1), f"it goes through, or fails with a documented code: {done.stderr}"
    proxy.reset()
    line.repair()


def test_bodies_that_trickle_are_waited_for(line: BucketLine, proxy: S3Proxy) -> None:
    line.send()
    proxy.pace = 20_000
    assert line.run().returncode == 0
    proxy.reset()
    line.check()


def test_files_that_listings_hide_are_never_committed_in_part(line: BucketLine, proxy: S3Proxy) -> None:
    """The process itself writes what is small, without a listing; Spark writes the letters of a large batch."""
    blanks = b" " * 800_000
    values = line.history.batch(40, PARTITIONS)
    padded = [(p, v + blanks if v.startswith(b'{"account"') else v) for p, v in values]
    line.topics.produce(line.topic, [Sent(value, partition=p) for p, value in padded])
    count = len(reads.list_checkpoints(line.context, "sweep"))
    proxy.hidden = re.compile(r"/dead_letters/.*/\d+\.\d+/part-")
    done = line.run()
    assert done.returncode == 1, done.stderr
    assert "rows" in done.stderr or "No such file" in done.stderr, done.stderr
    proxy.reset()
    assert len(reads.list_checkpoints(line.context, "sweep")) == count
    line.repair()


def test_a_store_that_ignores_conditions_is_refused_before_a_plan(line: BucketLine, proxy: S3Proxy) -> None:
    line.send()
    before = set(line.bucket.objects(f"{HOUSE}/sweep/"))
    proxy.rule = strips_conditions
    done = line.run()
    assert done.returncode == 1 and "ignores If-None-Match" in done.stderr
    assert set(line.bucket.objects(f"{HOUSE}/sweep/")) == before
    proxy.reset()
    line.repair()


def test_two_drivers_on_two_hosts_complete_one_checkpoint(line: BucketLine, proxy: S3Proxy) -> None:
    line.send()
    count = len(reads.list_checkpoints(line.context, "sweep"))
    drivers = [here.started("run", "sweep", "--json") for here in (line, line.elsewhere())]
    codes = sorted(driver.wait().returncode for driver in drivers)
    assert codes in ([0, 0], [0, 1], [0, 4]), [driver.wait().stderr for driver in drivers]
    assert len(reads.list_checkpoints(line.context, "sweep")) in (count + 1, count + 2)
    line.repair()


@pytest.mark.parametrize("point", ["commit.runs.accounts:after", "seal:before"])
def test_a_driver_that_was_paused_wakes_up_fenced(line: BucketLine, proxy: S3Proxy, point: str) -> None:
    line.send()
    sleeper = line.stopped_at(point)
    try:
        other = line.elsewhere().run()
        assert other.returncode == 0, other.stderr
        os.kill(sleeper.pid, signal.SIGCONT)
        woken = sleeper.wait()
    finally:
        sleeper.kill()
    assert woken.returncode == 4, f"fenced: {woken.stderr}"
    line.repair()


@pytest.mark.parametrize("point", ["runs.accounts:after", "publish:after"])
def test_a_driver_that_was_killed_is_repaired(line: BucketLine, proxy: S3Proxy, point: str) -> None:
    line.send()
    assert line.run(crash_at=point).returncode == -signal.SIGKILL
    line.repair()


def test_a_backfill_is_compared_and_a_key_erased_in_a_bucket(line: BucketLine, proxy: S3Proxy) -> None:
    if not reads.list_checkpoints(line.context, "sweep"):
        line.repair()
    line.send()
    assert line.run().returncode == 0
    newest, parent = reads.list_checkpoints(line.context, "sweep", limit=2)
    told: Any = line.command("backfill", "sweep", "--from-checkpoint", parent.plan.name, "--execute")
    assert ([step["repeats"] for step in told["done"]], told["promoted"]) == ([[newest.plan.name]], False)
    changes = {d["uid"]: (d["inserted"], d["deleted"], d["changed"]) for d in told["differences"]}
    assert changes == dict.fromkeys(("accounts", "shops"), (0, 0, 0)), "Spark has repeated it with the same code"

    before = len(line.history.sent)
    done: Any = line.command("erase", "sweep", "accounts", "--key", "bob", "--execute", "--now")
    assert done["deleted_files"] > 0
    assert line.command("compact", "sweep", "--full") is not None, "Spark reads what was written again"
    line.send()
    assert line.run().returncode == 0, "it adopts what was compacted"
    since = PurchaseHistory(SEED, line.history.sent[before:]).accounts()
    wanted = {key: row for key, row in line.history.accounts().items() if key != "bob"} | {"bob": since["bob"]}
    assert line.accounts() == wanted, "of the erased key only what was sent since"
    whole = line.started("verify", "sweep", "--content", "--json").wait()
    assert whole.returncode == 0, whole.stdout + whole.stderr


def test_nothing_in_the_bucket_holds_a_secret(line: BucketLine) -> None:
    found = line.bucket.objects(f"{HOUSE}/")
    assert len(found) > 50
    assert not [key for key, body in found.items() for secret in SECRETS if secret.encode() in body]
