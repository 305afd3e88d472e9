"""Strict decoding: every laxness of `from_json` has a case; Spark and the Python twin agree on reasons and values."""

import json
import os
import random
from contextlib import redirect_stdout
from decimal import Decimal
from io import StringIO

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.engine.conftest import Raw
from tests.engine.decoding_cases import CASES, GOOD, Case
from tests.support.readings import LOGICAL_TIME_MS, Reading, pipeline, plan_of
from tidemark.engine.read.frames import decode
from tidemark.formats import BadRecord, Json
from tidemark.model.checkpoint.dead_letters import Reason, kind_of
from tidemark.model.core.offsets import TopicPartition
from tidemark.model.core.types import record_type

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
RECORD = record_type(Reading)
SPLINTERS = [b"0", b"-", b".5", b"e1", b'"', b",", b"{", b"}", b"\\u", b"\xc3", b" "]
_found: dict[str, str | None] = {}


def reasons(raw: Raw, values: list[bytes | None]) -> list[str | None]:
    made = pipeline("t")
    frame = decode(raw(values), made, plan_of(made, 1, {TopicPartition("t", 0): (0, len(values))}), "records")
    return [row["_reason"] for row in frame.selectExpr("_reason", "offset").orderBy("offset").collect()]


def twin(value: bytes | None) -> str | None:
    try:
        Json().decode_one(value, RECORD)
    except BadRecord as error:
        return str(error)
    return None


@pytest.mark.parametrize("case", CASES, ids=[c[0] for c in CASES])
def test_spark_decodes_strictly(case: Case, raw: Raw) -> None:
    if not _found:
        _found.update(zip([c[0] for c in CASES], reasons(raw, [c[1] for c in CASES]), strict=True))
    assert _found[case[0]] == case[2]


@pytest.mark.parametrize("case", CASES, ids=[c[0] for c in CASES])
def test_the_twin_decodes_strictly(case: Case) -> None:
    if case[2] == Reason.IN_THE_FUTURE.value:
        assert LOGICAL_TIME_MS
        return
    assert twin(case[1]) == case[2]


def test_every_reason_has_a_case() -> None:
    seen = {kind_of(reason) for _, _, reason in CASES if reason}
    assert {reason.value for reason in seen} == {*Json.reasons, Reason.IN_THE_FUTURE.value}


def test_damaged_records_get_the_same_reason_from_spark_and_the_twin(raw: Raw) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED} pytest {__file__}")
    chance = random.Random(SEED)
    values = [_damaged(chance, chance.choice(CASES)[1] or GOOD) for _ in range(3000)]
    for value, spark_says in zip(values, reasons(raw, list(values)), strict=True):
        expected = twin(value)
        if spark_says != expected and {spark_says, expected} != {Reason.IN_THE_FUTURE.value, None}:
            pytest.fail(f"{value[:300]!r}: Spark says {spark_says}, the twin {expected}; seed {SEED}")


def test_many_records_are_decoded_in_workers_as_by_expressions(raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED} pytest {__file__}")
    chance = random.Random(SEED)
    values = [value for _, value, _ in CASES] + [_damaged(chance, GOOD) for _ in range(300)]
    made = pipeline("t")
    plan = plan_of(made, 1, {TopicPartition("t", 0): (0, len(values))})

    def rows() -> list[dict[str, object]]:
        time = "CASE WHEN _reason IS NULL THEN event_time END AS event_time"  # of a bad record it may be anything
        decoded = decode(raw(values), made, plan, "records").orderBy("offset")
        found = decoded.selectExpr("offset", time, "_reason", "record", "_bytes", "key", "value").toArrow()
        return found.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]

    by_expressions = rows()
    monkeypatch.setattr(Json, "workers_from", len(values))
    assert "MapInArrow" in _plan_text(decode(raw(values), made, plan, "records"))
    assert rows() == by_expressions
    assert sum(row["_reason"] is None for row in by_expressions) > 20


def _plan_text(frame: DataFrame) -> str:
    found = StringIO()
    with redirect_stdout(found):
        frame.explain()
    return found.getvalue()


def test_good_values_arrive_unchanged(raw: Raw, spark: SparkSession) -> None:
    body = {
        "device": 'q"\\\u00e9\U0001f600', "at": "2020-01-01T00:00:00.123456+05:30", "count": -5, "amount": "12.30",
        "degrees": 0.1, "ok": False, "day": "2020-02-29", "raw": "aGk=", "tags": ["b", "a"], "numbers": [1, None],
        "place": {"city": "Ulm"}, "places": [{"city": "Bonn", "floor": 3}], "kind": "out's\\ide", "grade": 2,
        "mark": "12345678-90ab-CDEF-1234-567890abcdef", "opens": "09:30", "floors": [{}, {"number": 5}], "share": None,
        "labels": {"b": 1, "\U0001f600": 3, "\uffff": 4, "a": None}, "rooms": {"out's\\ide": [{}], "inside": []},
    }  # fmt: skip
    made = pipeline("t")
    plan = plan_of(made, 1, {TopicPartition("t", 0): (0, 1)})
    frame = decode(raw([json.dumps(body).encode()]), made, plan, "records")
    found = frame.selectExpr("record.*").toArrow().to_pylist(maps_as_pydicts="strict")[0]
    assert found == Json().decode_one(json.dumps(body).encode(), RECORD)
    assert found["mark"] == "12345678-90ab-cdef-1234-567890abcdef"
    assert (found["opens"], found["closes"], found["unit"]) == ("09:30:00", "18:30:00", "°C")
    assert found["floors"] == [{"number": 0, "kind": "inside"}, {"number": 5, "kind": "inside"}]
    assert (found["note"], found["price"], found["share"]) == ('it\'s \\ "so"', Decimal("1.50"), None)
    assert list(found["labels"]) == ["a", "b", "\uffff", "\U0001f600"]
    assert found["rooms"] == {"inside": [], "out's\\ide": [{"number": 0, "kind": "inside"}]}
    assert found["degrees"] == 0.1 and found["place"] == {"city": "Ulm", "floor": None}


def _damaged(chance: random.Random, value: bytes) -> bytes:
    if len(value) > 2000:
        return GOOD
    damaged = bytearray(value)
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(damaged) + 1)
        match chance.randrange(3):
            case 0:
                del damaged[at : at + chance.randrange(1, 4)]
            case 1:
                damaged[at:at] = chance.choice(
                    [b"0", b"-", b".5", b"e1", b'"', b",", b"{", b"}", b"\\u", b"\xc3", b" "]
                )
            case _:
                damaged[at : at + 1] = bytes([chance.randrange(32, 127)])
    return bytes(damaged)
