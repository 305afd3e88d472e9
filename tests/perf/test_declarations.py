"""Benchmarks look for their pipelines in their own folder, where every file is imported and each name stands once."""

from pathlib import Path

import pytest

from tidemark.environment import find_pipeline
from tidemark.errors import NotFoundError


def test_each_pipeline_of_the_benchmarks_is_declared_once() -> None:
    with pytest.raises(NotFoundError, match="no pipeline 'nobody'") as caught:
        find_pipeline("nobody", [Path(__file__).resolve().parents[2] / "benchmarks"])
    assert "bench-8000000" in caught.value.next
