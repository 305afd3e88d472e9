"""Windows that close in a bucket: a run is written, read back, and replaced; and attempts are killed on the way."""

import json
import random
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.bucket_lines import BucketLines, BucketPipeline
from tests.support.kafka import Sent, Topics
from tests.support.killed_pipeline import PARTITIONS, SEED
from tests.support.prerequisites import needs
from tests.support.s3 import S3Server, one_store
from tidemark.operations import reads, sinks
from tidemark.settings import load_settings

pytestmark = [
    one_store,
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.slow,
    needs(any((load_settings().jar_folder / "s3").glob("*.jar")), "make setup-s3 has not fetched the jars for S3"),
]
START = datetime(2024, 1, 1, tzinfo=UTC)
SIZE = timedelta(minutes=10)


class Closings(BucketPipeline):
    """Sales whose time moves on by up to half an hour per batch; brute force is the oracle."""

    pipeline = "closings"
    sold: list[tuple[str, int, datetime]]
    until: datetime

    def send(self, count: int = 40) -> None:
        self.sold, self.until = getattr(self, "sold", []), getattr(self, "until", START)
        chance = random.Random(SEED + len(self.sold))
        batch = [
            (chance.choice("abc"), chance.randrange(100), self.until + timedelta(seconds=chance.randrange(1800)))
            for _ in range(count)
        ]
        self.until = max(at for _, _, at in batch)
        # Each partition ends with the greatest time, so no record is late and the watermark is known.
        batch += [("d", 1, self.until) for _ in range(PARTITIONS)]
        self.sold += batch
        values = [json.dumps({"shop": s, "cents": c, "at": at.isoformat()}).encode() for s, c, at in batch]
        self.topics.produce(self.topic, [Sent(value, partition=n % PARTITIONS) for n, value in enumerate(values)])
        self.history.sent += [(n % PARTITIONS, -1, value) for n, value in enumerate(values)]

    def check_state(self) -> None:
        expected: dict[tuple[str, datetime], list[int]] = defaultdict(list)
        for shop, cents, at in self.sold:
            expected[shop, START + (at - START) // SIZE * SIZE].append(cents)
        closed = {key: found for key, found in expected.items() if key[1] + SIZE <= self.until}
        rows = sinks.read_sink(self.context, "closings", "sold").to_pylist()
        told = [((r["shop"], r["window_start"]), r["n"], r["cents"]) for r in rows]
        assert sorted(told) == sorted((key, len(found), sum(found)) for key, found in closed.items())
        kept = reads.read_state(self.context, "closings", "sold").to_pylist()
        still = {(r["shop"], r["window_start"]): (r["n"], r["cents"]) for r in kept}
        assert still == {key: (len(f), sum(f)) for key, f in expected.items() if key not in closed}
        assert closed and still


@pytest.fixture
def line(
    topics: Topics, spark_server: str, broker: str, s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Closings]:
    with BucketLines(topics, broker, spark_server, s3_server, tmp_path_factory).open(Closings, "closings") as made:
        yield made


def test_windows_close_in_a_bucket_whatever_is_killed_on_the_way(line: Closings) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED}")
    line.repair()
    for point in ("read:after", "fold.sold:after", "commit.runs.sold:after"):
        line.send()
        killed = line.run(crash_at=point)
        assert killed.returncode == -9, killed.stderr
        line.repair()
    found = {key for key in line.bucket.objects("house/closings/state/sold/") if key.endswith(".parquet")}
    newest = reads.get_checkpoint(line.context, "closings").handles["sold"]
    orphans = {key.split("/")[-2] for key in found} - {""}
    assert sum(s.files for s in newest) < len(found), "attempts that were killed left files"
    assert len(orphans) >= 4
