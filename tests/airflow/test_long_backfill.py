"""A backfill of more intervals than Airflow maps by default (1,024), which takes minutes: part of `make test-more`."""

from typing import Any

import pytest

from tests.airflow.test_backfill import long_backfill, trigger  # noqa: F401  (a fixture)
from tests.support.airflow import AirflowPipeline

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.filterwarnings("default"),
    pytest.mark.slow,
    pytest.mark.timeout(2400),
]


def test_a_backfill_of_a_year_of_intervals_is_killed_and_goes_on(
    world: AirflowPipeline,
    trigger: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long_backfill(1100, 10, trigger, monkeypatch)
