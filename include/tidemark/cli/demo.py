"""`make demo`: the real flights of 2013, checkpointed month by month through Airflow, and every row checked.

Run as `python -m tidemark.cli.demo`. May be repeated: what is there is left alone, what is missing is added. The stack
keeps running at the end, so that there is something to look at.
"""

import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from tidemark.cli.airflow_api import AirflowApi
from tidemark.cli.demo_backfill import Backfill
from tidemark.cli.demo_oracle import KEYS, Oracle, Rows, differences
from tidemark.cli.demo_rotations import RotationOracle
from tidemark.cli.output import complain, human_bytes, note, show_rows, when
from tidemark.cli.topic import DataSet, load
from tidemark.errors import NotFoundError, TidemarkError
from tidemark.model.checkpoint import Checkpoint
from tidemark.settings import Settings, load_settings
from tidemark.stack import control
from tidemark.stack.credentials import ADMIN, Credentials, load_credentials
from tidemark.wiring import Runtime, open_runtime

PIPELINE, COMPACTION = "flights", "flights_compact"
NEW_YORK = ZoneInfo("America/New_York")
YEAR, MONTHS = 2013, 12
AIRCRAFT, DISTANCE, WITHOUT_TAIL_NUMBER = 4_043, 350_217_607, 2_512
"""What is known of the whole year, whoever computes it."""


class MismatchError(TidemarkError):
    """The state is not what the data set says it must be."""


def main() -> int:
    """Runs the demo; the exit code is 0 when every row agrees."""
    began = time.monotonic()
    try:
        demonstrate(load_settings())
    except TidemarkError as error:
        complain(error)
        return error.code
    except KeyboardInterrupt:
        note("interrupted\nSafe: every completed checkpoint is intact.\nNext: make demo again, or tidemark down.")
        return 130
    note(f"\nall of it took {time.monotonic() - began:.0f} s; tidemark down stops the stack")
    return 0


def demonstrate(settings: Settings) -> None:
    """Starts the stack, loads, checkpoints, checks, and prints what came of it.

    Raises:
        TidemarkError: anything went wrong, a mismatch included.
    """
    _head("the stack")
    control.up(settings, report=note)
    _head("the input")
    for data_set in (DataSet.AIRLINES, DataSet.PLANES, DataSet.FLIGHTS):
        load(data_set)
    runtime = open_runtime(settings)
    before = _completed(runtime)
    _head("twelve DAG runs")
    login = _login(settings)
    checkpoint_year(settings, AirflowApi(settings.airflow_address, ADMIN, login.airflow_admin_password))
    checkpoints = _completed(runtime)
    added = len(checkpoints) - len(before)
    note(f"{added} checkpoints were added" if added else "nothing was added: every month is covered already")
    _head("every row, recomputed from the data set")
    check(runtime, checkpoints)
    _head("checkpoints")
    show_rows([_row(found) for found in checkpoints], as_json=False)
    sys.stdout.write(f"\nAirflow  {settings.airflow_address}/dags/{PIPELINE}\n")
    sys.stdout.write(f"login    {ADMIN} / {login.airflow_admin_password}\n")


def checkpoint_year(settings: Settings, api: AirflowApi) -> None:
    """Has Airflow run the twelve months as a native backfill; leaves months alone that have succeeded.

    Raises:
        TidemarkError: a DAG run failed; the message has the end of its log.
    """
    first, last = _month(1), _month(MONTHS)
    backfill = Backfill(api=api, dag=PIPELINE, first=first, last=last, runs=MONTHS, dead=lambda: _dead(settings))
    backfill.pause(COMPACTION, False)
    backfill.pause(PIPELINE, False)
    if sum(run["state"] == "success" for run in backfill.dag_runs()) == MONTHS:
        note(f"all {MONTHS} DAG runs have succeeded before")
        return
    backfill.wait(backfill.start())


def check(runtime: Runtime, checkpoints: Sequence[Checkpoint]) -> None:
    """Compares every row of both tables at three checkpoints with what the data set says.

    Args:
        runtime: reads the state.
        checkpoints: oldest first.

    Raises:
        MismatchError: rows or totals differ; the message names them.
    """
    oracle = Oracle()
    rotations = RotationOracle(oracle.flights)
    monthly = [found for found in checkpoints if found.interval is not None]
    if not monthly:
        raise NotFoundError(
            f"no checkpoint of {PIPELINE} was made for a month",
            next="the demo wants a warehouse of its own: set TIDEMARK_HOME to an empty folder, then make demo.",
        )
    wrong: list[str] = []
    for place in sorted({0, (len(monthly) - 1) // 2, len(monthly) - 1}):
        wrong += _compare(runtime, monthly[place], oracle)
        wrong += _compare_rotations(runtime, monthly[place], rotations)
    wrong += _totals(runtime, checkpoints, oracle)
    if wrong:
        raise MismatchError(
            "\n".join([*wrong, "the state is not what the data set says"]),
            safe="nothing was changed by the comparison.",
            next="this is a defect of Tidemark: report it, with the rows above.",
        )


def _compare(runtime: Runtime, checkpoint: Checkpoint, oracle: Oracle) -> list[str]:
    name, cut = checkpoint.plan.name, _cut(checkpoint)
    wrong: list[str] = []
    for uid, keys in KEYS.items():
        expected = oracle.expected(uid, cut)
        found: Rows = {
            tuple(row[key] for key in keys): row
            for row in runtime.state_table(PIPELINE, uid, checkpoint=checkpoint.id).to_pylist()
        }
        told = differences(expected, found)
        note(f"{name} (flights before {cut:%Y-%m-%d %H:%M} UTC), {uid}: {_verdict(told, len(expected))}")
        wrong += [f"{name} {uid} {line}" for line in told]
    return wrong


def _compare_rotations(runtime: Runtime, checkpoint: Checkpoint, oracle: RotationOracle) -> list[str]:
    """The process operator's state and its sink, as of a checkpoint, against a loop over the data set."""
    name, wrong = checkpoint.plan.name, list[str]()
    state, alerts = oracle.expected(_cut(checkpoint))
    kept = runtime.state_table(PIPELINE, "rotations", checkpoint=checkpoint.id).to_pylist()
    sent = runtime.sink_table(PIPELINE, "knock_on_delays", checkpoint=checkpoint.id).to_pylist()
    by_aircraft: Rows = {(row["tail_number"],): row | _sorted_map(row) for row in kept}
    by_alert: Rows = {_alert_key(row): row for row in sent}
    for what, expected, found in (("rotations", state, by_aircraft), ("alerts", alerts, by_alert)):
        told = differences(expected, found)
        if what == "alerts" and len(sent) != len(found):
            told.append(f"{len(sent)} rows for {len(found)} alerts")
        note(f"{name}, {what}: {_verdict(told, len(expected))}")
        wrong += [f"{name} {what} {line}" for line in told]
    return wrong


def _sorted_map(row: dict[str, Any]) -> dict[str, Any]:
    return {"destinations": sorted(dict(row["destinations"]).items())}


def _alert_key(row: dict[str, Any]) -> tuple[str, ...]:
    return row["tail_number"], str(row["scheduled_at"]), str(row["flight"])


def _totals(runtime: Runtime, checkpoints: Sequence[Checkpoint], oracle: Oracle) -> list[str]:
    """What is known of the year, from the newest checkpoint and from the counts of all of them."""
    newest = checkpoints[-1]
    flights, without = oracle.counts(datetime(YEAR + 1, 1, 1, tzinfo=NEW_YORK).astimezone(UTC))
    routes = runtime.state_table(PIPELINE, "routes", checkpoint=newest.id)
    acks = [ack for found in checkpoints for ack in found.sealed.acks if ack.uid == "aircraft"]
    told = {
        "aircraft": (runtime.state_table(PIPELINE, "aircraft", checkpoint=newest.id).num_rows, AIRCRAFT),
        "sum of distance over routes": (sum(row["distance"] for row in routes.to_pylist()), DISTANCE),
        "records": (sum(ack.read for ack in acks), flights),
        "dead letters of aircraft": (sum(ack.dead_lettered for ack in acks), WITHOUT_TAIL_NUMBER),
        "flights without a tail number": (without, WITHOUT_TAIL_NUMBER),
    }
    note("; ".join(f"{name} {found:,}" for name, (found, _) in told.items()))
    return [f"{name}: {found:,}, should be {wanted:,}" for name, (found, wanted) in told.items() if found != wanted]


def _verdict(told: Sequence[str], rows: int) -> str:
    return f"{len(told)} differences" if told else f"all {rows:,} rows agree"


def _completed(runtime: Runtime) -> list[Checkpoint]:
    """Completed checkpoints, oldest first."""
    return list(reversed(runtime.checkpoints(PIPELINE)))


def _cut(checkpoint: Checkpoint) -> datetime:
    end = when(checkpoint.interval.end_ms if checkpoint.interval else None)
    if end is None:
        raise NotFoundError(f"{checkpoint.plan.name} has no interval", next="this is a defect of the demo: report it.")
    return end


def _row(checkpoint: Checkpoint) -> dict[str, object]:
    interval, sealed = checkpoint.interval, checkpoint.sealed
    span = "-"
    if interval is not None:
        start, end = (datetime.fromtimestamp(ms / 1000, NEW_YORK) for ms in (interval.start_ms, interval.end_ms))
        span = f"{start:%Y-%m-%d} … {end:%Y-%m-%d}"
    return {
        "id": checkpoint.plan.name,
        "interval": span,
        "records": sealed.facts.records,
        "dead letters": sum(ack.dead_lettered for ack in sealed.acks),
        "run": human_bytes(sum(ack.run_bytes for ack in sealed.acks)),
        "full": human_bytes(sum(ack.handle.bytes for ack in sealed.acks)),
        "seconds": f"{sum(sealed.timings_ms.values()) / 1000:.1f}",
    }


def _dead(settings: Settings) -> str | None:
    """A service of the stack that has ended."""
    return next((service.name for service in control.status(settings) if service.state == "stale"), None)


def _month(number: int) -> datetime:
    return datetime(YEAR, number, 1, tzinfo=NEW_YORK)


def _login(settings: Settings) -> Credentials:
    login = load_credentials(settings.home)
    if login is None:
        raise NotFoundError("the embedded Airflow has no password yet", next="tidemark up --only airflow")
    return login


def _head(title: str) -> None:
    note(f"\n== {title}")


if __name__ == "__main__":
    sys.exit(main())
