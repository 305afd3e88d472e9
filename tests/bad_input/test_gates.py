"""Gates that fail, raise or warn: nothing is published but by a pass, and the abort record says what was seen."""

from dataclasses import replace

import pytest

from tests.bad_input.conftest import BadInputPipeline, MakeLine

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def line(make_line: MakeLine) -> BadInputPipeline:
    made = make_line("critical", "gated.py")
    made.send(1, 2, -3, 4)
    return made


def test_a_failing_gate_publishes_nothing_and_its_abort_record_tells_the_failed_expectations(
    line: BadInputPipeline,
) -> None:
    line.run().failed(5, "gate failed", "expect_column_values_to_be_between", "amount", "was not published")
    assert line.checkpoints() == []
    failure = line.last_abort()
    assert failure["reason"] == "EXPECTATION_FAILED"
    verdict = failure["verdict"]
    assert (verdict["passed"], verdict["error"]) == (False, None)
    seen = {(e["frame"], e["success"]) for e in verdict["expectations"]}
    assert seen == {("records", False), ("changes.shops", True)}
    assert "1 of 4" in next(e["detail"] for e in verdict["expectations"] if not e["success"])
    line.tidemark("state", "show", "critical", "shops").failed(3, "no checkpoints yet")


def test_the_same_offsets_are_planned_anew_and_pass_when_the_bad_record_is_out_of_reach(line: BadInputPipeline) -> None:
    made = line.run("--max-records", "2", "--once").ok().json
    assert (made["id"], made["ranges"]) == ("chk-2", {f"{line.topic}-0": {"start": 0, "end": 2}})
    assert made["gate"] == "2 of 2 held"
    assert line.shops() == {"north": (2, 3)}
    line.run().failed(5, "gate failed")
    assert line.shops() == {"north": (2, 3)}


def test_a_gate_that_raises_is_no_pass(line: BadInputPipeline) -> None:
    raising = replace(line, name="raising")
    raising.run().failed(5, "gate could not judge", "fell off its hinges")
    assert raising.checkpoints() == []
    failure = raising.last_abort()
    assert failure["reason"] == "GATE_ERROR"
    assert "RuntimeError" in failure["verdict"]["error"]


def test_a_warning_is_recorded_and_stops_nobody(line: BadInputPipeline) -> None:
    warned = replace(line, name="warned")
    made = warned.run().ok().json
    assert made["gate"] == "0 of 1 held"
    assert warned.shops() == {"north": (4, 4)}
    [expectation] = (
        warned.tidemark("checkpoint", "show", "warned", "1", "--json").ok().json["sealed"]["verdict"]["expectations"]
    )
    assert (expectation["success"], expectation["severity"]) == (False, "warning")
