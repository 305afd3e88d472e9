"""Operators of a small batch that do not read each other run at the same time; the steps one by one are the oracle."""

import os
import random
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.engine.kafka_spark_pipeline import KafkaSparkPipeline, OpenAttempt
from tests.engine.test_folding import bodies
from tests.support.readings import ByDay, Device, Reading, pipeline
from tidemark import Fold, KafkaSource, Pipeline, Process, state
from tidemark.engine import candidate_checks, compute, early_work
from tidemark.errors import FencedError, StateOverflowError
from tidemark.model.checkpoint.segments import StateHandle

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
THREADS = "tidemark-operator"
UIDS = ("devices", "days", "seen")
LIMIT = next(f.limit for f in pipeline("t").schemas()["devices"].fields if f.name == "counts")
GOOD = {"device": "d", "at": "2020-01-01T00:00:00Z", "count": 1, "group": 1, "ok": True}


class Seen(state.Keyed):
    """How many readings of a device were seen."""

    readings: int = state.value(0)


def count(key: str, readings: Iterable[Reading], seen: Seen) -> None:
    """Counts the readings of a device."""
    seen.readings += sum(1 for _ in readings)


def three(line: KafkaSparkPipeline) -> KafkaSparkPipeline:
    """The line with two folds and a process, none of which reads another one."""
    line.pipeline = Pipeline(
        name="readings",
        source=KafkaSource(line.topic, Reading, event_time="at"),
        operators=[
            Fold("devices", key_by="device", state=Device),
            Fold("days", key_by=("group", "ok"), state=ByDay),
            Process("seen", key_by="device", state=Seen, function=count),
        ],
        max_dead_letters=1.0,
    )
    return line


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """The names of the threads that folded and that called a function."""
    found: dict[str, set[str]] = {"write_fold": set(), "run_process": set()}

    def noting(name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any, **named: Any) -> Any:
            found[name].add(threading.current_thread().name.rpartition("_")[0])
            return act(*given, **named)

        return noted

    for name in found:
        monkeypatch.setattr(compute, name, noting(name, getattr(compute, name)))
    return found


def _rows(line: KafkaSparkPipeline, handle: StateHandle) -> list[dict[str, Any]]:
    """The rows of a handle's files in the order of the files."""
    files = [(segment, file) for segment in handle for file in line.tables.live_files(segment)]
    found = [pq.read_table(line.root / segment.path / file.path, partitioning=None) for segment, file in files]
    return [row for table in found for row in table.to_pylist()]


def _outcome(line: KafkaSparkPipeline) -> dict[str, Any]:
    """The result of the next checkpoint, without names of files."""
    sealed = line.checkpoint()
    return {
        "acks": [(a.uid, a.read, a.applied, a.dead_lettered, a.keys) for a in sealed.acks],
        "runs": {a.uid: _rows(line, a.handle) for a in sealed.acks},
        "letters": {a.uid: _rows(line, a.dead_letters) for a in sealed.acks},
    }


def test_operators_at_the_same_time_do_as_one_after_the_other(
    line: KafkaSparkPipeline, threads: dict[str, set[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED} pytest {__file__}")
    chance = random.Random(SEED)
    other = KafkaSparkPipeline(line.spark, line.kafka.bootstrap, line.topics, line.root.parent / "other")
    other.topic = line.topic
    early, late = three(line), three(other)
    for _ in range(2):
        early.send([*bodies(chance, 60), b"{", {**GOOD, "group": None}])
        late.ends = dict(early.ends)
        found = _outcome(early)
        assert threads == {"write_fold": {THREADS}, "run_process": {THREADS}}
        assert found["letters"]["days"]
        with monkeypatch.context() as patched:
            patched.setattr(early_work, "_RECORDS", 0)
            assert found == _outcome(late)
        assert threads["write_fold"] == threads["run_process"] == {THREADS, ""}
        for names in threads.values():
            names.clear()
    assert [early.state(uid) for uid in UIDS] == [late.state(uid) for uid in UIDS]


def test_an_error_is_that_of_its_own_step(line: KafkaSparkPipeline) -> None:
    three(line).send([GOOD])
    line.checkpoint()
    before = [line.state(uid) for uid in UIDS]
    line.send([{**GOOD, "count": 2**62}] * 3)
    steps: list[tuple[str, str]] = []
    with pytest.raises(StateOverflowError, match=r"devices: total of key \(d\) does not fit"):
        line.execute(OpenAttempt(line.plan()), listener=lambda *step: steps.append(step))
    assert steps[-1] == ("fold.devices", "before")
    assert [line.state(uid) for uid in UIDS] == before
    assert not _working()
    line.starts = dict(line.ends)
    line.send([GOOD])
    line.checkpoint()
    assert [row["readings"] for row in line.state("devices")] == [2]


def test_a_fenced_attempt_leaves_no_thread_and_no_commit(line: KafkaSparkPipeline) -> None:
    three(line).send([GOOD])
    attempt = OpenAttempt(line.plan())

    def revoke(step: str, moment: str) -> None:
        attempt.revoked = attempt.revoked or (step, moment) == ("fold.devices", "after")

    with pytest.raises(FencedError):
        line.execute(attempt, listener=revoke)
    assert not _working()
    assert not list(line.root.rglob("_delta_log"))


@pytest.mark.parametrize("few", [0, candidate_checks.FEW_KEYS], ids=["by Spark", "in this process"])
def test_limits_hold_wherever_they_are_checked(
    few: int, line: KafkaSparkPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidate_checks, "FEW_KEYS", few)
    three(line).send([{**GOOD, "count": n} for n in range(LIMIT)])
    line.checkpoint()
    line.send([{**GOOD, "count": LIMIT - 1}])
    line.checkpoint()
    line.send([{**GOOD, "count": LIMIT}])
    with pytest.raises(StateOverflowError, match=r"^state overflow: devices: counts of key \(d\) does not fit"):
        line.checkpoint()
    assert not _working()


def _working() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(THREADS)]
