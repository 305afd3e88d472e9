"""Great Expectations on pandas and on Spark give one verdict on every expectation that a replay evaluates."""

import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pytest
from pyspark.sql import SparkSession

from tests.support.spark import SparkPipeline, TwinPipeline
from tidemark import Fold, KafkaSource, Pipeline, state
from tidemark.model.checkpoint.manifest import Checkpoint, Expectation
from tidemark.state import Precision
from tidemark.testing.twin.memory import MemoryCompute
from tidemark.testing.twin.pandas_gate import ALIKE

DAY = datetime(2020, 1, 1, tzinfo=UTC)


def expectations() -> Any:
    """Great Expectations, which takes seconds to import, and imports modules that Python deprecates."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import great_expectations.expectations as gxe
    return gxe


Cents = Annotated[Decimal, Precision(12, 2)]


@dataclass(frozen=True)
class Inner:
    """A nested value."""

    city: str


@dataclass(frozen=True)
class Sample:
    """A record with a field of every kind that a gate may name."""

    id: str
    group: int
    int: int | None
    float: float | None
    decimal: Cents | None
    text: str | None
    bytes: bytes | None
    bool: bool | None
    date: date | None
    timestamp: datetime
    list: list[str] | None
    struct: Inner | None
    missing: Cents | None


class Group(state.Keyed):
    """The state per group."""

    n: int = state.count()
    total: int | None = state.sum("int")
    mean: float | None = state.mean("float")
    newest: str | None = state.latest("text")


KINDS = ("int", "float", "decimal", "text", "bytes", "bool", "date", "timestamp", "list", "struct")
RANGES: Mapping[str, list[tuple[Any, Any]]] = {
    "int": [(0, 3), (-5, 30)],
    "float": [(0.5, 2.0), (0, 100)],
    "decimal": [(0, 0.3), (Decimal(0), Decimal(5))],
    "date": [(date(2020, 1, 1), date(2020, 1, 3)), (date(2020, 1, 1), date(2020, 2, 1))],
    "timestamp": [(DAY, DAY + timedelta(hours=3)), (DAY, DAY + timedelta(days=9))],
}
MEMBERS: Mapping[str, list[list[Any]]] = {
    "int": [[0, 1], [-1, 0, 1, 2, 3]],
    "float": [[0.0, 0.5], [n / 2 for n in range(9)]],
    "text": [["a", "b"], ["a", "b", "aa", "bb", "aaa", "bbb"]],
    "bool": [[True], [True, False]],
    "date": [[date(2020, 1, 1)], [date(2020, 1, n + 1) for n in range(9)]],
}
OVER_RANGES = ("Values", "Max", "Min", "Mean", "Sum")
OVER_SETS = ("DistinctValuesToBeInSet", "DistinctValuesToContainSet", "DistinctValuesToEqualSet") + (
    "ValuesToBeInSet",
    "ValuesToNotBeInSet",
)


def samples(count: int, *, nulls: bool) -> Iterator[Sample]:
    """Records whose values repeat; with `nulls` a third of them has none, and a third only some."""
    for k in range(count):
        no, some = nulls and k % 3 == 1, nulls and k % 3 > 0
        yield Sample(
            id=f"r{k}",
            group=k % 2,
            int=None if some else k % 5 - 1,
            float=None if no else k * 0.5,
            decimal=None if no else Decimal(k).scaleb(-1).quantize(Decimal("0.01")),
            text=None if some else "ab"[k % 2] * (k % 3 + 1),
            bytes=None if no else b"x" * k,
            bool=None if no else k % 2 == 0,
            date=None if no else date(2020, 1, 1 + k),
            timestamp=DAY + timedelta(hours=k),
            list=None if no else ["x"] * (k % 2),
            struct=None if no else Inner(city="Ulm"),
            missing=None,
        )


def of_column(kind: str) -> Iterator[Any]:
    """Expectations about one column: most once so that they hold, and once so that they do not."""
    gxe = expectations()
    yield gxe.ExpectColumnToExist(column=kind)
    yield gxe.ExpectColumnValuesToNotBeNull(column=kind)
    yield gxe.ExpectColumnValuesToNotBeNull(column=kind, mostly=0.5)
    yield gxe.ExpectColumnValuesToBeNull(column=kind)
    yield gxe.ExpectColumnProportionOfNonNullValuesToBeBetween(column=kind, min_value=0.5)
    if kind == "text" or kind in ALIKE["ExpectColumnValuesToBeUnique"]:
        yield gxe.ExpectColumnValuesToBeUnique(column=kind)
        yield gxe.ExpectColumnProportionOfUniqueValuesToBeBetween(column=kind, min_value=0.9)
        yield gxe.ExpectColumnUniqueValueCountToBeBetween(column=kind, min_value=3, max_value=5)
    for low, high in RANGES.get(kind, ()):
        for name in OVER_RANGES:
            made = getattr(gxe, f"ExpectColumn{name}ToBeBetween")
            if kind in ALIKE[made.__name__]:
                yield made(column=kind, min_value=low, max_value=high)
    for members in MEMBERS.get(kind, ()):
        yield from (getattr(gxe, f"ExpectColumn{name}")(column=kind, value_set=members) for name in OVER_SETS)


def of_records() -> Iterator[Any]:
    """Expectations about the records."""
    gxe = expectations()
    for kind in KINDS:
        yield from of_column(kind)
    yield gxe.ExpectColumnToExist(column="nothing")
    yield gxe.ExpectColumnValuesToBeNull(column="missing")
    yield gxe.ExpectColumnValuesToBeBetween(column="int", min_value=0, mostly=0.5)
    yield gxe.ExpectColumnValuesToBeBetween(column="int", min_value=-1, strict_min=True)
    yield gxe.ExpectColumnValueLengthsToBeBetween(column="text", min_value=1, max_value=2)
    yield gxe.ExpectColumnValueLengthsToBeBetween(column="id", min_value=1, max_value=5)
    yield gxe.ExpectColumnValueLengthsToEqual(column="id", value=2)
    yield gxe.ExpectColumnValueLengthsToEqual(column="text", value=2)
    for column, regex in (("text", "^a+$"), ("id", r"^[a-z]\d+$"), ("id", "7"), ("_topic", "samples")):
        yield gxe.ExpectColumnValuesToMatchRegex(column=column, regex=regex)
        yield gxe.ExpectColumnValuesToNotMatchRegex(column=column, regex=regex)
    for a, b in (("timestamp", "_event_time"), ("_timestamp", "timestamp")):
        yield gxe.ExpectColumnPairValuesToBeEqual(column_A=a, column_B=b)
        yield gxe.ExpectColumnPairValuesAToBeGreaterThanB(column_A=a, column_B=b)
        yield gxe.ExpectColumnPairValuesAToBeGreaterThanB(column_A=a, column_B=b, or_equal=True)
    for columns in (["int", "float"], ["group", "int"], ["id", "text"], ["_partition", "_offset"]):
        yield gxe.ExpectCompoundColumnsToBeUnique(column_list=columns)
    for rows in (1, 6, 9):
        yield gxe.ExpectTableRowCountToEqual(value=rows)
        yield gxe.ExpectTableRowCountToBeBetween(min_value=rows, max_value=rows + 1)


def of_groups() -> Iterator[Any]:
    """Expectations about the state and its changes."""
    gxe = expectations()
    for low, high in ((0, 4), (5, 100)):
        yield gxe.ExpectColumnValuesToBeBetween(column="n", min_value=low, max_value=high)
        yield gxe.ExpectColumnSumToBeBetween(column="total", min_value=low, max_value=high)
        yield gxe.ExpectColumnMeanToBeBetween(column="mean", min_value=low, max_value=high)
    yield gxe.ExpectColumnValuesToBeInSet(column="newest", value_set=["a", "bb"])
    yield gxe.ExpectColumnValuesToBeUnique(column="group")
    yield gxe.ExpectTableRowCountToEqual(value=2)
    yield gxe.ExpectColumnValuesToBeBetween(column="_changed", min_value=2)


def gate() -> Mapping[str, Any]:
    """All of them; none stops a checkpoint."""
    made: dict[str, Any] = {
        "records": list(of_records()),
        "changes": {"groups": list(of_groups())},
        "state": {"groups": list(of_groups())},
    }
    for expectation in (*made["records"], *made["changes"]["groups"], *made["state"]["groups"]):
        expectation.severity = "warning"
    return made


PIPELINE = Pipeline(
    name="samples",
    source=KafkaSource("samples", Sample, event_time="timestamp"),
    operators=[Fold("groups", key_by="group", state=Group)],
    gate=gate,
)


@dataclass
class JudgingTwin(TwinPipeline):
    """The twin, with its gate."""

    @property
    def compute(self) -> Any:
        return MemoryCompute(pipeline=self.pipeline, log=self.log, tables=self.tables, evaluates_gate=True)


def asked(expectation: Expectation) -> tuple[str, str, str]:
    """What an expectation is about."""
    return expectation.frame, expectation.type, expectation.detail.partition("(")[2]


def answers(checkpoint: Checkpoint) -> dict[tuple[str, str, str], bool]:
    """What Great Expectations said."""
    verdict = checkpoint.sealed.verdict
    assert verdict.error is None
    return {asked(e): e.success for e in verdict.expectations}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_pandas_and_spark_give_one_verdict(spark: SparkSession, tmp_path: Path) -> None:
    twin, real = JudgingTwin(PIPELINE), SparkPipeline(PIPELINE, spark=spark, root=tmp_path)
    seen: dict[str, set[bool]] = {}
    for batch in (list(samples(9, nulls=True)), list(samples(6, nulls=False)), list(samples(1, nulls=False))):
        found = answers(twin.checkpoint(batch))
        wanted = answers(real.checkpoint(batch))
        assert found == wanted, json.dumps({str(k): v for k, v in wanted.items() if found.get(k) != v}, indent=1)
        for (_, kind, _), success in wanted.items():
            seen.setdefault(kind, set()).add(success)
    names = {"".join(word.title() for word in kind.split("_")) for kind in seen}
    assert {name.lower() for name in ALIKE} == {name.lower() for name in names}
    assert {kind for kind, both in seen.items() if both != {True, False}} == set(), "each holds once and fails once"
