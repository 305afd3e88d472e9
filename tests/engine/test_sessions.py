"""Sessions of attempts on a Connect server: what an attempt leaves must not be what the next one works with."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.connect.client import SparkConnectClient

from devstack.spark_server import CORES
from tests.support.spark_cluster import ROOT
from tidemark.engine.session.parallelism import FEWEST, MANY, PARALLELISM, SHUFFLES, parallelism_of
from tidemark.engine.session.session import SESSION_CONF, SparkSettings, end_session, open_session
from tidemark.errors import EngineError

pytestmark = [pytest.mark.spark, pytest.mark.slow]
RETRY = """
import sys, uuid
from pyspark.sql import SparkSession
from tidemark.engine.session.session import SparkSettings, end_session, open_session

settings, owner = SparkSettings(master=sys.argv[1]), f"tests/{uuid.uuid4().hex}"
open_session(settings, owner, 1).stop()
end_session(settings, owner, 1)
second = open_session(settings, owner, 2)
assert SparkSession.getActiveSession() is second
assert second.range(3).count() == 3
second.stop()
"""
LEFT_RUNNING = """
import sys, uuid
from concurrent.futures import ThreadPoolExecutor
from tidemark.engine.session.session import SparkSettings, end_session, open_session

settings, owner = SparkSettings(master=sys.argv[1]), f"tests/{uuid.uuid4().hex}"
query = open_session(settings, owner, 1).range(10**14).selectExpr("sum(id % 7)")
with ThreadPoolExecutor(1) as other:
    running = other.submit(query.collect)
    try:
        running.result(timeout=3)
    except TimeoutError:
        pass
    else:
        sys.exit("it has ended by itself")
    end_session(settings, owner, 1)
    assert "SESSION_CLOSED" in str(running.exception())
second = open_session(settings, owner, 2)
assert second.range(3).count() == 3  # its tasks had all of the server's cores
second.stop()
"""
DROPPED = """
import gc, sys, uuid
from tidemark.engine.session.session import SparkSettings, open_session

settings, owner = SparkSettings(master=sys.argv[1]), f"tests/{uuid.uuid4().hex}"
used = open_session(settings, owner, 1)
gc.disable()
session = open_session(settings, owner, 2)
assert session.range(3).count() == 3
knot = [session]
knot.append(knot)  # as the frames of an exception hold it: only the collector finds that nobody uses it
del session, knot

def collect(frame, event, arg):
    if event == "call" and frame.f_code.co_name == "__init__" and frame.f_back.f_code.co_name == "submit":
        gc.collect()

sys.setprofile(collect)  # in the middle of a call, where locks are held that are not given twice
assert used.range(4).count() == 4
sys.setprofile(None)
used.stop()
"""


@pytest.fixture
def kept_active() -> Iterator[None]:
    """A session that is opened becomes the process's active one: the other tests get theirs back."""
    before = SparkSession.getActiveSession()
    yield
    if before is not None:
        type(before)._set_default_and_active_session(before)  # type: ignore[attr-defined]


def test_attempts_share_generated_code(spark_server: str, kept_active: None) -> None:
    owner = f"tests/{uuid.uuid4().hex}"
    session = open_session(SparkSettings(master=spark_server), owner, 1)
    try:
        assert session.conf.get("spark.sql.artifact.isolation.enabled") == "false"
        assert session.conf.get("spark.sql.ansi.enabled") == "true"
        assert int(str(session.conf.get("spark.sql.codegen.cache.maxEntries"))) >= 1000
    finally:
        session.stop()


def test_every_setting_holds_after_one_request(
    spark_server: str, kept_active: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, send = [], SparkConnectClient.config

    def config(client: SparkConnectClient, operation: Any) -> Any:
        asked.append(operation)
        return send(client, operation)

    monkeypatch.setattr(SparkConnectClient, "config", config)
    own = {"spark.sql.files.maxRecordsPerFile": "7"}
    settings = SparkSettings(master=spark_server, parallelism=3, session_conf=own)
    session = open_session(settings, f"tests/{uuid.uuid4().hex}", 1)
    try:
        (operation,) = asked
        wanted = {**SESSION_CONF, SHUFFLES: "3", PARALLELISM: "3", **own}
        # What the server is started with would hold without being asked for.
        assert {pair.key: pair.value for pair in operation.set.pairs} == wanted
        assert not operation.set.silent, "what cannot be set must be an error"
        assert {name: session.conf.get(name) for name in wanted} == wanted
    finally:
        session.stop()


def test_tasks_are_those_of_the_server_and_fewer_for_few_rows(spark_server: str, kept_active: None) -> None:
    """The session's option, after other values of the same server's other sessions."""
    given, few = SparkSettings(master=spark_server), SparkSettings(master=spark_server, parallelism=9)
    asked = [(given, None), (given, 10**9), (given, FEWEST), (few, 3 * FEWEST), (few, MANY)]
    told = []
    for settings, rows in asked:
        session = open_session(settings, f"tests/{uuid.uuid4().hex}", 1, rows)
        try:
            names = (PARALLELISM, SHUFFLES, "spark.sql.adaptive.enabled")
            told.append(tuple(session.conf.get(name) for name in names))
            assert parallelism_of(session) == int(str(session.conf.get(PARALLELISM)))
        finally:
            session.stop()
    cores = str(CORES)
    wanted = [(cores, cores, "false"), (cores, cores, "true"), (cores, "1", "false"), ("9", "3", "false")]
    assert told == [*wanted, ("9", "9", "true")]


def test_a_zombie_gets_nothing_more_from_the_server(spark_server: str, kept_active: None) -> None:
    settings, owner = SparkSettings(master=spark_server), f"tests/{uuid.uuid4().hex}"
    open_session(settings, owner, 1)
    end_session(settings, owner, 1)
    with pytest.raises(EngineError, match="CLOSED"):
        open_session(settings, owner, 1).range(1).count()


def test_what_an_attempt_left_running_is_interrupted(spark_server: str) -> None:
    _in_its_own_process(LEFT_RUNNING, spark_server)


def test_a_retry_of_what_failed_in_one_process_works_with_its_own_session(spark_server: str) -> None:
    _in_its_own_process(RETRY, spark_server)


def test_a_session_that_nobody_uses_is_not_closed_in_the_middle_of_a_call(spark_server: str) -> None:
    _in_its_own_process(DROPPED, spark_server)


def _in_its_own_process(script: str, server: str) -> None:
    """A process remembers one active session, and this one has that of the other tests; what hangs can be killed."""
    env = os.environ | {"PYTHONPATH": str(ROOT / "include")}
    command = [sys.executable, "-c", script, server]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
