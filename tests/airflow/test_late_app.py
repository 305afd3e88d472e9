"""An API server that starts: it reads what its first answer needs in the background, and starts whatever that finds."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.airflow_disk import AirflowDiskPipeline
from tidemark.operations import checkpoints
from tidemark.ports import PlanRequest
from tidemark.web import history_cache

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]


@contextmanager
def started() -> Iterator[Any]:
    """A client of a server that enters the plugin's application as Airflow does, after the preparation has ended."""
    from airflow.api_fastapi.app import lifespan
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    from tidemark.airflow.ui.plugin import TidemarkPlugin

    root = FastAPI(lifespan=lifespan)
    [part] = TidemarkPlugin().fastapi_apps
    root.mount(part["url_prefix"], part["app"])
    with TestClient(root) as client:
        for thread in threading.enumerate():
            if thread.name == "tidemark-prepare":
                thread.join(60)
                assert not thread.is_alive()
        yield client


def test_a_server_knows_the_newest_checkpoints_before_anybody_asks(plugin: Any, disk: AirflowDiskPipeline) -> None:
    disk.drive("b1", 3)
    checkpoints.run_once(disk.open_context(), "trips", PlanRequest(origin="test"))
    with started() as client:
        known = history_cache.list_known(plugin.shared.shared_context(), "trips")
        assert [entry.id for entry in known] == [1]
        assert client.get("/tidemark/pipelines").status_code == 401


def test_a_server_starts_although_the_warehouse_cannot_be_read(
    plugin: Any, disk: AirflowDiskPipeline, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk.drive("b1", 3)
    checkpoints.run_once(disk.open_context(), "trips", PlanRequest(origin="test"))
    record = Path(str(disk.open_context().settings.warehouse)) / "trips/timelines/t1/000000000001.json"
    record.unlink()
    record.mkdir()
    with caplog.at_level(logging.WARNING), started() as client:
        assert client.get("/tidemark/pipelines").status_code == 401
    assert "could not be read when the server started" in caplog.text
