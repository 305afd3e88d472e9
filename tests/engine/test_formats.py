"""Every format of the registry in Spark: the same reasons and values as in Python, for the same bytes."""

import os
import random
from importlib import import_module
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from tests.engine.conftest import Raw
from tests.support.format_cases import NAMES, case_of, damaged
from tidemark.engine.session.python_workers import decode_values

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))


@pytest.mark.parametrize("name", NAMES)
def test_spark_and_python_decode_alike(name: str, raw: Raw, spark: SparkSession) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED} pytest {__file__}")
    case, chance = case_of(name), random.Random(SEED)
    values = [None, b"", *case.bytes, *(damaged(chance, chance.choice(case.bytes)) for _ in range(3000))]
    values += [chance.randbytes(chance.randrange(1, 6)) for _ in range(1000)]
    frame = decode_values(raw(values), case.format, case.format.bind(case.record)).orderBy("offset")
    rows = (
        frame.selectExpr("offset", "_fault", "CASE WHEN _fault IS NULL THEN _good END AS _good")
        .toArrow()
        .to_pylist(maps_as_pydicts="strict")
    )
    assert [row["offset"] for row in rows] == list(range(len(values)))
    for value, row in zip(values, rows, strict=True):
        assert (row["_fault"] or row["_good"]) == case.answer(value), f"{value!r}; seed {SEED}"


AUTHOR = """
from dataclasses import dataclass

from tidemark import formats
from $helper import shout


@dataclass(frozen=True)
class Shouted(formats.RecordFormat):
    name = "shouted"
    reasons = ("null_value", "empty")

    def decode_one(self, value, record):
        if value is None:
            raise formats.BadRecord("null_value")
        if not value:
            raise formats.BadRecord("empty")
        return {"text": shout(value.decode())}

    def encode(self, record):
        return record.text.encode()
"""


def test_a_format_of_an_author_travels_to_workers_with_the_files_beside_it(
    raw: Raw, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper, module = f"helper_{uuid4().hex[:8]}", f"author_{uuid4().hex[:8]}"
    (tmp_path / f"{helper}.py").write_text("def shout(text):\n    return text.upper()\n")
    (tmp_path / f"{module}.py").write_text(AUTHOR.replace("$helper", helper))
    monkeypatch.syspath_prepend(str(tmp_path))
    shouted = import_module(module).Shouted()
    frame = decode_values(raw([b"a", None, b""]), shouted, case_of("text").format.bind(case_of("text").record))
    rows = frame.orderBy("offset").select("_fault", "_good").toArrow().to_pylist()
    assert [row["_fault"] for row in rows] == [None, "null_value", "empty"]
    assert rows[0]["_good"] == {"text": "A"}
