"""Expiries as people write them, and checkpoint ids."""

import pytest

from tidemark.errors import UsageError
from tidemark.model.core.names import parse_id
from tidemark.model.core.savepoint_expiry import expiry_ms

NOW = 1_372_636_800_000  # 2013-07-01T00:00:00Z
HOUR = 3_600_000


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("90m", NOW + 90 * 60_000),
        ("12h", NOW + 12 * HOUR),
        ("30d", NOW + 30 * 24 * HOUR),
        ("4w", NOW + 28 * 24 * HOUR),
        ("2013-08-01", NOW + 31 * 24 * HOUR),
        ("2013-07-01T01:00:00Z", NOW + HOUR),
        ("2013-07-01T01:00:00+02:00", NOW - HOUR),
        ("never", None),
    ],
)
def test_an_expiry_is_a_span_from_now_or_a_time_or_never(text: str, at: int | None) -> None:
    assert expiry_ms(text, NOW) == at


@pytest.mark.parametrize("text", ["", "30", "d", "30 d", "-1d", "1y", "9999999d", "soon", "Never", "999999w"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not an expiry"):
        expiry_ms(text, NOW)


def test_a_checkpoint_is_named_by_its_number() -> None:
    assert (parse_id("chk-17"), parse_id("17")) == (17, 17)
    for text in ("", "chk-", "chk-x", "-1", "newest"):
        with pytest.raises(UsageError, match="not a checkpoint id"):
            parse_id(text)
