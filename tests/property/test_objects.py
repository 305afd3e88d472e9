"""Every object goes round the codec unchanged, and no flipped byte of any object goes unnoticed."""

import json
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.fold_oracle import PIPELINE, Reading
from tests.support.bank import BankPipeline
from tests.unit.coordinator.test_attempts import DECLINED
from tidemark.coordinator.records.objects import KINDS, decode, encode
from tidemark.errors import CorruptObjectError
from tidemark.model.checkpoint import codec
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.commits import Commit
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Expectation, Verdict
from tidemark.model.checkpoint.redrive import LetterRows, RedriveRecord, RedriveWithdrawal
from tidemark.model.checkpoint.refused_records import DeliveryFailure, SkippedRecord
from tidemark.model.checkpoint.segments import Segment, StateHandle
from tidemark.model.checkpoint.store_objects import (
    AnnouncementRecord,
    Closing,
    CompactionRecord,
    DeliveryRecord,
    Failure,
    Genesis,
    JobEnd,
    JobRecord,
    OffsetReport,
    RunRecord,
    StopRecord,
)
from tidemark.model.core import canonical
from tidemark.model.core.offsets import OffsetRange, OffsetRanges, TopicPartition
from tidemark.model.retention.erasure import ErasureEnd, ErasureRecord
from tidemark.model.retention.promotion_claims import PromotionClaim
from tidemark.model.retention.publication_records import (
    PublicationBegun,
    PublicationDone,
    PublicationMode,
    Replaceable,
)
from tidemark.model.retention.savepoint import SavepointRequest, TombstoneKind
from tidemark.model.retention.sweep_records import HoldRecord, RetentionRecord, SweepRecord, SweptRecord
from tidemark.model.schema.registry_schemas import StoredSchema


@cache
def written() -> dict[str, tuple[str, bytes]]:
    """One object of every kind: kind → (key, bytes)."""
    bank = BankPipeline()
    bank.send(3)
    bank.coordinator.abort(bank.plan(), DECLINED)
    bank.complete()
    put = bank.coordinator.objects.put
    handle = StateHandle((Segment(after=0, through=2, path="a/b/runs", version=1, rows=1, bytes=2, files=1),))
    put(
        keys.slot_key("t1", 2),
        Closing(timeline="t1", sequence=2, successor="t2", why="ünïcode \u2028", write_id="w"),
    )
    put(
        keys.slot_key("t2", 1),
        Genesis(
            timeline="t2",
            sequence=1,
            parent=2,
            parent_timeline="t1",
            ranges=OffsetRanges({TopicPartition("a-b", 3): OffsetRange(1, 2)}),
            topic_ids={"a-b": "id"},
            handles={"u": handle},
            dead_letters={"u": StateHandle()},
            schemas=PIPELINE.schemas(),
            logical_time_ms=1,
            watermark_ms=None,
            covered_until_ms=None,
            why="restore",
            write_id="w",
            request="r",
            closes="t1",
            left_behind={"v": handle},
            renamed={"old": "u"},
            at_ms=1,
        ),
    )
    commit = Commit(path="a/b/base", version=0, write_id="w", sha256="0" * 64)
    put(
        keys.compaction_key("u", "j"),
        CompactionRecord(
            uid="u",
            job="j",
            checkpoint=2,
            timeline="t1",
            input=handle,
            output=handle,
            commits=(commit,),
            write_id="w",
        ),
    )
    put(
        keys.job_key("j"),
        JobRecord(job="j", kind="compaction", uid="u", checkpoint=2, opened_at_ms=1, write_id="w"),
    )
    put(keys.job_end_key("j"), JobEnd(job="j", done=True, at_ms=2, write_id="w"))
    run = RunRecord(
        run="dag/r",
        interval_end_ms=5,
        inputs=("in",),
        topic_ids={"t": "i"},
        starts={TopicPartition("t", 0): 0},
        ends={TopicPartition("t", 0): 9},
        whole=True,
        at_ms=1,
        write_id="w",
    )
    put(keys.run_key("0123", 1), run)
    put(keys.announcement_key(2), AnnouncementRecord(checkpoint=2, at_ms=1, write_id="w"))
    put(keys.delivery_key("s", 2), DeliveryRecord(sink="s", checkpoint=2, records=3, at_ms=1, write_id="w"))
    failure = DeliveryFailure(
        sink="s",
        topic="t",
        checkpoint=2,
        what="w",
        next="n",
        record="r",
        size=1,
        why="y",
        ahead="h",
        at_ms=1,
        write_id="w",
    )
    put(keys.delivery_failure_key("s", 1), failure)
    skipped = SkippedRecord(sink="s", record="r", size=1, why="y", owner="o", note="", at_ms=1, write_id="w")
    put(keys.skip_key("s", "r"), skipped)
    report = OffsetReport(input="in", group="g", checkpoint=2, failure=None, at_ms=1, write_id="w")
    put(keys.report_key("in", 2), report)
    put(keys.stop_key(1), StopRecord(stopped=True, why="x", at_ms=1, write_id="w"))
    bank.savepoints.create(SavepointRequest(name="before-upgrade", owner="me", origin="o", checkpoint=2))
    bank.savepoints.tombstones.raise_for(TombstoneKind.CHECKPOINT, "chk-9", "x")
    put(keys.retention_key(1), RetentionRecord(rule="keep_last(2)", at_ms=1, write_id="w"))
    hold = HoldRecord(savepoint="s", revision=1, why="case 7", owner="me", released=False, at_ms=1, write_id="w")
    put(keys.hold_key("s", 1), hold)
    number = ErasureRecord(
        number=1,
        uids=("u",),
        key=("k",),
        ends={TopicPartition("a", 0): 3},
        forever=False,
        owner="o",
        at_ms=1,
        write_id="w",
    )
    put(keys.erasure_key(1), number)
    end = ErasureEnd(number=1, restore_points=("chk-1",), files=1, rows=2, at_ms=2, write_id="w")
    put(keys.erasure_end_key(1), end)
    free = {"bank/state/u/t1-1/runs/1.1/part-0.parquet": 7}
    swept = SweepRecord(rule="keep_last(2)", released=("chk-1",), free=free, grace_ms=0, at_ms=1, write_id="w")
    put(keys.sweep_key(1), swept)
    fate = PromotionClaim(timeline="f", number=1, closes="t1", sequence=4, at_ms=1, write_id="w")
    put(keys.promotion_claim_key("f", 1), fate)
    put(keys.swept_key(1), SweptRecord(files=1, bytes=2, log_files=0, at_ms=2, write_id="w"))
    begun = PublicationBegun(
        name="p",
        number=1,
        step=3,
        uid="u",
        kind="delta-mirror",
        options={"path": "/lake/ü"},
        mode=PublicationMode.REBUILD,
        replaces=Replaceable.UNTOUCHED,
        previous=2,
        before=0,
        checkpoint=2,
        timeline="t1",
        lineage="l",
        previous_lineage="",
        erasures=1,
        at_ms=1,
        write_id="w",
    )
    put(keys.publication_key("p", 1), begun)
    done = PublicationDone(name="p", number=1, version="4", inserted=1, deleted=2, bytes=3, at_ms=2, write_id="w")
    put(keys.publication_done_key("p", 1), done)
    rows = LetterRows(
        checkpoint=1,
        topic_id="x",
        partition=TopicPartition("t", 0),
        offsets=(OffsetRange(4, 6),),
    )
    asked = RedriveRecord(
        number=1,
        timeline="t1",
        uid="u",
        rows=(rows,),
        out_of_order=False,
        origin="cli",
        owner="me",
        note="",
        at_ms=1,
        write_id="w",
    )
    put(keys.redrive_key(1), asked)
    schema = StoredSchema(registry="default", id=7, type="AVRO", text="0" * 64, references=(("shop.Money", "1" * 64),))
    put(keys.schema_key("default", 7), schema)
    put(keys.redrive_withdrawal_key(1), RedriveWithdrawal(number=1, owner="me", at_ms=2, write_id="w"))
    return {json.loads(raw)["kind"]: (key, raw) for key, raw in bank.store.objects.items() if key.endswith(".json")}


def test_every_kind_is_written_and_reads_back_to_the_same_bytes() -> None:
    assert set(written()) == set(KINDS.values())
    for kind, (key, raw) in written().items():
        assert encode(decode(kind, key, raw)) == raw


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(sorted(KINDS.values())), st.integers(0), st.integers(1, 255))
def test_a_flipped_byte_of_any_object_is_noticed_and_named(kind: str, place: int, mask: int) -> None:
    key, raw = written()[kind]
    damaged = bytearray(raw)
    damaged[place % len(raw)] ^= mask
    with pytest.raises(CorruptObjectError, match="object damaged") as caught:
        decode(kind, key, bytes(damaged))
    assert key in caught.value.what


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(KINDS.values())), st.integers(0))
def test_a_truncated_object_is_noticed_and_named(kind: str, length: int) -> None:
    key, raw = written()[kind]
    with pytest.raises(CorruptObjectError, match="object damaged") as caught:
        decode(kind, key, raw[: length % len(raw)])
    assert key in caught.value.what


def test_another_format_version_is_named() -> None:
    raw = json.loads(written()["stop"][1])
    del raw["checksum"]
    raw["format"] = 99
    raw["checksum"] = canonical.checksum(raw)
    body = json.dumps(raw, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
    with pytest.raises(CorruptObjectError, match="its format is 99, this release reads 1"):
        canonical.decode("stop", "stops/1.json", body)


def test_an_object_of_another_kind_is_named() -> None:
    with pytest.raises(CorruptObjectError, match="it is a stop, not a job"):
        canonical.decode("job", "jobs/j.json", written()["stop"][1])


texts = st.text(max_size=8)
expectations = st.builds(Expectation, frame=texts, type=texts, success=st.booleans(), severity=texts, detail=texts)
failures = st.builds(
    Failure,
    reason=st.sampled_from(FailureReason),
    message=texts,
    next=texts,
    verdict=st.none()
    | st.builds(Verdict, passed=st.booleans(), error=st.none() | texts, expectations=st.lists(expectations).map(tuple)),
)


@given(failures)
def test_values_go_round_the_codec(value: Failure) -> None:
    raw = json.loads(json.dumps(codec.to_json(value)))
    assert codec.from_json(Failure, raw, "here") == value


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"stopped": 1, "why": "x", "at_ms": 1, "write_id": "w"},
        {"stopped": True, "why": "x", "at_ms": True, "write_id": "w"},
        {"stopped": True, "why": None, "at_ms": 1, "write_id": "w"},
        {"stopped": True, "why": "x", "at_ms": 1, "write_id": "w", "more": 1},
    ],
)
def test_a_body_of_another_shape_is_damage(body: dict[str, object]) -> None:
    with pytest.raises(CorruptObjectError, match=r"stops/1\.json"):
        codec.from_json(StopRecord, body, "stops/1.json")


def test_the_record_type_is_part_of_no_object() -> None:
    assert all(Reading.__name__.encode() not in raw for _, raw in written().values())
