"""A thousand checkpoints: few files, and every checkpoint shows what it should, compacted or not, kept or expired."""

from datetime import timedelta
from typing import Any

from tests.row_compaction.emitted_oracle import EmittedOracle, files_of
from tests.support.retention import PIPELINE, MemoryRetentionPipeline, expiring
from tidemark.declare.retention import Retention

CHECKPOINTS = 1000
MOST_FILES = 50
STEP = timedelta(seconds=1)
"""Time between two checkpoints of the pipeline."""


def test_a_thousand_checkpoints_leave_few_files_and_each_shows_its_own_rows() -> None:
    retained = MemoryRetentionPipeline()
    line = EmittedOracle(retained)
    for number in range(1, CHECKPOINTS + 1):
        found = line.pay("a" if number % 3 else "b", "")
        retained.compact_rows()
        if number % 100 == 0:
            retained.save(f"s{number}")
    line.compare()
    assert len(line.emitted) == len(line.letters) == CHECKPOINTS
    assert max(files_of(found).values()) <= MOST_FILES, files_of(found)
    for _ in range(2):
        retained.sweep(Retention.keep_last(3))
    kept = [*range(100, CHECKPOINTS, 100), *range(CHECKPOINTS - 2, CHECKPOINTS + 1)]
    line.compare(*kept)
    for number in range(100, CHECKPOINTS + 1, 100):
        retained.savepoints.dispose(f"s{number}")
    retained.clock.advance(10)
    for _ in range(2):
        retained.sweep(Retention.keep_last(3))
    line.compare(*kept[-3:])
    folders = ("sinks/told", "dead_letters/accounts", "dead_letters/teller")
    there = {name: sum(f"/{name}/" in path for path in retained.data()) for name in folders}
    assert all(0 < count <= MOST_FILES for count in there.values()), there


def test_what_has_expired_is_hidden_at_once_and_deleted_by_and_by() -> None:
    kept, checkpoints = 100, 600
    retained = MemoryRetentionPipeline(pipeline=expiring(kept * STEP))
    line = EmittedOracle(retained)
    for number in range(1, checkpoints + 1):
        found = line.pay("a", "")
        line.expire(found, number - kept)
        retained.compact_rows()
        if number % 50 == 0:
            retained.sweep(Retention.keep_last(2))
            line.compare(number - 1, number)
    assert max(files_of(found).values()) <= MOST_FILES, files_of(found)
    assert len(line.emitted) == kept
    stored: list[Any] = [retained.tables.files[path] for path in retained.data() if "/sinks/told/" in path]
    assert kept <= sum(map(len, stored)) <= 3 * kept


def test_expiry_does_not_depend_on_compactions() -> None:
    compacted, plain = (MemoryRetentionPipeline(pipeline=expiring(5 * STEP)) for _ in range(2))
    for number in range(1, 40):
        lines = [retained.checkpoint("a", "b", "") for retained in (compacted, plain)]
        if number % 3 == 0:
            compacted.merge_rows()
        kinds = [
            {kind: rows for kind, rows in retained.rows(found).items() if not kind.endswith("state")}
            for retained, found in zip((compacted, plain), lines, strict=True)
        ]
        assert kinds[0] == kinds[1]
        assert len(kinds[0]["teller sink"]) == 2 * min(number, 5)
    assert files_of(lines[0]) != files_of(lines[1])


def test_a_pipeline_that_stops_expiring_shows_no_expired_row_again() -> None:
    retained = MemoryRetentionPipeline(pipeline=expiring(2 * STEP))
    for _ in range(5):
        found = retained.checkpoint("a", "")
    assert len(retained.rows(found)["teller sink"]) == 2
    retained.pipeline = PIPELINE
    found = retained.checkpoint("a", "")
    assert len(retained.rows(found)["teller sink"]) == 3
    assert len(retained.rows(found)["accounts dead letters"]) == 3
    retained.restore(4)
    letters = retained.rows(retained.checkpoint("a"))["accounts dead letters"]
    assert [row[15] for row in letters] == ["3", "4", "7", "7"], "the records of chk-5 and chk-6 are read again"
