"""The weather demo's registry: a process of the stack, whose ids do not depend on when it was started."""

from pathlib import Path

import pytest

from devstack import control, processes
from devstack.weather.registry_service import NAME, start_registry
from devstack.weather.weather_records import REFERENCES
from tests.support.schema_registry import needs_registry
from tidemark.settings import load_settings

pytestmark = [needs_registry(), pytest.mark.slow, pytest.mark.ports]


def test_it_gives_the_same_ids_after_the_stack_was_stopped(tmp_path: Path) -> None:
    settings = load_settings(root=tmp_path, home=tmp_path / "home")

    def ids() -> list[int]:
        registry = start_registry(settings)
        return [registry.register(f"{topic.name}-value", topic.schema) for topic in REFERENCES]

    try:
        first, address = ids(), start_registry(settings).address
        assert ids() == first, "it runs, and knows them"
        record = processes.load_record(settings.home, NAME)
        control.down(settings)
        assert record is not None and not record.is_running
        assert ids() == first and start_registry(settings).address == address
    finally:
        control.down(settings)
