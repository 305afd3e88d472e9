"""The same state whatever computes it: 1, 2, 8 and 64 tasks, one core, two cores, two executors, any change between.

The memory twin, which is held to plain Python elsewhere, says what every checkpoint has to come to.
"""

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.engine.rescaling import CHECKPOINTS, PIPELINE, UIDS, Job, Told, batches, lists_of, made_by
from tests.engine.wide_batch import FILES, KEYS, Wide, expected
from tests.support.spark import TwinPipeline
from tests.support.spark_cluster import QUICK_JAVA, ROOT, environment, standalone

# Six JVMs start, each of them cold: on a busy machine that takes minutes.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

ONE_CORE = [Job("one", 0, (1, 1, 1)), Job("moving", 0, (8,))]
CLUSTER = [Job("cluster", 0, (8, 1, 2)), Job("moving", 1, (2,))]
TWO_CORES = [Job("two", 0, (2, 2, 2)), Job("eight", 0, (8, 8, 64)), Job("moving", 2, (1,))]
"""The last ones by the server that all tests share. In this order: `moving` is handed from one master to the next."""
PARALLELISM = {"moving": (8, 2, 1)} | {
    j.timeline: j.tasks for j in (*ONE_CORE, *CLUSTER, *TWO_CORES) if len(j.tasks) > 1
}

WIDE = {"local[1]": 1, "spark": 16}
"""Tasks of the wide batch under each kind of master."""
CLIENT = "import pathlib, sys; from tests.engine.rescaling import main; main(*map(pathlib.Path, sys.argv[1:]))"


@dataclass(frozen=True)
class Answers:
    """What the clients say of all checkpoints by timeline, and of the wide batch; and the log of each executor."""

    told: list[Told]
    wide: list[Wide]
    executors: list[str]


@pytest.fixture(scope="module")
def answers(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    root = tmp_path_factory.mktemp("rescaling")
    with standalone(root / "cluster", workers=2) as address:
        found, wide = _client(root, {"local[1]": ONE_CORE, address: CLUSTER})
    found += [t for job in TWO_CORES for t in made_by(spark, root, job)]
    files_are_sorted([root / job.timeline for job in TWO_CORES])
    logs = [path.read_text() for path in sorted((root / "cluster").glob("worker-*/work/*/*/stderr"))]
    return Answers(found, wide, logs)


def _client(root: Path, jobs: Mapping[str, Sequence[Job]]) -> tuple[list[Told], list[Wide]]:
    """What a process makes under one master after the other; its JVM, the same one, starts but once."""
    folder = root / "client"
    env = environment(folder)
    conf = {"spark.driver.host": "127.0.0.1", "spark.driver.memory": "768m", "spark.local.dir": str(folder / "scratch")}
    conf |= {f"spark.{jvm}.extraJavaOptions": QUICK_JAVA for jvm in ("driver", "executor")}
    conf |= {"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.executorEnv.PYTHONPATH": env["PYTHONPATH"]}
    # What only a cluster heeds.
    conf |= {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2"}
    conf |= {"spark.scheduler.minRegisteredResourcesRatio": "1.0"}
    parts = [
        {"master": m, "conf": conf, "jobs": [asdict(j) for j in each], "tasks": WIDE[m.partition(":")[0]]}
        for m, each in jobs.items()
    ]
    asked = {"jars": str(ROOT / ".jars/spark"), "root": str(root), "parts": parts}
    (folder / "jobs.json").write_text(json.dumps(asked))
    command = [sys.executable, "-c", CLIENT, str(folder / "jobs.json"), str(folder / "answer")]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    answer: tuple[list[Told], list[Wide]] = pickle.loads((folder / "answer").read_bytes())  # noqa: S301  (written by our own child)
    files_are_sorted([root / j.timeline for each in jobs.values() for j in each])
    return answer


def files_are_sorted(roots: Sequence[Path]) -> None:
    schemas = PIPELINE.schemas()
    files = [f for root in roots for f in root.glob("*/state/*/*/runs/*/*.parquet")]
    assert files
    for file in files:
        keys = [k.name for k in schemas[file.parts[-5]].keys]
        rows = pq.read_table(file, columns=["_key_group", *keys], partitioning=None).to_pylist()
        order = [(row["_key_group"], *(row[k] for k in keys)) for row in rows]
        assert order == sorted(order), file


def _twin(tasks: Sequence[int]) -> Iterator[dict[str, Any]]:
    world = TwinPipeline(PIPELINE)
    for n, batch in zip(tasks, batches(), strict=True):
        world.parallelism = n
        made = world.checkpoint(batch)
        yield {
            "state": {uid: world.state(uid, made) for uid in UIDS},
            "emitted": world.emitted("people", made),
            "letters": world.letters("people", made),
            "lists": lists_of(made),
        }


def test_any_parallelism_on_any_master_gives_the_same_state(answers: Answers) -> None:
    told = answers.told
    assert len(told) == len(PARALLELISM) * CHECKPOINTS
    for timeline, tasks in PARALLELISM.items():
        mine = sorted((t for t in told if t.timeline == timeline), key=lambda t: t.number)
        assert tuple(t.tasks for t in mine) == tasks
        for t, twin in zip(mine, _twin(tasks), strict=True):
            assert (t.emitted, t.letters, t.lists) == (twin["emitted"], twin["letters"], twin["lists"])
            assert t.state == twin["state"]
    for number in range(CHECKPOINTS):
        there = [t for t in told if t.number == number]
        assert len({json.dumps(t.hashes, sort_keys=True) for t in there}) == 1
        # The order of elements is that of tasks; which elements there are does not depend on them.
        assert len({json.dumps({k: sorted(map(str, v)) for k, v in t.lists.items()}) for t in there}) == 1
    assert len(set(told[0].hashes.values())) == len(UIDS)


def test_a_wide_batch_is_folded_and_written_by_all_workers_and_its_state_is_that_of_one_core(answers: Answers) -> None:
    one, cluster = answers.wide
    assert one.totals == cluster.totals == expected()
    assert one.sha256 == cluster.sha256
    assert sum(one.file_rows) == sum(cluster.file_rows) == KEYS
    # One core merges in one task, and so writes one file.
    assert len(one.file_rows) == 1
    # One query reads and folds, and merges in as many tasks as there are files, none of them nearly empty.
    assert FILES in cluster.tasks, cluster.tasks
    assert len(cluster.file_rows) == FILES
    assert min(cluster.file_rows) > KEYS / FILES / 2
    assert len(answers.executors) == 2
    assert all(log.count("Finished task") > FILES for log in answers.executors)
