"""State handles: gap-free, and what counts as their prefix."""

import pytest

from tidemark.errors import UsageError
from tidemark.model.checkpoint.segments import Segment, StateHandle


def seg(after: int, through: int, path: str = "runs") -> Segment:
    return Segment(after=after, through=through, path=path, version=0, rows=through, bytes=10, files=1)


@pytest.mark.parametrize(("after", "through"), [(-1, 1), (1, 1), (2, 1)])
def test_a_segment_holds_at_least_one_checkpoint(after: int, through: int) -> None:
    with pytest.raises(UsageError, match="not a segment"):
        seg(after, through)


def test_a_handle_has_no_gap_and_no_overlap() -> None:
    whole = StateHandle((seg(0, 3, "base"), seg(3, 7)))
    assert (whole.after, whole.through, whole.rows, whole.bytes) == (0, 7, 10, 20)
    for lower, upper in ((seg(0, 3), seg(4, 7)), (seg(0, 3), seg(2, 7))):
        with pytest.raises(UsageError, match="gap in a state handle"):
            StateHandle((lower, upper))


def test_an_empty_handle_is_false_and_begins_and_ends_at_zero() -> None:
    empty = StateHandle()
    assert not empty
    assert (empty.after, empty.through, empty.rows, empty.segment_of("runs")) == (0, 0, 0, None)


def test_the_newest_segment_of_a_table_is_found() -> None:
    whole = StateHandle((seg(0, 3, "base"), seg(3, 7)))
    assert whole.segment_of("base") == seg(0, 3, "base")
    assert whole.segment_of("other") is None


@pytest.mark.parametrize(
    ("other", "wanted"),
    [
        (StateHandle((seg(0, 3),)), True),
        (StateHandle((seg(0, 7),)), True),
        (StateHandle((seg(0, 8),)), False),
        (StateHandle((seg(1, 3),)), False),
        (StateHandle(), False),
    ],
)
def test_a_prefix_begins_with_the_handle_and_ends_in_it(other: StateHandle, wanted: bool) -> None:
    assert StateHandle((seg(0, 7),)).has_prefix(other) is wanted
    assert not StateHandle().has_prefix(other)
