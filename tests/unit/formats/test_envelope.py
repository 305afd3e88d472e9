"""Kafka's own fields in records: declared, decoded, pinned, replayed, and found again by pages."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.envelopes import Everything, oracle, random_record
from tidemark import DeltaTable, Fold, KafkaSource, Pipeline, Process, formats, kafka, state, testing
from tidemark.errors import DeclarationError, UsageError
from tidemark.formats.envelope import decode_record, encode_record, pin_envelope, pinned_envelope
from tidemark.formats.record_format import BadRecord
from tidemark.model.core.log_records import LogRecord
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.core.types import type_from_json, type_to_json
from tidemark.web.source_lookup import by_key

AT = datetime(2024, 3, 1, 12, 30, 0, 5000, UTC)


@dataclass(frozen=True)
class Payment:
    """A payload, and what Kafka knows of it."""

    amount: int
    sent_at: datetime = kafka.timestamp()
    tenant: str | None = kafka.header("tenant")
    account: str = kafka.key()


@dataclass(frozen=True)
class OnlyKafka:
    """No field of the value."""

    account: str = kafka.key()
    offset: int = kafka.offset()


class Paid(state.Keyed):
    """What a key has paid."""

    total: int = state.sum("amount")
    last: datetime | None = state.max("sent_at")
    payer: str = state.latest("account")


class Offsets(state.Keyed):
    """Where a key was seen."""

    n: int = state.count()
    last: int | None = state.max("offset")


def _pipeline(*operators: Any, record: type = Payment, **more: Any) -> Pipeline:
    return Pipeline(
        name="payments", source=KafkaSource("payments", record, **more), operators=[*operators], max_dead_letters=1.0
    )


TENANTS = Fold("tenants", key_by="tenant", state=Paid)


@given(seed=st.integers(0, 2**32))
def test_every_field_means_what_the_oracle_says(seed: int) -> None:
    found = random_record(random.Random(seed))
    struct = KafkaSource("t", Everything).schema
    try:
        answer: Any = decode_record(formats.Json(), struct, *found)
    except BadRecord as error:
        answer = str(error)
    assert answer == oracle(*found)


@given(amount=st.integers(-9, 9), tenant=st.none() | st.text(), account=st.text(), ms=st.integers(0, 2**41))
def test_a_record_of_a_test_comes_back(amount: int, tenant: str | None, account: str, ms: int) -> None:
    source = KafkaSource("t", Payment)
    made = Payment(amount, datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms), tenant, account)
    sent = encode_record(source.format, source.schema, made)
    assert sent.timestamp_ms is not None
    held = LogRecord(offset=0, timestamp_ms=sent.timestamp_ms, key=sent.key, value=sent.value, headers=sent.headers)
    assert Payment(**decode_record(source.format, source.schema, TopicPartition("t", 0), held)) == made


def test_a_header_is_a_key_and_the_timestamp_is_folded() -> None:
    sent = [Payment(2, AT, "a", "x"), Payment(3, AT + timedelta(hours=1), "a", "y"), Payment(4, AT, "b", "z")]
    lost = [Payment(5, AT, None, "x"), b"{}", None, Payment(6, tenant="a")]
    found = testing.replay(_pipeline(TENANTS), [sent, testing.BARRIER, lost, testing.BARRIER])
    assert found.state("tenants") == {
        "a": Paid(total=5, last=AT + timedelta(hours=1), payer="y"),
        "b": Paid(total=4, last=AT, payer="z"),
    }
    reasons = [letter["reason"] for letter in found.dead_letters("tenants")]
    assert reasons == ["null_key", "missing_field: amount", "null_value", "null_field: account"]
    assert found.dead_letters("tenants")[0]["headers"] is None


def test_the_event_time_of_kafka_is_what_you_get_without_one() -> None:
    sent = [Payment(n, AT + timedelta(hours=-n), "a", "x") for n in range(4)]

    class Last(state.Keyed):
        """The latest by event time."""

        amount: int = state.latest("amount")

    made = [_pipeline(Fold("last", key_by="tenant", state=Last), event_time=name) for name in (None, "sent_at")]
    found = [testing.replay(p, [sent, testing.BARRIER]) for p in made]
    assert found[0].rows("last") == found[1].rows("last")
    assert [f.state("last")["a"].amount for f in found] == [0, 0]
    assert [c.sealed.facts for c in found[0].checkpoints] == [c.sealed.facts for c in found[1].checkpoints]


def test_a_function_gets_the_fields() -> None:
    @dataclass(frozen=True)
    class Seen:
        """What it emits."""

        where: str

    class Nothing(state.Keyed):
        """No state."""

        n: int = state.value(0)

    @dataclass(frozen=True)
    class Placed:
        """A record that knows its place."""

        amount: int
        topic: str = kafka.topic()
        partition: int = kafka.partition()
        offset: int = kafka.offset()
        raw: bytes | None = kafka.key()

    def watch(key: str, records: Iterable[Placed], kept: Nothing) -> Iterator[Seen]:
        for r in records:
            yield Seen(f"{key}-{r.partition}:{r.offset} {r.raw!r}")

    made = _pipeline(Process("watch", key_by="topic", state=Nothing, function=watch, emits=Seen), record=Placed)
    sink = Process("watch", key_by="topic", state=Nothing, function=watch, emits=Seen)
    assert sink == made.operators[0]
    counted = Fold("seen", key_by="where", input="watch", state=Offsetless)
    found = testing.replay(
        _pipeline(sink, counted, record=Placed), [[Placed(1), ("records", Placed(2), "k")], testing.BARRIER]
    )
    assert set(found.state("seen")) == {"payments-0:0 None", "payments-0:1 b'k'"}


class Offsetless(state.Keyed):
    """How many."""

    n: int = state.count()


def test_a_record_may_have_no_field_of_the_value() -> None:
    made = _pipeline(Fold("accounts", key_by="account", state=Offsets, deletes=True), record=OnlyKafka)
    sent = [OnlyKafka("a"), OnlyKafka("b"), ("records", b"\xff not JSON", "a"), ("records", None, "b"), b"no key"]
    found = testing.replay(made, [sent, testing.BARRIER])
    assert found.state("accounts") == {"a": Offsets(n=2, last=2)}
    assert [letter["reason"] for letter in found.dead_letters("accounts")] == ["null_field: account"]


def test_dead_letters_keep_their_headers_if_a_header_is_declared() -> None:
    found = testing.replay(_pipeline(TENANTS), [[Payment(1, AT, "a")], testing.BARRIER])
    (letter,) = found.dead_letters("tenants")
    assert (letter["reason"], letter["headers"]) == ("null_field: account", [{"key": "tenant", "value": b"a"}])
    plain = _pipeline(Fold("accounts", key_by="account", state=Offsets), record=OnlyKafka)
    (letter,) = testing.replay(plain, [[b"x"], testing.BARRIER]).dead_letters("accounts")
    assert letter["headers"] is None


def test_pages_find_the_records_of_a_key_without_the_declaration() -> None:
    (done,) = testing.replay(_pipeline(TENANTS), [[Payment(1, AT, "a", "x")], testing.BARRIER]).checkpoints
    fits = by_key(done.plan, "tenants", ["a"])
    assert fits is not None
    place = TopicPartition("payments", 0)
    headers: list[tuple[tuple[str, bytes | None], ...]] = [
        (("tenant", b"a"),),
        (("tenant", b"b"),),
        (),
        (("tenant", b"b"), ("tenant", b"a")),
        (("tenant", b"\xff"),),
    ]
    held = [LogRecord(offset=n, timestamp_ms=0, key=None, value=b"{", headers=h) for n, h in enumerate(headers)]
    assert [r.offset for r in held if fits(place, r)] == [0, 3]


def test_only_kafka_gives_a_record_its_place() -> None:
    with pytest.raises(UsageError, match="only Kafka gives a record its kafka.offset"):
        testing.replay(
            _pipeline(Fold("accounts", key_by="account", state=Offsets), record=OnlyKafka),
            [[OnlyKafka("a", 7)], testing.BARRIER],
        )


def test_types_with_origins_are_stored_and_pinned() -> None:
    struct = KafkaSource("t", Everything).schema
    assert type_from_json(type_to_json(struct)) == struct
    assert pinned_envelope(pin_envelope(struct)) == {n: of.origin for n, of in struct.fields if of.origin}
    assert _pipeline(TENANTS).formats["records"]["envelope"].count("kafka.header:tenant") == 1


def test_another_header_is_another_fingerprint() -> None:
    @dataclass(frozen=True)
    class Other:
        """The same fields, another header."""

        amount: int
        sent_at: datetime = kafka.timestamp()
        tenant: str | None = kafka.header("customer")
        account: str = kafka.key()

    assert _pipeline(TENANTS).fingerprint != _pipeline(TENANTS, record=Other).fingerprint


@dataclass(frozen=True)
class WrongTimestamp:
    """A timestamp is no number."""

    at: int = kafka.timestamp()


@dataclass(frozen=True)
class NullableOffset:
    """An offset is never null."""

    at: int | None = kafka.offset()


@dataclass(frozen=True)
class NumberHeader:
    """A header has bytes."""

    n: int = kafka.header("n")


@dataclass(frozen=True)
class CheckedHeader:
    """A header is any text: nothing checks that it is an identifier."""

    id: UUID = kafka.header("id")


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (CheckedHeader, r"CheckedHeader.id: kafka.header\('id'\) is no uuid"),
        (WrongTimestamp, r"WrongTimestamp.at: kafka.timestamp\(\) is no int"),
        (NullableOffset, r"NullableOffset.at: kafka.offset\(\) is never null"),
        (NumberHeader, r"NumberHeader.n: kafka.header\('n'\) is no int"),
    ],
)
def test_a_field_has_the_type_that_kafka_gives(record: type, why: str) -> None:
    with pytest.raises(DeclarationError, match=why):
        _ = KafkaSource("t", record).schema


def test_only_the_record_of_a_source_has_such_fields(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Nested:
        """A payload within a payload."""

        inner: Payment

    with pytest.raises(DeclarationError, match="fills only fields of the record of a source"):
        _ = KafkaSource("t", Nested).schema
    with pytest.raises(DeclarationError, match="fills only fields of the record of a source"):
        DeltaTable(str(tmp_path), Payment)


@pytest.mark.parametrize("name", ["", "a\nb"])
def test_a_header_has_a_name(name: str) -> None:
    with pytest.raises(DeclarationError, match="names no header"):
        kafka.header(name)


def test_headers_that_are_not_text_are_dead_letters() -> None:
    struct = KafkaSource("t", Payment).schema
    held = LogRecord(offset=0, timestamp_ms=0, key=b"k", value=b'{"amount": 1}', headers=(("tenant", b"\xff"),))
    with pytest.raises(BadRecord, match="invalid_utf8: tenant"):
        decode_record(formats.Json(), struct, TopicPartition("t", 0), held)
