"""A backfill of more intervals than Airflow maps by default (1,024), which takes minutes: part of `make test-more`."""

import pytest

from tests.airflow.conftest import Trigger
from tests.support.airflow import AirflowPipeline
from tests.support.backfills import run_long_backfill

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.filterwarnings("default"),
    pytest.mark.slow,
    pytest.mark.timeout(2400),
]


def test_a_backfill_of_a_year_of_intervals_is_killed_and_goes_on(
    world: AirflowPipeline,
    trigger_backfill: Trigger,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_long_backfill(1100, 10, trigger_backfill, monkeypatch)
