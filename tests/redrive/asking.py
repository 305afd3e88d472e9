"""Asks for dead letters of an operator, as a person does, in tests without a command line."""

from collections.abc import Callable

from tidemark.coordinator.checkpoints.coordinator import CheckpointCoordinator
from tidemark.coordinator.records.redrive_requests import RedriveRequests
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.redrive import LetterRow, RedriveRecord, group_rows, letter_place
from tidemark.testing.twin.tables import PlacedRows


def rows_of(made: Checkpoint, uid: str, tables: PlacedRows) -> set[LetterRow]:
    """The rows that a checkpoint wrote into an operator's dead-letter table."""
    ack = made.ack(uid)
    assert ack is not None
    places = [(at, letter_place(row)) for at, row in tables.placed_rows(ack.dead_letters)]
    return {
        LetterRow(at, topic, made.plan.topic_ids[topic], partition, offset, path)
        for at, (topic, partition, offset, path) in places
        if at == made.id
    }


def ask(
    coordinator: CheckpointCoordinator,
    uid: str,
    rows: set[LetterRow],
    ids: Callable[[], str],
    *,
    out_of_order: bool = True,
) -> RedriveRecord:
    """Puts a request for rows on the live timeline."""
    draft = RedriveRecord(
        number=0,
        timeline=coordinator.timelines.live(),
        uid=uid,
        rows=group_rows(rows),
        out_of_order=out_of_order,
        owner="test",
        note="",
        origin="test",
        at_ms=0,
        write_id=ids(),
    )
    return RedriveRequests(coordinator.objects).put(draft)
