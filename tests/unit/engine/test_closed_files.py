"""Files are left out only if their bounds prove that all of their windows have closed."""

import json
import os
import random
from datetime import UTC, datetime

import pytest

from tidemark.model.checkpoint.segments import LiveFile, Segment, StateHandle, WrittenFile
from tidemark.model.schema.event_windows import (
    SessionWindows,
    SlidingWindows,
    StoredWindow,
    TumblingWindows,
    from_ms,
    to_ms,
)
from tidemark.model.schema.operator_schema import OperatorSchema, window_columns
from tidemark.model.state.closed_files import closed_groups, least_end, open_groups
from tidemark.model.state.compaction import Compaction, Group, LevelPolicy, due

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
MINUTE = 60_000
NOON = to_ms(datetime(2024, 1, 1, 12, tzinfo=UTC))
SEGMENT = Segment(path="p/state/u/t1-1/runs", version=0, after=0, through=9, rows=1, bytes=1, files=1)


def is_closed(schema: OperatorSchema, of: Group, frontier: int | None) -> bool:
    return closed_groups(schema, [of], frontier) == [of] and not open_groups(schema, [of], frontier)


def schema_of(window: StoredWindow | None) -> OperatorSchema:
    return OperatorSchema("u", () if window is None else window_columns(window), (), window=window)


def text(ms: int) -> str:
    return from_ms(ms).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def stats(least: tuple[int, int], greatest: tuple[int, int]) -> str:
    found = {"minValues": least, "maxValues": greatest}
    return json.dumps({at: {"window_start": text(s), "window_end": text(e)} for at, (s, e) in found.items()})


def group(stats: str, checkpoint: int = 1, rows: int = 10, level: int = 0) -> Group:
    file = WrittenFile(path=f"{checkpoint}.parquet", size=rows * 10, rows=rows, stats=stats)
    return Group(
        segment=SEGMENT,
        level=level,
        checkpoint=checkpoint,
        files=(LiveFile(file=file, level=0, checkpoint=checkpoint),),
    )


HOUR_OF_NOON = group(stats((NOON, NOON + 60 * MINUTE), (NOON, NOON + 60 * MINUTE)))


def test_a_file_is_left_out_from_the_frontier_on_that_closes_its_last_window() -> None:
    schema, end = schema_of(TumblingWindows(size_ms=60 * MINUTE)), NOON + 60 * MINUTE
    assert not is_closed(schema, HOUR_OF_NOON, None)
    assert not is_closed(schema, HOUR_OF_NOON, end - 1)
    assert is_closed(schema, HOUR_OF_NOON, end)


def test_a_pane_stays_until_the_last_of_its_windows_has_closed() -> None:
    schema = schema_of(SlidingWindows(size_ms=60 * MINUTE, every_ms=20 * MINUTE))
    pane = group(stats((NOON, NOON + 20 * MINUTE), (NOON, NOON + 20 * MINUTE)))
    assert not is_closed(schema, pane, NOON + 60 * MINUTE - 1)
    assert is_closed(schema, pane, NOON + 60 * MINUTE)


def test_rows_without_windows_are_always_read() -> None:
    assert open_groups(schema_of(None), [HOUR_OF_NOON], NOON * 2) == [HOUR_OF_NOON]


def test_rows_of_sessions_are_read_if_rows_of_other_files_may_connect_them_with_an_open_session() -> None:
    schema = schema_of(SessionWindows(gap_ms=MINUTE))
    spans = [(0, 10), (10, 20), (19, 30), (29, 40), (40, 50)]
    groups = [group(stats((NOON + s, NOON + s + 1), (NOON + e - 1, NOON + e)), n) for n, (s, e) in enumerate(spans, 1)]
    for frontier, first in ((9, 0), (10, 1), (39, 1), (40, 4), (49, 4), (50, 5)):
        assert open_groups(schema, groups, NOON + frontier) == groups[first:], frontier
    assert open_groups(schema, [*groups, group("{}", 6)], NOON * 2) == [*groups, group("{}", 6)]


@pytest.mark.parametrize(
    "told",
    [
        "",
        "{}",
        '{"maxValues": {"window_start": "2024-01-01T12:00:00.000000Z"}}',
        '{"maxValues": {"window_start": "2024-01-01T12:00:00.000000Z", "window_end": "12-01-01T12:00:00.000000Z"}}',
        '{"maxValues": {"window_start": null, "window_end": null}}',
    ],
)
def test_a_file_without_bounds_is_always_read(told: str) -> None:
    assert not is_closed(schema_of(TumblingWindows(size_ms=MINUTE)), group(told), NOON * 2)
    assert least_end(told) is None


@pytest.mark.parametrize("seed", range(50))
def test_no_file_with_a_row_that_outlives_the_frontier_is_left_out(seed: int) -> None:
    chance = random.Random(seed)
    every = chance.choice([5, 10, 15])
    windows: list[StoredWindow] = [
        TumblingWindows(size_ms=every * MINUTE),
        SlidingWindows(size_ms=every * chance.randint(1, 4) * MINUTE, every_ms=every * MINUTE),
    ]
    window = chance.choice(windows)
    spans = [window.span(NOON + chance.randint(-300, 300) * MINUTE) for _ in range(chance.randint(1, 5))]
    bounds = [(min(found), max(found)) for found in zip(*spans, strict=True)]
    found = group(stats((bounds[0][0], bounds[1][0]), (bounds[0][1], bounds[1][1])))
    frontier = NOON + chance.randint(-400, 400) * MINUTE
    rows = [{"window_start": from_ms(start), "window_end": from_ms(end)} for start, end in spans]
    assert is_closed(schema_of(window), found, frontier) is not any(window.outlives(row, frontier) for row in rows)
    assert least_end(found.files[0].file.stats) == from_ms(bounds[1][0])


def sessions(rows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Rows that overlap, one after the other, as one span."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(rows):
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def test_no_file_with_a_row_of_an_open_session_is_left_out() -> None:
    chance, left_out = random.Random(SEED), 0
    print(f"TIDEMARK_TEST_SEED={SEED}")
    for _ in range(400):
        gap = chance.choice([1, 3, 10])
        files = [
            [(at, at + chance.randint(1, gap)) for at in (begin + chance.randint(0, 20) for _ in range(3))]
            for begin in (chance.randrange(200) for _ in range(6))
        ]
        groups = [
            group(stats(*((NOON + which(s for s, _ in f), NOON + which(e for _, e in f)) for which in (min, max))), n)
            for n, f in enumerate(files)
        ]
        frontier = chance.randrange(200)
        read = open_groups(schema_of(SessionWindows(gap_ms=gap)), groups, NOON + frontier)
        still = [span for span in sessions([row for f in files for row in f]) if span[1] > frontier]
        needed = [n for n, f in enumerate(files) if any(s <= start and end <= e for start, end in f for s, e in still)]
        assert {groups[n].checkpoint for n in needed} <= {g.checkpoint for g in read}
        left_out += len(groups) - len(read)
    assert left_out > 400


def hour(number: int, checkpoint: int, rows: int, level: int = 0) -> Group:
    start = NOON + number * 60 * MINUTE
    return group(stats((start, start + 60 * MINUTE), (start, start + 60 * MINUTE)), checkpoint, rows, level)


def chosen(groups: list[Group], frontier: int | None) -> Compaction | None:
    schema = schema_of(TumblingWindows(size_ms=60 * MINUTE))
    return due(schema, StateHandle((SEGMENT,)), groups, LevelPolicy(), closed_groups(schema, groups, frontier))


def test_a_compaction_takes_along_a_group_whose_windows_have_closed_however_large_it_is() -> None:
    history = hour(0, 1, rows=8_000_000, level=3)
    runs = [hour(2, 2 + n, rows=1_000) for n in range(8)]
    kept, dropped = chosen([history, *runs], NOON), chosen([history, *runs], NOON + 60 * MINUTE)
    assert kept is not None and kept.kept == (history,)
    assert dropped is not None and dropped.kept == () and dropped.merged[0] == history


def test_what_has_closed_does_not_make_a_larger_open_group_part_of_a_merge() -> None:
    history, still = hour(0, 1, rows=8_000_000, level=3), hour(9, 2, rows=100_000, level=2)
    runs = [hour(0, 3 + n, rows=60_000) for n in range(8)]
    wanted = chosen([history, still, *runs], NOON + 60 * MINUTE)
    assert wanted is not None
    assert wanted.kept == (history, still), "480,000 rows of runs have closed, so they do not count"
