"""Lineage events by the client of OpenLineage and its own variables, and an installation without it."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.support.openlineage import complaints, receiving
from tests.support.trips import TripsPipeline
from tidemark.errors import UsageError
from tidemark.operations import checkpoints, reads
from tidemark.ports import PlanRequest

BOTH = ["START", "COMPLETE"]


@pytest.fixture(autouse=True)
def variables() -> Iterator[None]:
    """Puts the environment back: the client of OpenLineage writes variables, too."""
    with mock.patch.dict(os.environ):
        yield


def run(world: TripsPipeline, **settings: Any) -> None:
    world.drive("a")
    checkpoints.run_once(world.context(**settings), "trips", PlanRequest(origin="test"))
    assert reads.list_checkpoints(world.context(), "trips")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def kinds(events: list[dict[str, Any]]) -> list[str]:
    assert [c for event in events for c in complaints(event)] == []
    return [event["eventType"] for event in events]


def test_the_variables_of_openlineage_send_events(world: TripsPipeline) -> None:
    with receiving() as receiver:
        os.environ |= {"OPENLINEAGE_URL": receiver.address, "OPENLINEAGE_API_KEY": "k-1"}
        run(world)
    assert kinds(receiver.events) == BOTH
    assert [path for path, _ in receiver.requests] == ["/api/v1/lineage"] * 2
    assert {headers["Authorization"] for _, headers in receiver.requests} == {"Bearer k-1"}
    assert {event["job"]["namespace"] for event in receiver.events} == {"tidemark"}


def test_a_file_of_openlineage_sends_to_several_receivers_and_adds_tags(world: TripsPipeline, tmp_path: Path) -> None:
    file, config = tmp_path / "events", tmp_path / "openlineage.yml"
    with receiving() as receiver:
        config.write_text(f"""
transport:
  type: composite
  transports:
    kept: {{type: file, log_file_path: "{file}", append: true}}
    sent: {{type: http, url: "{receiver.address}", endpoint: lineage}}
tags:
  job: {{team: buses}}
""")
        os.environ["OPENLINEAGE_CONFIG"] = str(config)
        run(world)
    assert kinds(receiver.events) == kinds(lines(file)) == BOTH
    assert [path for path, _ in receiver.requests] == ["/lineage"] * 2
    tags = [tag for event in receiver.events for tag in event["job"]["facets"]["tags"]["tags"]]
    assert [(tag["key"], tag["value"]) for tag in tags] == [("team", "buses")] * 2


def test_a_transport_in_the_background_is_awaited(world: TripsPipeline) -> None:
    with receiving() as receiver:
        os.environ |= {"OPENLINEAGE__TRANSPORT__TYPE": "async_http", "OPENLINEAGE__TRANSPORT__URL": receiver.address}
        run(world)
        assert kinds(receiver.events) == BOTH


def test_the_console_is_a_receiver(world: TripsPipeline, caplog: pytest.LogCaptureFixture) -> None:
    os.environ["OPENLINEAGE__TRANSPORT__TYPE"] = "console"
    with caplog.at_level(logging.INFO, "openlineage.client.transport.console"):
        run(world)
    told = [r.getMessage() for r in caplog.records if r.name == "openlineage.client.transport.console"]
    assert kinds([json.loads(text) for text in told]) == BOTH


def test_filters_of_openlineage_apply(world: TripsPipeline, tmp_path: Path) -> None:
    file, config = tmp_path / "events", tmp_path / "openlineage.yml"
    config.write_text(f"""
transport: {{type: file, log_file_path: "{file}", append: true}}
filters: [{{type: exact, match: trips}}]
""")
    os.environ["OPENLINEAGE_CONFIG"] = str(config)
    run(world)
    assert not file.exists()


@pytest.mark.parametrize("off", ["true", "True "])
def test_openlineage_disabled_sends_nothing(world: TripsPipeline, off: str) -> None:
    with receiving() as receiver:
        os.environ |= {"OPENLINEAGE_URL": receiver.address, "OPENLINEAGE_DISABLED": off}
        run(world)
        assert world.context().observers.lineage is None
    assert receiver.requests == []


def test_the_setting_of_tidemark_wins_and_means_what_it_meant(world: TripsPipeline) -> None:
    with receiving() as receiver, receiving() as other:
        os.environ |= {
            "OPENLINEAGE_URL": other.address,
            "OPENLINEAGE_API_KEY": "theirs",
            "OPENLINEAGE_DISABLED": "true",
        }
        run(world, openlineage=receiver.address)
    assert kinds(receiver.events) == BOTH and other.requests == []
    assert all("Authorization" not in headers for _, headers in receiver.requests)
    assert all("tags" not in event["run"]["facets"] for event in receiver.events)


def test_a_password_of_netrc_does_not_replace_the_key(world: TripsPipeline, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password secret\n")
    os.environ["NETRC"] = str(netrc)
    with receiving() as receiver:
        run(world, openlineage=receiver.address, openlineage_api_key="ours")
        run(world, openlineage=receiver.address)
    told = [headers.get("Authorization") for _, headers in receiver.requests]
    assert told == ["Bearer ours", "Bearer ours", None, None]


@pytest.mark.parametrize(
    "broken",
    [
        {"OPENLINEAGE__TRANSPORT__TYPE": "nothing.of.the.kind"},
        {"OPENLINEAGE__TRANSPORT__TYPE": "http"},
        {"OPENLINEAGE_URL": "no url"},
        {"OPENLINEAGE_URL": "http://127.0.0.1:1"},
    ],
)
def test_a_broken_configuration_fails_no_run(
    world: TripsPipeline, logged: list[dict[str, Any]], waits: list[float], broken: dict[str, str]
) -> None:
    os.environ |= broken
    run(world)
    assert [e["what"] for e in logged if e["event"] == "observer_given_up"] == ["lineage"]
    assert sum(waits) <= 2.0


def test_without_the_package_a_run_is_refused_before_it_plans(
    world: TripsPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.drive("a")
    context = world.context(openlineage="file:told/lineage.jsonl")
    monkeypatch.setattr("tidemark.extras.find_spec", lambda name: None)
    with pytest.raises(UsageError) as refused:
        checkpoints.run_once(context, "trips", PlanRequest(origin="test"))
    assert str(refused.value).splitlines() == [
        "the package openlineage is not installed",
        "Safe: nothing was read or written.",
        "Next: pip install 'tidemark[openlineage]'",
    ]
    assert not context.warehouse.has_planned("trips")


def test_variables_for_other_programs_need_no_package(
    world: TripsPipeline, monkeypatch: pytest.MonkeyPatch, logged: list[dict[str, Any]]
) -> None:
    os.environ["OPENLINEAGE_URL"] = "http://127.0.0.1:1"
    monkeypatch.setattr("tidemark.extras.find_spec", lambda name: None)
    run(world)
    (told,) = [e for e in logged if e["event"] == "lineage_not_sent"]
    assert told["next"] == "pip install 'tidemark[openlineage]'"


WRITER = """
import sys
from pathlib import Path
from openlineage.client.event_v2 import Job, Run, RunEvent
from tidemark.telemetry.openlineage import file_transport
for n in range(60):
    job = Job(sys.argv[2], "x" * 30_000)
    run = Run("00000000-0000-5000-8000-000000000000")
    file_transport(Path(sys.argv[1])).emit(RunEvent(eventTime="2024-01-01T00:00:00Z", run=run, job=job))
"""


def test_processes_do_not_mix_up_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "new" / "events.jsonl"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(file), name], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        )
        for name in ("one", "two")
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    found = [event["job"]["namespace"] for event in lines(file)]
    assert sorted(found) == ["one"] * 60 + ["two"] * 60
