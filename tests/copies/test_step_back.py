"""`restore --latest-valid`: back to the newest checkpoint that is whole, loudly, and no further than asked for (I4).

A file is damaged that the newest checkpoints name and older ones do not. Then everything read since is read again,
and the states have to be those of a warehouse that was never damaged.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.copies.transfer_pipeline import DECLARATION, SEED, TransferPipeline, transfer_pipeline
from tests.support.disk_context import commands_over
from tidemark.coordinator.checkpoints.loop import list_undelivered, record_delivery
from tidemark.operations import reads, timelines, verification
from tidemark.readers.state_reader import files_of

BACK = ("restore", "market", "--latest-valid")


@pytest.fixture
def grown(tmp_path: Path) -> Iterator[TransferPipeline]:
    """Four checkpoints; commands read and write them in this process."""
    print(f"seed {SEED}; repeat with TIDEMARK_TEST_SEED={SEED}")
    made = transfer_pipeline(tmp_path).grown(4)
    with commands_over(made.line):
        yield made


def _break(made: TransferPipeline, checkpoint: int, kind: str = "tills") -> None:
    """Takes away what a checkpoint itself wrote: a file of a state, or of its sink."""
    (found,) = (c for c in reads.list_checkpoints(made.tidemark.context, "market") if c.id == checkpoint)
    handle = next(iter(found.sinks.values())).handle if kind == "sink" else found.handles[kind]
    root = made.tidemark.warehouse
    paths = [root / segment.path / file.path for segment, file in files_of(str(root), handle)]
    next(path for path in paths if path.parent.name == f"{checkpoint}.1").unlink()


def _whatever_the_barriers(made: TransferPipeline) -> dict[str, Any]:
    """What does not depend on where a barrier lies between records of two partitions."""
    sums = "SELECT item, sales, cents, least, most, list_sort(stalls) FROM sold ORDER BY ALL"
    rates = "SELECT item, percent FROM rates ORDER BY ALL"
    found = [made.tidemark("state", "sql", "market", query, "--json").ok().json for query in (sums, rates)]
    newest = reads.get_checkpoint(made.tidemark.context, "market")
    return {"states": found, "now": newest.now, "ends": newest.plan.ranges.ends}


def _run(made: TransferPipeline) -> None:
    made.tidemark("run", "market").ok()


def test_it_passes_over_what_is_damaged_says_so_and_loses_nothing(grown: TransferPipeline) -> None:
    wanted = _whatever_the_barriers(grown)
    _break(grown, 3)
    plan = grown.tidemark(*BACK, "--json").ok()
    assert (plan.json["executed"], plan.json["checkpoint"], plan.json["left"]) == (False, "chk-2", ["chk-4", "chk-3"])
    for name in ("chk-4", "chk-3"):
        assert f"checkpoint={name}" in plan.err, "loudly: each one that is passed over is named"
    done = grown.tidemark(*BACK, "--execute", "--json").ok().json
    assert (done["timeline"], done["checkpoint"]) == ("t2", "chk-2")
    _run(grown)
    assert _whatever_the_barriers(grown) == wanted
    assert grown.tidemark(*BACK, "--json").ok().json["checkpoint"] == "chk-5", "the newest one is whole again"


def test_it_goes_no_further_back_than_was_asked_for(grown: TransferPipeline) -> None:
    _break(grown, 2)
    refused = grown.tidemark(*BACK, "--max-fallback", "2", "--execute")
    refused.failed(6, "chk-4, chk-3, chk-2 are damaged, and at most 2 may be passed over", "tidemark verify market")
    assert grown.tidemark(*BACK, "--json").ok().json["checkpoint"] == "chk-1"
    _break(grown, 1)
    grown.tidemark(*BACK, "--max-fallback", "9").failed(6, "no whole checkpoint: chk-4, chk-3, chk-2, chk-1")
    assert [b.timeline for b in timelines.list_timelines(grown.tidemark.context, "market")] == ["t1"], (
        "nothing was started"
    )


def test_rows_of_a_sink_that_are_damaged_are_not_kept(grown: TransferPipeline) -> None:
    newest = reads.get_checkpoint(grown.tidemark.context, "market")
    ((uid, table),) = newest.sinks.items()
    _break(grown, 4, "sink")
    grown.tidemark(*BACK).failed(6, "damaged rows of a sink", "--restore-sinks")
    grown.tidemark("restore", "market", "--checkpoint", "3").failed(6, "damaged rows of a sink", "--restore-sinks")
    told = grown.tidemark(*BACK, "--restore-sinks", "--execute", "--json").ok().json
    assert told["checkpoint"] == "chk-3"
    _run(grown)
    made = reads.get_checkpoint(grown.tidemark.context, "market")
    verification.verify_checkpoint(grown.tidemark.context, made)
    assert made.sinks[uid].handle.rows == table.handle.rows, "what was emitted is emitted anew"


def test_records_are_not_sent_again_because_a_file_is_damaged(tmp_path: Path) -> None:
    sends = DECLARATION.replace('DeltaSink("receipts")', 'KafkaSink("receipts", topic="receipts")')
    made = transfer_pipeline(tmp_path, declared=sends.replace("DeltaSink", "KafkaSink")).grown(3)
    made.log.create("receipts", 1)
    coordinator = made.tidemark.context.coordinator("market")
    with commands_over(made.line):
        _break(made, 3)
        assert made.tidemark(*BACK, "--restore-sinks", "--json").ok().json["checkpoint"] == "chk-2", "nothing was sent"
        for due in list_undelivered(coordinator):
            record_delivery(coordinator, due)
        refused = made.tidemark(*BACK, "--restore-sinks", "--execute")
        refused.failed(4, "would send records to receipts again", "--checkpoint chk-2")
        assert made.tidemark(*BACK, "--execute", "--json").ok().json["checkpoint"] == "chk-2"


def test_without_a_checkpoint_there_is_nothing_to_go_back_to(tmp_path: Path) -> None:
    made = transfer_pipeline(tmp_path)
    with commands_over(made.line):
        made.tidemark(*BACK).failed(3, "there is no checkpoint yet")
        made.tidemark(*BACK, "--checkpoint", "1").failed(2, "name one restore point")
