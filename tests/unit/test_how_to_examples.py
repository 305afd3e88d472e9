"""The Python of a how-to runs as it stands: block after block in one namespace, with the asserts that it shows."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


PAGES = (
    "aggregates",
    "evolve-state",
    "expire-state",
    "filter-and-reshape",
    "join-two-topics",
    "windows",
    "late-data",
    "keep-state-with-process",
    "process-several-inputs",
    "quality-gate",
    "read-a-debezium-topic",
    "several-sources-and-broadcast",
    "test-a-pipeline",
    "timers",
    "trace-columns",
    "types",
    "write-a-pipeline",
)
RUN_ELSEWHERE = {
    "choose-a-schedule": "airflow/test_schedules.py",
    "join-weather-to-flights": "weather/test_weather_on_spark.py",
    "publish-a-delta-table": "publications/test_page.py",
    "publish-to-a-compacted-topic": "publications/test_topics.py",
    "publish-to-postgresql": "publications/test_postgres.py",
    "read-avro-from-a-registry": "unit/formats/test_errors_page.py",
    "read-other-formats": "unit/formats/test_page.py",
    "upgrade-with-state": "cli/test_savepoint_page.py",
}
"""Pages whose examples need more than this test has, and the test that runs them."""

DECLARES = re.compile(r"\b(Pipeline|Fold|FlatMap|Process)\(|\bstate\.(Keyed|Operator)\b")


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = BLOCK.findall((ROOT / f"docs/how-to/{page}.md").read_text())
    assert blocks
    # Annotations of a dataclass are looked up in its module.
    module = ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)
    for block in blocks:
        exec(compile(block, f"{page}.md", "exec"), vars(module))  # noqa: S102


def test_every_page_that_declares_a_pipeline_runs() -> None:
    pages = {p.stem: "\n".join(BLOCK.findall(p.read_text())) for p in (ROOT / "docs/how-to").glob("*.md")}
    assert {name for name, code in pages.items() if DECLARES.search(code)} == {*PAGES, *RUN_ELSEWHERE}
    for page, test in RUN_ELSEWHERE.items():
        assert f"{page}.md" in (ROOT / "tests" / test).read_text()


def test_every_pipeline_of_a_page_is_replayed() -> None:
    for page in PAGES:
        assert "replay(" in "".join(BLOCK.findall((ROOT / f"docs/how-to/{page}.md").read_text())), page
