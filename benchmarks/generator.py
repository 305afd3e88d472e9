"""Deterministic updates: a seed always yields the same records, and the expected state needs no project code.

`benchmarks.workload` adds new keys, deletes, and key choices other than `uniform`.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from confluent_kafka import Producer

START_MS = 1_356_998_400_000  # 2013-01-01T00:00:00Z
FLUSH_EVERY = 200_000


@dataclass(frozen=True)
class Updates:
    """A batch of updates: key numbers and amounts, one record per element.

    Attributes:
        keys: key numbers.
        amounts: the amount that each record adds; where `deletes` is given, also the second of its event time.
        deletes: which records are tombstones, or None for a topic without them, whose records have no message key.
    """

    keys: np.ndarray
    amounts: np.ndarray
    deletes: np.ndarray | None = None


def first(keys: int) -> Updates:
    """One update for every key, in order of key number."""
    numbers = np.arange(keys, dtype=np.int64)
    return Updates(numbers, numbers % 97)


def uniform(keys: int, count: int, seed: int) -> Updates:
    """`count` updates of uniformly chosen keys."""
    chance = np.random.default_rng(seed)
    return Updates(chance.integers(0, keys, count), chance.integers(0, 1000, count))


def key_text(number: int) -> str:
    """A key of sixteen hexadecimal characters that spread like a hash."""
    return hashlib.blake2b(number.to_bytes(8, "big"), digest_size=8).hexdigest()


def produce(bootstrap: str, topic: str, updates: Updates, partitions: int = 4) -> None:
    """Writes the updates; a record's partition is its key number modulo `partitions`."""
    send(bootstrap, topic, ((n % partitions, key, value, START_MS) for n, key, value in _records(updates)))


def send(bootstrap: str, topic: str, records: Iterable[tuple[int, bytes | None, bytes | None, int]]) -> None:
    """Writes records: partition, message key, value and timestamp in milliseconds since 1970.

    Raises:
        RuntimeError: the broker did not acknowledge all records within two minutes.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "queue.buffering.max.messages": 1_000_000,
            "enable.idempotence": True,
        }
    )
    for n, (partition, key, value, timestamp) in enumerate(records):
        producer.produce(topic, value, key, partition=partition, timestamp=timestamp)
        if n % FLUSH_EVERY == FLUSH_EVERY - 1:
            producer.flush()
    if producer.flush(120):
        raise RuntimeError(f"{topic}: not everything was produced")


def _records(updates: Updates) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Yields the key number, message key and value of every record."""
    pairs = zip(updates.keys.tolist(), updates.amounts.tolist(), strict=True)
    if updates.deletes is None:
        for number, amount in pairs:
            yield number, None, _value(key_text(number), amount, 0)
        return
    for (number, amount), deleted in zip(pairs, updates.deletes.tolist(), strict=True):
        key = key_text(number)
        yield number, key.encode(), None if deleted else _value(key, amount, amount)


def _value(key: str, amount: int, second: int) -> bytes:
    at = f"2013-01-01T00:{second // 60:02}:{second % 60:02}Z"
    return f'{{"key":"{key}","amount":{amount},"at":"{at}"}}'.encode()


def expected(batches: Iterator[Updates], keys: int) -> tuple[np.ndarray, np.ndarray]:
    """(number of updates, sum of amounts) per key number: plain numpy, no project code."""
    counts, sums = np.zeros(keys, np.int64), np.zeros(keys, np.int64)
    for batch in batches:
        np.add.at(counts, batch.keys, 1)
        np.add.at(sums, batch.keys, batch.amounts)
    return counts, sums
