"""Trigger forms: every field says what it is for, few are required, and an empty one changes nothing."""

import json
import re
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]
ROOT = Path(__file__).resolve().parents[2]
REQUIRED = {
    "savepoint": ["pipeline", "name"],
    "restore": ["pipeline"],
    "fork": ["pipeline", "source", "name"],
    "patch": ["pipeline", "source", "name"],
    "transform": ["pipeline", "source", "fork"],
    "backfill": ["pipeline", "mode"],
    "stop": ["pipeline"],
    "resume": ["pipeline"],
    "promote": ["pipeline", "name"],
    "close": ["pipeline", "name"],
    "hold": ["pipeline"],
    "erase": ["pipeline", "uid", "key"],
    "redrive": ["pipeline", "uid"],
    "flights": [],
}


@pytest.fixture
def form(airflow_home: Path) -> Any:
    """The fields of a DAG of the project, by its id."""
    from airflow.dag_processing.dagbag import DagBag

    found = DagBag(ROOT / "dags")
    assert found.import_errors == {}
    return lambda dag: {name: found.dags[dag].params.get_param(name) for name in found.dags[dag].params}


def model(dag: str) -> type[BaseModel]:
    from tidemark.airflow.backfill_conf import BackfillConf
    from tidemark.airflow.erase_dags import EraseConf
    from tidemark.airflow.fork_dags import ForkConf
    from tidemark.airflow.hold_dags import HoldConf
    from tidemark.airflow.patch_dags import PatchConf
    from tidemark.airflow.redrive_dags import RedriveConf
    from tidemark.airflow.restore_dags import RestoreConf
    from tidemark.airflow.savepoint_dags import SavepointConf
    from tidemark.airflow.stop_dags import ResumeConf, StopConf
    from tidemark.airflow.timeline_dags import CloseConf, PromoteConf
    from tidemark.airflow.transform_dags import TransformConf
    from tidemark.airflow.trigger_form import RunConf

    kept: dict[str, type[BaseModel]] = {
        "savepoint": SavepointConf,
        "restore": RestoreConf,
        "fork": ForkConf,
        "patch": PatchConf,
        "transform": TransformConf,
        "backfill": BackfillConf,
        "stop": StopConf,
        "resume": ResumeConf,
        "promote": PromoteConf,
        "close": CloseConf,
        "hold": HoldConf,
        "erase": EraseConf,
        "redrive": RedriveConf,
        "flights": RunConf,
    }
    return kept[dag]


@pytest.mark.parametrize("dag", REQUIRED)
def test_every_field_tells_what_it_is_for(form: Any, dag: str) -> None:
    fields = form(dag)
    assert set(fields) == set(model(dag).model_fields)
    assert [name for name, field in fields.items() if not field.schema["title"] or not field.description] == []
    assert [name for name, field in fields.items() if "null" not in field.schema["type"]] == REQUIRED[dag]
    sections = [section for section, _ in groupby(field.schema.get("section") for field in fields.values())]
    assert (sections[0], len(sections)) == (None, len(set(sections))), "a section in two places is drawn twice"


@pytest.mark.parametrize("dag", REQUIRED)
def test_a_field_that_is_left_empty_is_one_that_was_not_there(form: Any, dag: str) -> None:
    from tidemark.airflow.form_answers import validate_conf
    from tidemark.errors import UsageError

    given = {name: "x" if name == "name" else field.value for name, field in form(dag).items() if name in REQUIRED[dag]}
    empty = {name: None for name in form(dag) if name not in given}
    assert validate_conf(model(dag), given | empty) == validate_conf(model(dag), given)
    with pytest.raises(UsageError, match="misspelt"):
        validate_conf(model(dag), given | {"misspelt": None})


def test_dags_are_found_by_the_pipelines_that_they_are_for(airflow_home: Path) -> None:
    from airflow.dag_processing.dagbag import DagBag

    assert {name: set(dag.tags) for name, dag in DagBag(ROOT / "dags").dags.items()} == dict.fromkeys(
        ("flights", "flights_compact", "fork", "patch", "transform", "backfill", "retention", "watch")
        + ("stop", "resume", "promote", "close", "hold", "erase", "redrive"),
        {"tidemark", "flights"},
    ) | {name: {"tidemark", name} for name in ("weather", "punctuality")} | dict.fromkeys(
        ("savepoint", "restore"), {"tidemark", "flights", "weather"}
    )


def requests() -> list[tuple[str, str, str, Any]]:
    """What the how-tos send to Airflow: page, method, path below `/api/v2/`, body."""
    found = []
    for page in sorted((ROOT / "docs" / "how-to").glob("*.md")):
        for block in re.findall(r"^```http\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE):
            for asked in re.split(r"\n\n", block.strip()):
                line, body = asked.split("\n", 1)
                method, path = line.split(" ")
                found.append((page.name, method, path.removeprefix("/api/v2/"), json.loads(body)))
    return found


@pytest.mark.parametrize(("page", "method", "path", "body"), requests())
def test_what_a_page_sends_is_taken(form: Any, page: str, method: str, path: str, body: Any) -> None:
    from airflow.api_fastapi.core_api.datamodels.backfills import BackfillPostBody
    from airflow.api_fastapi.core_api.datamodels.dag_run import TriggerDAGRunPostBody
    from airflow.api_fastapi.core_api.datamodels.hitl import UpdateHITLDetailPayload
    from airflow.sdk.definitions.param import ParamsDict

    from tidemark.airflow.form_answers import validate_conf

    kind = f"{method} {re.sub(r'(?<=/)[{]?[a-z]+[}]?(?=/dagRuns|/taskInstances|/approve)', '*', path)}"
    known: dict[str, tuple[type[BaseModel], Any]] = {
        "POST dags/*/dagRuns": (TriggerDAGRunPostBody, body.get("conf")),
        "POST backfills": (BackfillPostBody, body.get("dag_run_conf")),
        "PATCH dags/*/dagRuns/*/taskInstances/approve/-1/hitlDetails": (UpdateHITLDetailPayload, None),
    }
    payload, conf = known[kind]
    payload.model_validate(body)
    if conf is not None:
        dag = body.get("dag_id") or path.split("/")[1]
        assert dag in REQUIRED, page
        params = ParamsDict(form(dag))
        params.update(conf)
        params.validate()
        validate_conf(model(dag), conf)


def test_each_page_of_a_restore_point_has_a_request() -> None:
    forms = (
        "savepoint",
        "restore",
        "fork-and-promote",
        "patch-a-savepoint",
        "transform-a-savepoint",
        "backfill-from-a-savepoint",
    )
    assert {f"{name}.md" for name in (*forms, "schedule-with-airflow")} <= {page for page, *_ in requests()}
