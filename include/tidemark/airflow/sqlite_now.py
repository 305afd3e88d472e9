"""Gives Airflow's SQLite a clock with milliseconds: without it, a triggered DAG run waits for the next full second.

Airflow starts a run once `run_after <= now()`. SQLAlchemy writes `now()` for SQLite as CURRENT_TIMESTAMP, which has
whole seconds, and SQLite compares texts: 16:00:31.313903 is after 16:00:31 until the second is over, half a second on
average. Other databases are not touched: their `now()` has microseconds.
"""

from typing import Any

from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import now

_PRECISE = "STRFTIME('%Y-%m-%d %H:%M:%f000', 'now')"
"""The format in which SQLAlchemy stores times, with six digits."""


def with_milliseconds() -> None:
    """Makes SQLAlchemy compile `now()` this way for SQLite in this process; you can call it repeatedly."""
    compiles(now, "sqlite")(_precise)


def _precise(_element: object, _compiler: object, **_: Any) -> str:  # noqa: ANN401
    return _PRECISE
