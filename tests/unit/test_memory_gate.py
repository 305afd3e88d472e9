"""The gate of a replay: Great Expectations on pandas, before anything is published."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tidemark import Fold, KafkaSource, Pipeline, state
from tidemark.errors import GateFailedError, UsageError
from tidemark.testing import BARRIER, Harness, replay
from tidemark.testing.twin.pandas_gate import ALIKE

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/quality-gate.md"


@dataclass(frozen=True)
class Sale:
    """One record."""

    shop: str
    cents: int


class Shop(state.Keyed):
    """Per shop."""

    cents: int = state.sum("cents")


def bounds() -> Mapping[str, Any]:
    """No sale is negative, no batch exceeds 70, and more than 100 in a shop is worth a warning."""
    import great_expectations.expectations as gxe

    warned: Any = gxe.ExpectColumnValuesToBeBetween(column="cents", max_value=100, severity="warning")  # type: ignore[arg-type]
    return {
        "records": [gxe.ExpectColumnValuesToBeBetween(column="cents", min_value=0)],
        "changes": {"shops": [gxe.ExpectColumnValuesToBeBetween(column="cents", max_value=70)]},
        "state": {"shops": [warned]},
    }


SHOPS = Fold("shops", key_by="shop", state=Shop)
GATED = Pipeline(name="gated", source=KafkaSource("sales", Sale), operators=[SHOPS], gate=bounds)


def outcomes(done: Any) -> list[tuple[str, bool]]:
    """Frames and answers of the newest checkpoint."""
    return [(e.frame, e.success) for e in done.checkpoints[-1].sealed.verdict.expectations]


def test_a_gate_that_holds_is_recorded_and_sees_the_whole_state_of_touched_keys() -> None:
    done = replay(GATED, [[Sale("a", 60)], BARRIER, [Sale("a", 60)]])
    assert outcomes(done) == [("records", True), ("changes.shops", True), ("state.shops", False)]
    assert done.state("shops")["a"].cents == 120


@pytest.mark.parametrize(("cents", "frame"), [(-1, "records"), (80, r"changes\.shops")])
def test_a_gate_that_fails_publishes_nothing_and_a_test_may_go_on(cents: int, frame: str) -> None:
    harness = Harness(GATED)
    harness.send(Sale("a", cents))
    with pytest.raises(GateFailedError, match=rf"gate failed: {frame}: .* 1 of 1 unexpected"):
        harness.checkpoint()
    assert harness.results.checkpoints == ()
    harness.declare(replace(GATED, gate=None))
    harness.checkpoint()
    assert harness.results.state("shops")["a"].cents == cents


def test_a_gate_may_be_left_out_or_replaced() -> None:
    assert outcomes(replay(GATED, [[Sale("a", -1)]], gate=False)) == []

    def others() -> Mapping[str, Any]:
        import great_expectations.expectations as gxe

        return {"records": [gxe.ExpectColumnValuesToNotBeNull(column="shop")]}

    assert outcomes(replay(GATED, [[Sale("a", -1)]], gate=others)) == [("records", True)]
    assert outcomes(replay(replace(GATED, gate=None), [[Sale("a", 1)]], gate=others)) == [("records", True)]


def test_a_checkpoint_without_records_judges_nothing() -> None:
    assert outcomes(replay(GATED, [BARRIER])) == []


def test_several_sources_give_a_mapping_and_only_those_with_records_are_judged() -> None:
    def gate() -> Mapping[str, Any]:
        import great_expectations.expectations as gxe

        positive = gxe.ExpectColumnValuesToBeBetween(column="cents", min_value=0)
        return {"records": {"sales": [positive], "refunds": [positive]}}

    sources = {"sales": KafkaSource("sales", Sale), "refunds": KafkaSource("refunds", Sale)}
    both = Pipeline(name="both", sources=sources, operators=[replace(SHOPS, input="sales")], gate=gate)
    assert outcomes(replay(both, [[("sales", Sale("a", 1))]])) == [("records.sales", True)]
    with pytest.raises(GateFailedError, match="records.refunds"):
        replay(both, [[("sales", Sale("a", 1)), ("refunds", Sale("a", -1))]])


def test_dead_letters_are_no_records_of_the_gate() -> None:
    lenient = replace(GATED, max_dead_letters=1.0)
    assert outcomes(replay(lenient, [[b"{", Sale("a", 1)]]))[0] == ("records", True)
    assert outcomes(replay(lenient, [[b"{"]])) == [("records", True)]


def test_what_pandas_may_answer_differently_is_refused_by_name() -> None:
    import great_expectations.expectations as gxe
    from great_expectations.expectations.row_conditions import Column

    for expectation, why in (
        (gxe.ExpectColumnMedianToBeBetween(column="cents", min_value=0), "^ExpectColumnMedianToBeBetween cannot"),
        (gxe.ExpectColumnMeanToBeBetween(column="shop", min_value=0), "of shop, which is of kind str, cannot"),
        (gxe.ExpectCompoundColumnsToBeUnique(column_list=["shop", "_timestamp"]), "of _timestamp, which is of kind"),
        (gxe.ExpectColumnValuesToBeNull(column="shop", row_condition=Column("cents") > 1), "with a row_condition"),
    ):
        with pytest.raises(UsageError, match=why):
            replay(GATED, [[Sale("a", 1)]], gate=lambda: {"records": [expectation]})  # noqa: B023


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ({"nope": []}, "unknown frame 'nope'"),
        ({"records": {"x": []}}, "give a list for records"),
        ({"state": {"nope": []}}, "mapping by uid"),
    ],
)
def test_a_gate_that_names_what_does_not_exist_cannot_judge(made: Mapping[str, Any], why: str) -> None:
    with pytest.raises(GateFailedError, match=f"gate could not judge: ValueError: .*{why}"):
        replay(GATED, [[Sale("a", 1)]], gate=lambda: made)


def test_a_gate_that_raises_or_names_no_column_cannot_judge() -> None:
    import great_expectations.expectations as gxe

    def raising() -> Mapping[str, Any]:
        raise RuntimeError("no gate today")

    with pytest.raises(GateFailedError, match="gate could not judge: RuntimeError: no gate today"):
        replay(GATED, [[Sale("a", 1)]], gate=raising)
    with pytest.raises(GateFailedError, match='could not judge: records: .*"cent" .*does not exist'):
        replay(GATED, [[Sale("a", 1)]], gate=lambda: {"records": [gxe.ExpectColumnMeanToBeBetween(column="cent")]})


def test_the_page_lists_the_expectations_that_are_evaluated() -> None:
    listed = {line.split("`")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `Expect")}
    assert listed == set(ALIKE)
