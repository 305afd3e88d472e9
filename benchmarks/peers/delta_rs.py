"""MERGE of delta-rs, without a JVM: librdkafka reads, Arrow decodes, DuckDB folds, and delta-rs merges into a table.

The offsets are written to a file next to the table after the commit, as in `batch`, which favours the peer.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.json as pj
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable

from benchmarks.peers.batch import ends_of
from benchmarks.peers.places import COLUMNS, PARTITIONS, Place

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("updates", pa.int64()),
        ("amount", pa.int64()),
        ("last_at", pa.timestamp("us", tz="UTC")),
    ]
)
_READ = pa.schema([("amount", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
_FOLD = """
SELECT key, count(amount) AS updates, CAST(sum(amount) AS BIGINT) AS amount, max("at") AS last_at,
       any_value(cut) IS NOT NULL AS cleared
FROM (SELECT *, max(CASE WHEN amount IS NULL THEN "offset" END) OVER (PARTITION BY key) AS cut FROM records)
WHERE cut IS NULL OR "offset" >= cut
GROUP BY key
"""
_CHANGED = {
    "updates": "CASE WHEN s.cleared THEN s.updates ELSE t.updates + s.updates END",
    "amount": "CASE WHEN s.cleared THEN s.amount ELSE t.amount + coalesce(s.amount, 0) END",
    "last_at": "CASE WHEN s.cleared THEN s.last_at ELSE greatest(t.last_at, s.last_at) END",
}
_AT_ONCE = 10_000


@dataclass
class DeltaRsPeer:
    """One table, changed once per run.

    Attributes:
        place: the topic and folder of the peer.
    """

    place: Place
    starts: dict[str, int] = field(init=False, default_factory=lambda: {str(p): 0 for p in range(PARTITIONS)})

    def __post_init__(self) -> None:
        self.table = f"{self.place.folder}/table"
        self.offsets = Path(self.place.folder, "offsets.json")
        DeltaTable.create(self.table, SCHEMA)
        self.consumer = Consumer(
            {
                "bootstrap.servers": self.place.bootstrap,
                "group.id": "delta-rs",
                "enable.auto.commit": False,
                "enable.partition.eof": False,
                "fetch.wait.max.ms": 1,
                "queued.min.messages": 1_000_000,
            }
        )

    def take(self) -> None:
        """Processes one batch, unless the topic has no new records."""
        ends = ends_of(self.place)
        if ends == self.starts:
            return
        merge = DeltaTable(self.table).merge(self._folded(ends), "t.key = s.key", source_alias="s", target_alias="t")
        merge = merge.when_matched_delete("s.cleared AND s.updates = 0").when_matched_update(_CHANGED)
        merge.when_not_matched_insert({name: f"s.{name}" for name in COLUMNS}, "s.updates > 0").execute()
        self.offsets.write_text(json.dumps(ends))
        self.starts = ends

    def upkeep(self) -> None:
        """Does nothing: the table is left as the batch wrote it."""

    def rows(self) -> pa.Table:
        """Reads the table."""
        return DeltaTable(self.table).to_pyarrow_table().select(COLUMNS)

    def close(self) -> None:
        """Closes the consumer."""
        self.consumer.close()

    def _folded(self, ends: dict[str, int]) -> pa.Table:
        records = self._records(ends)
        with duckdb.connect(config={"threads": "2"}) as connection:
            connection.register("records", records)
            found: pa.Table = connection.sql(_FOLD).to_arrow_table()
            return found

    def _records(self, ends: dict[str, int]) -> pa.Table:
        left = {p: ends[p] - self.starts[p] for p in ends if ends[p] > self.starts[p]}
        self.consumer.assign([TopicPartition(self.place.topic, int(p), self.starts[p]) for p in left])
        keys, offsets, values = list[str](), list[int](), list[bytes]()
        while left:
            for message in self.consumer.consume(_AT_ONCE, timeout=30):
                if message.error():
                    raise RuntimeError(str(message.error()))
                partition, offset, key = str(message.partition()), message.offset(), message.key()
                assert offset is not None
                assert key is not None
                if offset >= ends[partition]:
                    continue
                keys.append(key.decode())
                offsets.append(offset)
                values.append(message.value() or b"{}")
                left[partition] -= 1
                if not left[partition]:
                    del left[partition]
        text = b"\n".join(values)
        options = pj.ParseOptions(explicit_schema=_READ, unexpected_field_behavior="ignore")
        found = pj.read_json(pa.BufferReader(text), pj.ReadOptions(block_size=8 * 2**20), options)
        return found.append_column("key", pa.array(keys)).append_column("offset", pa.array(offsets))
