"""A run that was triggered within the second is found at once, on SQLite; other databases keep their clock."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

pytestmark = [pytest.mark.airflow]
IN_THE_MIDDLE_OF_A_SECOND = """
import sys, time
from datetime import UTC, datetime
from sqlalchemy import Column, DateTime, MetaData, Table, create_engine, func, insert, select
from sqlalchemy.dialects import postgresql

if "precise" in sys.argv:
    from tidemark.airflow.sqlite_now import with_milliseconds
    with_milliseconds()
    with_milliseconds()
runs = Table("runs", MetaData(), Column("run_after", DateTime))
engine = create_engine("sqlite://")
runs.create(engine)
time.sleep((1.3 - time.time() % 1) % 1)
with engine.begin() as session:
    session.execute(insert(runs).values(run_after=datetime.now(UTC).replace(tzinfo=None)))
    time.sleep(0.01)
    due = select(runs.c.run_after).where(runs.c.run_after <= func.now())
    print(len(session.execute(due).all()), session.scalar(select(func.now())).isoformat())
print(due.compile(dialect=postgresql.dialect()))
"""


def test_what_is_due_within_the_second_is_found() -> None:
    found = {mode: _said(mode) for mode in ("as SQLAlchemy has it", "precise")}
    assert [lines[0].split()[0] for lines in found.values()] == ["0", "1"]
    told = datetime.fromisoformat(found["precise"][0].split()[1]).replace(tzinfo=UTC)
    assert told.microsecond >= 300_000
    assert abs(datetime.now(UTC) - told) < timedelta(minutes=1)
    assert found["precise"][1:] == found["as SQLAlchemy has it"][1:]
    assert "now()" in found["precise"][-1]


def _said(mode: str) -> list[str]:
    command = [sys.executable, "-c", IN_THE_MIDDLE_OF_A_SECOND, mode]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
