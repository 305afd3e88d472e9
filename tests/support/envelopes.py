"""A record with every one of Kafka's own fields, random ones, and an oracle that shares no code with the product."""

import json
import random
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tidemark import kafka
from tidemark.model.core.log_records import LogRecord
from tidemark.model.core.offsets import TopicPartition

QUOTED = 'it\'s \\ a "name"'


@dataclass(frozen=True, kw_only=True)
class Everything:
    """A field of the value between Kafka's own."""

    tenant: str = kafka.header("tenant")
    sent_at: datetime = kafka.timestamp()
    n: int
    raw_key: bytes | None = kafka.key()
    text_key: str | None = kafka.key()
    quoted: bytes | None = kafka.header(QUOTED)
    trace: bytes = kafka.header("trace")
    topic: str = kafka.topic()
    partition: int = kafka.partition()
    offset: int = kafka.offset()


def oracle(tp: TopicPartition, found: LogRecord) -> dict[str, Any] | str:
    """The fields of a record, or the reason why it is refused."""
    if found.value is None:
        return "null_value"
    if found.value == b"{}":
        return "missing_field: n"
    headers = dict(found.headers)  # of several, the last
    if "tenant" not in headers:
        return "missing_field: tenant"
    tenant, key = headers["tenant"], found.key
    if tenant is None:
        return "null_field: tenant"
    if not _is_text(tenant):
        return "invalid_utf8: tenant"
    if key is not None and not _is_text(key):
        return "invalid_utf8: text_key"
    if headers.get("trace") is None:
        return "null_field: trace" if "trace" in headers else "missing_field: trace"
    return {
        "tenant": str(tenant, "utf-8"),
        "sent_at": datetime.fromtimestamp(found.timestamp_ms / 1000, UTC),
        "n": json.loads(found.value)["n"],
        "raw_key": key,
        "text_key": None if key is None else str(key, "utf-8"),
        "quoted": headers.get(QUOTED),
        "trace": headers["trace"],
        "topic": tp.topic,
        "partition": tp.partition,
        "offset": found.offset,
    }


def _is_text(raw: bytes) -> bool:
    try:
        str(raw, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


_RAW = (b"a", b"", "é".encode(), b"\xff", None)
_NAMES = ("tenant", "trace", "Tenant", QUOTED)
_USUAL: tuple[list[tuple[str, bytes | None]], ...] = ([("tenant", b"t"), ("trace", b"\xfe")], [("trace", b"1")], [])
_VALUES = (b'{"n": 1}', b'{"n": -7}', b'{"n": 5, "topic": "x"}', b"{}", None)


def random_record(chance: random.Random) -> tuple[TopicPartition, LogRecord]:
    """A record at any place; many are good."""
    extra = [(chance.choice(_NAMES), chance.choice(_RAW)) for _ in range(chance.choice([0, 0, 1, 2, 4]))]
    return TopicPartition("t", chance.randrange(4)), LogRecord(
        offset=chance.randrange(2**40),
        timestamp_ms=chance.randrange(1_600_000_000) * 1000 + chance.choice([0, 125, 500]),
        key=chance.choice(_RAW),
        value=chance.choice(_VALUES),
        headers=tuple(chance.choice(_USUAL) + extra),
    )
