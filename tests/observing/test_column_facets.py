"""The facet `columnLineage` in the events of a checkpoint with every kind of operator, held to the specification."""

from typing import Any

import pytest

from tests.support.column_cases import PARTS, PIPELINE, run
from tests.support.openlineage import complaints
from tests.support.openlineage_sent import sent
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.ports.observing import LineageEvent

Event = dict[str, Any]


@pytest.fixture(scope="module")
def made() -> Checkpoint:
    return run(PARTS).checkpoints[1]


@pytest.fixture(scope="module")
def event(made: Checkpoint) -> Event:
    return sent(LineageEvent.of(made, 0))


def outputs(event: Event) -> dict[tuple[str, str], Event]:
    """The facets of the tables that were written, by kind and uid."""
    found = [output.get("facets", {}) for output in event["outputs"]]
    return {(f["tidemark_table"]["kind"], f["tidemark_table"]["uid"]): f for f in found if "tidemark_table" in f}


def fields(facet: Event, column: str) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """The input fields of a column: topic and field, with the transformations."""
    return {
        (one["name"], one["field"]): [(t["type"], t["subtype"]) for t in one["transformations"]]
        for one in facet["fields"][column]["inputFields"]
    }


def test_every_state_and_every_sink_has_it_and_dead_letters_have_not(made: Checkpoint, event: Event) -> None:
    assert complaints(event) == []
    written = outputs(event)
    assert {uid for kind, uid in written if kind == "state"} >= {"shops", "countries", "customers", "paid", "loyal"}
    for (kind, _), facets in written.items():
        assert ("columnLineage" in facets) == (kind != "dead letters")
    facet = written["state", "shops"]["columnLineage"]
    assert facet["_schemaURL"].endswith("/1-2-0/ColumnLineageDatasetFacet.json#/$defs/ColumnLineageDatasetFacet")


def test_its_columns_are_those_of_the_table(made: Checkpoint, event: Event) -> None:
    written = outputs(event)
    schema = made.plan.schemas["shops"]
    columns = [k.name for k in schema.keys] + [name for f in schema.fields for name, _ in f.columns]
    assert [f["name"] for f in written["state", "shops"]["schema"]["fields"]] == columns
    assert set(written["state", "shops"]["columnLineage"]["fields"]) == {*columns} >= {"mean__sum", "mean__count"}
    paid = written["delta", "paid"]
    assert [(f["name"], f["type"]) for f in paid["schema"]["fields"]] == [
        ("order", "STRING"),
        ("shop", "STRING"),
        ("paid", "BIGINT"),
    ]
    assert set(paid["columnLineage"]["fields"]) == {"order", "shop", "paid"}


def test_the_fields_of_an_input_are_those_of_its_lineage(event: Event) -> None:
    (orders,) = (i for i in event["inputs"] if i["name"] == "orders")
    assert [f["name"] for f in orders["facets"]["schema"]["fields"]] == [
        "id", "customer", "shop", "cents", "note", "place.city", "place.zone", "at",
    ]  # fmt: skip


def test_it_leads_from_the_table_to_the_fields_of_the_topics(event: Event) -> None:
    written = {name: facets.get("columnLineage", {}) for name, facets in outputs(event).items()}
    shops = written["state", "shops"]
    assert fields(shops, "mean__sum") == {("orders", "cents"): [("DIRECT", "AGGREGATION")]}
    assert fields(shops, "best_note") == {
        ("orders", "note"): [("DIRECT", "IDENTITY")],
        ("orders", "cents"): [("INDIRECT", "SORT")],
        ("orders", "at"): [("INDIRECT", "SORT")],
    }
    assert fields(shops, "orders") == {}, "a count reads no field; its key and its condition are those of the dataset"
    assert {(one["field"], t["subtype"]) for one in shops["dataset"] for t in one["transformations"]} == {
        ("shop", "GROUP_BY"),
        ("cents", "FILTER"),
    }
    country = fields(written["state", "countries"], "country")
    assert country["customers", "country"] == [("DIRECT", "TRANSFORMATION")]
    assert {place: t for place, t in country.items() if place[0] == "orders"} == {}, "the join decides the rows, too"
    assert fields(written["delta", "paid"], "paid") == {("payments", "paid"): [("DIRECT", "IDENTITY")]}


def test_what_an_opaque_function_may_read_is_said_to_be_possible(event: Event) -> None:
    notes = outputs(event)["delta", "notes"]["columnLineage"]["fields"]["text"]["inputFields"]
    assert {one["field"] for one in notes} == {
        "id", "customer", "shop", "cents", "note", "place.city", "place.zone", "at",
    }  # fmt: skip
    assert all("possibly" in t["description"] for one in notes for t in one["transformations"])


def test_start_and_fail_have_no_outputs_and_so_no_columns(made: Checkpoint) -> None:
    start = sent(LineageEvent(plan=made.plan, attempt=1, at_ms=0))
    assert complaints(start) == [] and start["outputs"] == []


@pytest.mark.parametrize(
    "broken", [{"fields": {"a": {}}}, {"fields": {"a": {"inputFields": [{"name": "x", "field": "y"}]}}}, {}]
)
def test_a_facet_against_the_specification_is_found(event: Event, broken: Event) -> None:
    facet = outputs(event)["state", "shops"]["columnLineage"]
    kept = {name: facet[name] for name in ("_producer", "_schemaURL")}
    outputs_ = [{"namespace": "file", "name": "/x", "facets": {"columnLineage": kept | broken}}]
    assert complaints(event | {"outputs": outputs_})


def test_the_pipeline_has_no_secret_and_no_value_in_the_facets(event: Event) -> None:
    text = str([facets.get("columnLineage") for facets in outputs(event).values()])
    assert not any(word in text for word in ("ann", "note 1", "Ulm"))
    assert PIPELINE.name in event["job"]["name"]
