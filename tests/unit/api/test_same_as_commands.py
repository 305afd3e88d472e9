"""The Python API gives what the commands print with `--json`, verb by verb, over the same warehouse."""

import io
import json
import shlex
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from tests.unit.api.warehouses import Flights
from tidemark.api import BackfillRequest, PipelineHistory, RestoreRequest
from tidemark.cli.output import print_json
from tidemark.cli.plain import plain

Asked = Callable[[PipelineHistory], Any]
READ: dict[str, Asked] = {
    "checkpoint list flights": lambda f: [c.to_dict() for c in f.checkpoints()],
    "checkpoint list flights --limit 2": lambda f: [c.to_dict() for c in f.checkpoints(limit=2)],
    "checkpoint stats flights": lambda f: f.metrics(),
    "state show flights aircraft": lambda f: f.state("aircraft").head(),
    "state show flights aircraft --limit 1 --checkpoint chk-1": lambda f: f.state("aircraft", at=1).head(1),
    "state show flights aircraft --key N14228": lambda f: [f.state("aircraft").get("N14228")],
    "state show flights routes --key EWR --key IAH --savepoint winter": lambda f: [
        f.state("routes", at="winter").get("EWR", "IAH")
    ],
    "state show flights rotations": lambda f: f.state("rotations", at=f.latest()).head(),
    "state sql flights 'select * from aircraft order by all'": lambda f: f.sql(
        "select * from aircraft order by all"
    ).to_pylist(),
    "state sql flights --savepoint winter 'from aircraft order by all'": lambda f: (
        f.state("aircraft", at="winter").sql("from aircraft order by all").to_pylist()
    ),
    "state query flights aircraft --checkpoint chk-2 --dialect duckdb": lambda f: f.state("aircraft", at="chk-2").query(
        "duckdb"
    ),
    "sink show flights knock_on_delays": lambda f: f.sink("knock_on_delays").tail(),
    "sink show flights knock_on_delays --limit 1 --savepoint winter": lambda f: f.sink(
        "knock_on_delays", at="winter"
    ).tail(1),
    "sink list flights": lambda f: f.sinks(),
    "savepoint list flights": lambda f: [s.to_dict() for s in f.savepoints.list()],
    "timeline list flights": lambda f: [t.to_dict() for t in f.timelines.list()],
    "timeline show flights t1": lambda f: f.timelines.live().to_dict(),
    "storage flights": lambda f: f.retention.storage(),
    "retention plan flights": lambda f: f.retention.plan(),
    "retention plan flights --keep keep_last(1)": lambda f: f.retention.plan("keep_last(1)"),
    "retention apply flights --keep keep_last(1) --grace 0": lambda f: (
        f.retention.apply("keep_last(1)", grace="0").plan
    ),
    "restore flights --savepoint winter": lambda f: f.restore("winter").plan,
    "restore flights --checkpoint chk-1 --restore-sinks": lambda f: (
        f.restore(RestoreRequest(checkpoint=1, restore_sinks=True)).plan
    ),
    "backfill flights --from-savepoint winter": lambda f: f.backfill("winter").plan,
    "erase flights aircraft --key N619AA": lambda f: f.erase("aircraft", "N619AA").plan,
    "savepoint dispose flights winter": lambda f: f.savepoints.dispose("winter").plan,
}
"""Commands that write nothing, and the same in Python."""

WRITTEN: dict[str, Asked] = {
    "savepoint create flights june --checkpoint chk-1 --note why --expires 30d --owner ops": lambda f: (
        f.savepoints.create("june", 1, note="why", expires="30d", owner="ops").to_dict()
    ),
    "savepoint note flights winter --note why --expires never": lambda f: f.savepoints.change(
        "winter", note="why", expires="never"
    ).to_dict(),
    "savepoint dispose flights winter --execute": lambda f: f.savepoints.dispose("winter").commit(),
    "restore flights --savepoint winter --execute": lambda f: f.restore("winter").commit(),
    "retention apply flights --keep keep_last(1) --grace 0 --execute": lambda f: f.retention.apply(
        "keep_last(1)", grace="0"
    ).commit(),
    "erase flights aircraft --key N619AA --execute": lambda f: f.erase("aircraft", "N619AA").commit(),
    "backfill flights --from-savepoint winter --name again --mode promote --execute": lambda f: f.backfill(
        BackfillRequest(begins=RestoreRequest(savepoint="winter"), fork="again", promotes=True)
    ).commit(),
    "stop flights --savepoint last --note why": lambda f: {**f.stop("last", note="why"), "paused_dags": []},
}
"""Commands that write, and the same in Python; each on a copy of its own."""


def _printed(value: Any) -> Any:
    """A value as the command line would print it."""
    out = io.StringIO()
    with redirect_stdout(out):
        print_json(plain(value))
    return json.loads(out.getvalue())


@pytest.mark.parametrize("typed", READ)
def test_reading_in_python_gives_what_the_command_prints(template: Flights, typed: str) -> None:
    with template.commands() as tidemark:
        shown = tidemark(*shlex.split(typed), "--json").ok().json
    assert _printed(READ[typed](template.warehouse["flights"])) == shown


@pytest.mark.parametrize("typed", WRITTEN)
def test_writing_in_python_does_what_the_command_does(template: Flights, typed: str, tmp_path: Path) -> None:
    by_command, by_python = (template.copy(tmp_path / name) for name in ("command", "python"))
    with by_command.commands() as tidemark:
        shown = tidemark(*shlex.split(typed), "--json").ok().json
    assert _printed(WRITTEN[typed](by_python.warehouse["flights"])) == shown
    assert _history(by_python) == _history(by_command)


def test_a_fork_that_catches_up_is_promoted_as_by_the_command(template: Flights, tmp_path: Path) -> None:
    by_command, by_python = (template.copy(tmp_path / name) for name in ("command", "python"))
    flights = by_python.warehouse["flights"]
    with by_command.commands() as tidemark:
        typed = [
            "fork flights spare --checkpoint chk-1",
            "fork flights bugfix --savepoint winter --note why",
            "run flights --timeline bugfix",
            "promote flights bugfix",
            "promote flights bugfix --execute",
            "timeline close flights spare",
            "timeline close flights spare --execute",
        ]
        shown = [tidemark(*shlex.split(text), "--json").ok().json for text in typed]
    assert flights.fork("spare", 1).name == shown[0]["timeline"]
    assert flights.fork("bugfix", "winter", note="why").to_dict()["note"] == shown[1]["note"] == "why"
    made = flights.run(timeline="bugfix")
    assert made is not None
    assert _untimed(shown[2]).items() <= made.to_dict().items()
    promote = flights.promote("bugfix")
    assert [promote.plan, promote.commit()] == shown[3:5]
    close = flights.timelines.close("spare")
    assert [close.plan, close.commit()] == shown[5:]
    assert _history(by_python) == _history(by_command)


def test_a_run_gives_the_facts_that_the_command_prints(template: Flights, tmp_path: Path) -> None:
    by_command, by_python = (template.copy(tmp_path / name) for name in ("command", "python"))
    for flights in (by_command, by_python):
        flights.fly("N14228", "IAH", "EWR", 1400)
    with by_command.commands() as tidemark:
        shown = tidemark("run", "flights", "--json").ok().json
    made = by_python.warehouse["flights"].run()
    assert made is not None
    assert (made.name, made.records, made.keys) == ("chk-4", 1, {"aircraft": 1, "rotations": 0, "routes": 1})
    assert _untimed(shown).items() <= made.to_dict().items()
    assert _history(by_python) == _history(by_command)


def _untimed(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts without how long the steps took."""
    return {name: value for name, value in facts.items() if name not in ("timings_ms", "seconds")}


def _history(flights: Flights) -> list[Any]:
    """What a pipeline has recorded, without what is random or a time of this machine."""
    f = flights.warehouse["flights"]
    facts = [[c.name, c.records, c.ranges, c.status, c.savepoints] for c in f.checkpoints()]
    savepoints = [s.to_dict() for s in f.savepoints.list(disposed=True)]
    return [facts, savepoints, [t.to_dict() for t in f.timelines.list()], f.state("aircraft").head()]


def test_a_diff_takes_its_detail_of_0_1_with_a_warning(flights: Flights) -> None:
    pipeline = flights.warehouse["flights"]
    new = pipeline.diff("aircraft", 1, 3)
    with pytest.warns(DeprecationWarning, match='detail="upserts"'):
        old = pipeline.diff("aircraft", 1, 3, detail="keys")
    assert (new.counts, old.counts) == ({"upserted": 3}, {"changed": 3})
