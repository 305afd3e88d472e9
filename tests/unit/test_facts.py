"""What is told in JSON is structured; people read the same in short."""

from tidemark.answers.checkpoint_facts import as_text, loss_of, span_of
from tidemark.cli.output import cell
from tidemark.model.checkpoint.codec import body_of
from tidemark.model.checkpoint.plan import Gap
from tidemark.model.core.offsets import OffsetRange, TopicPartition


def test_a_range_is_an_object_with_start_and_end() -> None:
    assert body_of(span_of(OffsetRange(3, 7))) == {"start": 3, "end": 7}
    gap = Gap(partition=TopicPartition("payments", 0), lost=OffsetRange(5, 7), why="were deleted")
    assert body_of(loss_of(gap)) == {"partition": "payments-0", "start": 5, "end": 7, "why": "were deleted"}


def test_people_read_ranges_losses_and_segments_in_short() -> None:
    segment = {"path": "p/state/u/t1-1/runs", "version": 4, "after": 0, "through": 3}
    assert cell({"payments-0": {"start": 3, "end": 7}, "payments-1": {"start": 0, "end": 0}}) == (
        "payments-0 [3, 7), payments-1 [0, 0)"
    )
    assert cell([{"partition": "payments-0", "start": 5, "end": 7, "why": "gone"}]) == "payments-0 [5, 7): gone"
    assert cell({"u": [segment]}) == "u p/state/u/t1-1/runs version 4 (0, 3]"
    assert as_text({"start": 1, "end": 2, "rows": 3}) is None
    assert cell({"start": 1, "end": 2, "rows": 3}) == "start 1, end 2, rows 3"
