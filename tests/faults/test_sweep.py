"""SIGKILL at every step boundary, each followed by a plain re-run: the oracle's state, one manifest per slot (I10).

One growing timeline serves all points of a mode: records are sent, a run is killed at the point, a plain run follows,
whole state is compared with plain Python over everything that was ever sent.
"""

import os
import signal
from collections.abc import Iterator
from unittest import mock

import psutil
import pytest

from devstack import control
from tests.support.kafka import Topics
from tests.support.killed_pipeline import SEED, KilledFold, KilledPipeline, KilledPipelines, KilledProcess
from tests.support.prerequisites import missing
from tests.support.processes import Zygote
from tests.support.s3 import CREDENTIALS
from tests.support.spark_cluster import QUICK_JAVA
from tidemark.embedded_services import recorded_service
from tidemark.settings import Settings

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]
FULL = os.environ.get("TIDEMARK_TEST_SWEEP") == "full"
STEPS = (
    ["ids", "queries", "plan", "attempt", "read"]
    + [f"{step}.{uid}" for uid in ("accounts", "shops") for step in ("fold", "runs", "dead_letters", "sinks")]
    + [f"commit.{step}.{uid}" for uid in ("accounts", "shops") for step in ("runs", "sinks")]
    + ["gate", "fsync", "seal", "publish"]
)
"""`commit.*` lies inside `runs` and `sinks`: the table's version is read, the fence is next, then the commit."""
EMITTING_STEPS = [f"{step}.large" for step in ("process", "emitted", "commit.outputs", "outputs")] + ["sent.told"]
"""What only a process and its sink come to; another pipeline, so that the folds' runs do not wait for Python."""
_OWN = tuple(step for step in STEPS if FULL or step == "ids" or step.startswith("commit."))
"""Steps with nothing right before them that ends: elsewhere a kill before a step is one after the step before."""
POINTS = [f"{step}:{moment}" for step in STEPS for moment in (("before", "after") if step in _OWN else ("after",))]
POINTS += [f"{step}:{moment}" for step in EMITTING_STEPS for moment in (("before", "after") if FULL else ("after",))]
MODES = ("next", "first", "retry", "restart") if FULL else ("next",)
"""`next`: one kill in a checkpoint that follows others. `first`: in the first checkpoint of all. `retry`: the next
attempt is killed at the same point too. `restart`: the Spark server is killed and started again after the client."""
SERVER_POINTS = ["read:after", "runs.accounts:after", "seal:after"]
SERVER_POINTS += ["fold.accounts:after", "gate:before", "publish:after"] if FULL else []
"""All but the server that the last one leaves to other tests live for seconds; so a small collector does for them."""


@pytest.fixture(scope="module")
def lines(
    topics: Topics, spark_server: str, broker: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KilledPipelines]:
    with Zygote(tmp_path_factory.mktemp("commands")) as zygote:
        yield KilledPipelines(topics, broker, spark_server, tmp_path_factory, zygote)
    os.environ.pop("SWEEP_TOPIC", None)
    os.environ.pop("SWEEP_TOLD", None)


@pytest.fixture(scope="module")
def line(lines: KilledPipelines) -> KilledPipeline:
    return _begun(lines.make(KilledFold))


@pytest.fixture(scope="module")
def emitting_line(lines: KilledPipelines) -> KilledPipeline:
    return _begun(lines.make(KilledProcess))


def _begun(made: KilledPipeline) -> KilledPipeline:
    first = made.run()
    assert first.returncode == 0, first.stderr
    made.check()
    return made


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("point", POINTS)
def test_a_killed_client_is_repaired_by_a_plain_re_run(
    request: pytest.FixtureRequest, lines: KilledPipelines, point: str, mode: str
) -> None:
    print(f"seed {SEED}; TIDEMARK_TEST_SEED={SEED} pytest tests/faults/test_sweep.py -k 'client and {point}'")
    emits = point.rpartition(":")[0] in EMITTING_STEPS
    if mode == "first":
        line = lines.make(KilledProcess if emits else KilledFold)
    else:
        line = request.getfixturevalue("emitting_line" if emits else "line")
        line.send()
    crashed = line.run(crash_at=point)
    assert crashed.returncode == -signal.SIGKILL, f"{point} was not reached: {crashed.stderr}"
    if mode == "retry":
        # A sealed plan is published by the second run, which then never comes to the point again.
        line.run(crash_at=point)
    if mode == "restart":
        restart(request.getfixturevalue("spark_stack"))
    line.repair()


def restart(stack: Settings, java_options: str | None = None) -> None:
    """Kills the Spark server and starts it again at the same address, cold, perhaps with other options for its JVM."""
    server = recorded_service(stack.home, "spark")
    assert server is not None
    process, address = psutil.Process(server.pid), stack.spark_address
    process.kill()
    process.wait(60)
    options = stack.spark_java_options if java_options is None else java_options
    # It needs what the first one has in its environment: tests of S3 go on with it.
    with mock.patch.dict(os.environ, CREDENTIALS):
        control.up(stack.model_copy(update={"spark_java_options": options}), only=("spark",), warm=False)
    assert stack.spark_address == address, "a recorded port is kept while it is free"


@pytest.mark.parametrize("point", SERVER_POINTS)
def test_a_killed_spark_server_is_repaired_by_a_plain_re_run(
    line: KilledPipeline, spark_stack: Settings, point: str
) -> None:
    print(f"seed {SEED}; TIDEMARK_TEST_SEED={SEED} pytest tests/faults/test_sweep.py -k 'server and {point}'")
    if line.settings.spark_address != spark_stack.spark_address:
        missing("a Spark of its own: TIDEMARK_TEST_SPARK names a server that is not ours to kill")
    line.send()
    client = line.stopped_at(point)
    try:
        restart(spark_stack, None if point == SERVER_POINTS[-1] else QUICK_JAVA)
        os.kill(client.pid, signal.SIGCONT)
        done = client.wait()
    finally:
        client.kill()
    assert done.returncode in (0, 1), f"it needs the server no more, or fails with a documented code: {done.stderr}"
    line.repair()
