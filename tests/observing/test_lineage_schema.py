"""Every event that the product can send, held to the JSON schemas of OpenLineage; and events that break them."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.support.column_cases import PARTS, run
from tests.support.openlineage import complaints
from tests.support.openlineage_sent import NAMING, sent
from tidemark.model.checkpoint.failure import FailureReason
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import Interval
from tidemark.ports.observing import LineageEvent
from tidemark.telemetry.openlineage_columns import Naming

Event = dict[str, Any]
HOSTILE = "<script>alert(1)</script>\u202e'\"\\\n\x00 \U0001f600\udcff ../.. %00 {{x}} a=b;c"


@pytest.fixture(scope="module")
def made() -> tuple[Checkpoint, ...]:
    """Folds, joins, windows, late records, several outputs, publications, processes with and without `reads=`."""
    return run(PARTS).checkpoints


def events_of(checkpoint: Checkpoint) -> Iterator[LineageEvent]:
    """START, FAIL for every reason, and COMPLETE."""
    started = LineageEvent(plan=checkpoint.plan, attempt=1, at_ms=1_700_000_000_123)
    yield started
    for reason in FailureReason:
        yield replace(started, failure=reason)
    yield LineageEvent.of(checkpoint, 1_700_000_000_456)


@pytest.mark.parametrize("naming", [NAMING, Naming(jobs="prod", broker="b-1:9093", warehouse="s3://lake/house")])
def test_every_event_of_every_kind_of_operator_keeps_to_the_schemas(
    made: tuple[Checkpoint, ...], naming: Naming
) -> None:
    assert len(made) == len(PARTS)
    kinds = set()
    for checkpoint in made:
        for told in events_of(checkpoint):
            event = sent(told, naming)
            assert complaints(event) == []
            kinds.add(event["eventType"])
            assert ("errorMessage" in event["run"]["facets"]) == (event["eventType"] == "FAIL")
    assert kinds == {"START", "FAIL", "COMPLETE"}


def test_the_facets_of_the_specification_are_all_used(made: tuple[Checkpoint, ...]) -> None:
    """Otherwise the test above would hold nothing to their schemas."""
    found = set[str]()
    for told in (e for checkpoint in made for e in events_of(checkpoint)):
        with_interval = replace(told, plan=replace(told.plan, interval=Interval(start_ms=0, end_ms=86_400_000)))
        for event in (sent(told), sent(with_interval)):
            assert complaints(event) == []
            holders = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
            found |= {
                name for h in holders for part in ("facets", "inputFacets", "outputFacets") for name in h.get(part, {})
            }
    assert {name for name in found if not name.startswith("tidemark_")} == {
        "columnLineage", "errorMessage", "jobType", "nominalTime", "outputStatistics", "processing_engine", "schema",
        "storage", "version",
    }  # fmt: skip
    assert {name for name in found if name.startswith("tidemark_")} == {
        "tidemark_checkpoint", "tidemark_offsets", "tidemark_result", "tidemark_table",
    }  # fmt: skip


def test_hostile_names_are_text_and_nothing_else(made: tuple[Checkpoint, ...]) -> None:
    naming = Naming(jobs=HOSTILE, broker="b:1", warehouse=f"/{HOSTILE}")
    for told in events_of(made[1]):
        plan = replace(told.plan, origin=HOSTILE, pipeline=HOSTILE, fingerprint=HOSTILE)
        found = None if told.completed is None else replace(told.completed, plan=plan)
        event = sent(replace(told, plan=plan, completed=found), naming)
        assert complaints(event) == []
        assert (event["job"]["namespace"], event["job"]["name"]) == (HOSTILE, HOSTILE)
        assert event["run"]["facets"]["tidemark_checkpoint"]["origin"] == HOSTILE
        assert all(o["name"].startswith(f"/{HOSTILE}/") for o in event["outputs"] if o["namespace"] == "file")


def test_the_same_facts_make_the_same_event(made: tuple[Checkpoint, ...]) -> None:
    for told in events_of(made[0]):
        assert sent(told) == sent(told)
    ids = {sent(told)["run"]["runId"] for told in events_of(made[0])}
    assert len(ids) == 1 and ids != {sent(LineageEvent(plan=made[0].plan, attempt=2, at_ms=0))["run"]["runId"]}


def _state(event: Event) -> Event:
    found: Event = next(o for o in event["outputs"] if o["facets"].get("tidemark_table", {}).get("kind") == "state")
    return found


def _without(member: str, of: Callable[[Event], Event]) -> Callable[[Event], object]:
    return lambda event: of(event).pop(member)


def _with(of: Callable[[Event], Event], **values: object) -> Callable[[Event], object]:
    return lambda event: of(event).update(values)


BROKEN: dict[str, Callable[[Event], object]] = {
    "no run": _without("run", lambda e: e),
    "no job name": _without("name", lambda e: e["job"]),
    "no UUID": _with(lambda e: e["run"], runId="1"),
    "unknown type": _with(lambda e: e, eventType="BEGIN"),
    "a time without a zone": _with(lambda e: e, eventTime="2024-01-01T00:00:00"),
    "no producer of a facet": _without("_producer", lambda e: _state(e)["facets"]["version"]),
    "a member that is missing": _without("storageLayer", lambda e: _state(e)["facets"]["storage"]),
    "a member that is misspelt": _with(lambda e: _state(e)["outputFacets"]["outputStatistics"], rowcount=1),
    "a text for a number": _with(lambda e: _state(e)["outputFacets"]["outputStatistics"], rowCount="1"),
    "a schema that does not exist": _with(
        lambda e: _state(e)["facets"]["version"],
        _schemaURL="https://openlineage.io/spec/facets/9-0-0/DatasetVersionDatasetFacet.json#/$defs/DatasetVersionDatasetFacet",
    ),
    "the schema of another facet": _with(
        lambda e: _state(e)["facets"]["version"],
        _schemaURL="https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/DatasetFacet",
    ),
    "a facet of nobody": lambda e: e["run"]["facets"].update(checkpoint=e["run"]["facets"].pop("tidemark_checkpoint")),
    "lineage without fields": _without("fields", lambda e: _state(e)["facets"]["columnLineage"]),
    "a column without input fields": _with(lambda e: _state(e)["facets"]["columnLineage"], fields={"a": {}}),
    "an input field without a dataset": _with(
        lambda e: _state(e)["facets"]["columnLineage"], fields={"a": {"inputFields": [{"name": "x", "field": "y"}]}}
    ),
    "a member of a dataset": _with(_state, kind="table"),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_an_event_against_the_specification_is_found(
    made: tuple[Checkpoint, ...], broken: Callable[[Event], object]
) -> None:
    event = copy.deepcopy(sent(LineageEvent.of(made[0], 0)))
    assert complaints(event) == []
    broken(event)
    assert complaints(event)
