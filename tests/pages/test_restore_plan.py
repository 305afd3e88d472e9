"""The plan of a restore on the pages is that of the command line: by checkpoint, savepoint or time, on any timeline."""

import json
from pathlib import Path

import pytest

from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext
from tests.support.flat_maps import DAY, Verse, Word, split
from tests.support.trips import TripsPipeline, settings_of
from tidemark import DeltaSink, FlatMap, KafkaSource, Pipeline
from tidemark.answers.timeline_facts import RestorePreview
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.declare.retention import Retention
from tidemark.errors import NotFoundError, ReleasedError
from tidemark.model.checkpoint.codec import body_of
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.store_objects import Failure
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import retention, savepoints, timelines
from tidemark.operations.timelines import describe_restore
from tidemark.web import details, overview, previews
from tidemark.web.history_lines import HistoryQuery

HOUR = 3_600_000


@pytest.fixture
def tree(world: TripsPipeline) -> TripsPipeline:
    """t1 has chk-1 to 4; t2 begins at 2 and has 5 and 6; a fork of 3 has 7; t2 continues with 8."""
    for bus in "abcd":
        step(world, bus)
    timelines.restore(world.pages, "trips", RestoreRequest(checkpoint=2, request="r"))
    step(world, "e")
    step(world, "f")
    timelines.fork(world.pages, "trips", "trial", RestoreRequest(checkpoint=3))
    world.line.checkpoint(timeline="trial")
    step(world, "g", "h")
    return world


def step(world: TripsPipeline, *buses: str) -> None:
    world.line.clock.advance(HOUR)
    world.checkpoint(*buses)


def preview(world: TripsPipeline, request: RestoreRequest) -> RestorePreview:
    return previews.preview_restore(world.pages, "trips", request)


def test_every_checkpoint_of_a_tree_has_the_plan_of_the_command(tree: TripsPipeline) -> None:
    for number in range(1, 9):
        request = RestoreRequest(checkpoint=number, request="x")
        command = body_of(describe_restore(timelines.plan_restore(tree.pages, "trips", request)))
        page = body_of(preview(tree, RestoreRequest(checkpoint=number)))
        assert {name: page[name] for name in ("closes", "left", "read_again", "checkpoint")} == {
            name: command[name] for name in ("closes", "left", "read_again", "checkpoint")
        }, number
    assert preview(tree, RestoreRequest(checkpoint=4)).left == ["chk-8", "chk-6", "chk-5"]


def test_records_and_work_are_those_of_the_checkpoints_that_leave(tree: TripsPipeline) -> None:
    lines = {line.id: line for line in overview.get_overview(tree.pages, "trips", HistoryQuery()).history}
    for number in (2, 5, 8):
        found = preview(tree, RestoreRequest(checkpoint=number))
        left = [lines[int(name[4:])] for name in found.left]
        assert (found.records, found.work_duration) == (
            sum(line.records for line in left),
            sum(line.work_duration for line in left),
        )
    again = preview(tree, RestoreRequest(checkpoint=2))
    assert (again.records, again.reread) == (6, 6), "c and d too: t2 has read them again"
    kept = preview(tree, RestoreRequest(checkpoint=4))
    assert (kept.records, kept.reread) == (6, 4), "chk-4 has c and d"
    newest = preview(tree, RestoreRequest(checkpoint=8))
    assert (newest.left, newest.records) == ([], 0)


def test_a_time_is_the_newest_checkpoint_of_the_live_line_that_is_not_after_it(tree: TripsPipeline) -> None:
    live = (1, 2, 5, 6, 8)
    times = {number: details.get_details(tree.pages, "trips", number).logical_time for number in live}
    at = {number: tree.line.coordinator.timelines.checkpoint(number).plan.logical_time_ms for number in live}
    for moment in (at[1], at[2] + HOUR // 2, at[5] - 1, at[8], at[8] + 10 * HOUR):
        wanted = max(number for number in live if at[number] <= moment)
        found = preview(tree, RestoreRequest(as_of_ms=moment))
        assert (found.checkpoint, found.logical_time) == (f"chk-{wanted}", times[wanted])
    with pytest.raises(NotFoundError, match="no checkpoint is that old"):
        preview(tree, RestoreRequest(as_of_ms=at[1] - 1))


def test_a_released_checkpoint_is_refused_with_the_reason(tree: TripsPipeline) -> None:
    retention.sweep(tree.pages, "trips", str(Retention.keep_last(1)))
    with pytest.raises(ReleasedError, match=r"chk-1 was released at .* by keep_last\(1\)"):
        preview(tree, RestoreRequest(checkpoint=1))


def test_a_savepoint_that_drained_the_pipeline_says_so(world: TripsPipeline) -> None:
    step(world, "a")
    request = SavepointRequest(name="over", owner="me", origin="test", checkpoint=1, note="", drained=True)
    savepoints.open_savepoints(world.pages, "trips").create(request)
    assert preview(world, RestoreRequest(savepoint="over")).drained
    assert not preview(world, RestoreRequest(checkpoint=1)).drained


def test_a_failed_checkpoint_leads_to_the_one_that_read_its_offsets(world: TripsPipeline) -> None:
    step(world, "a")
    world.drive("b")
    failed = world.fail()
    assert details.get_details(world.pages, "trips", failed).successor is None
    again = world.plan()
    found = details.get_details(world.pages, "trips", failed).successor
    assert found is not None and (found.id, found.status, found.same_offsets) == (again.id, "IN_PROGRESS", True)
    world.line.coordinator.abort(again, Failure(reason=FailureReason.ENGINE_ERROR, message="away", next="again."))
    step(world, "c")
    found = details.get_details(world.pages, "trips", failed).successor
    assert found is not None and (found.name, found.status) == (f"chk-{again.id + 1}", "COMPLETED")
    assert not found.same_offsets, "it read one more"
    assert details.get_details(world.pages, "trips", found.id).successor is None


def test_a_sink_says_how_many_rows_are_newer_than_the_restore_point(tmp_path: Path) -> None:
    verses = Pipeline(
        name="verses",
        source=KafkaSource("verses", Verse, event_time="at"),
        operators=[FlatMap("split", function=split, emits=Word, sink=DeltaSink("words"))],
    )
    line = DiskPipeline(tmp_path / "warehouse", verses, "verses")
    context = DiskContext(line, settings_of(tmp_path))
    words = [2, 1, 4]
    for number in words:
        body = json.dumps({"text": "ant " * number, "at": DAY.isoformat()}).encode()
        line.send([(0, body, int(DAY.timestamp() * 1000))])
        line.checkpoint()
    for at in (1, 2, 3):
        (sink,) = previews.preview_restore(context, "verses", RestoreRequest(checkpoint=at)).sinks
        assert (sink.name, sink.rows_since, sink.goes_back) == ("words", sum(words[at:]), True)
