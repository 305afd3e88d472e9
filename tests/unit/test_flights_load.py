"""`tidemark topic load flights`, with a loader that only writes down what it is told."""

import fcntl
import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
import typer
from typer.testing import CliRunner

from devstack.demo import flights_data, topic
from devstack.demo import topic_loader as kafka_producer
from devstack.demo.topic_loader import Load, LoadOutcome, Progress
from tidemark.errors import BusyError

calls: list[str] = []


class WrittenDown:
    """Takes the place of `TopicLoader`."""

    answer = Load(outcome=LoadOutcome.LOADED, records=4, sent=4)

    def __init__(self, bootstrap: str, name: str, *, partitions: int, options: dict[str, str]) -> None:
        assert options == {}
        calls.append(f"{bootstrap} {name} {partitions}")

    def prepare(self) -> None:
        calls.append("prepare")

    def replace(self) -> None:
        calls.append("replace")

    def load(self, records: Sequence[object], progress: Progress) -> Load:
        calls.append(f"load {list(records)}")
        for done in range(1, 5):
            progress(done, 4)
        return self.answer


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> typer.Typer:
    """The command line, on a broker that is never asked."""
    calls.clear()
    monkeypatch.setenv("TIDEMARK_KAFKA_BOOTSTRAP", "broker:9092")
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path))
    _replace(monkeypatch, kafka_producer, "TopicLoader", WrittenDown)
    _replace(monkeypatch, flights_data, "read_flights", lambda: [1, 2])
    made = typer.Typer()
    topic.register(made)
    return made


def _replace(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, value: object) -> None:
    monkeypatch.setattr(module, name, value)


def run(app: typer.Typer, *words: str, answer: str = "") -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    done = CliRunner().invoke(app, ["topic", "load", *words], input=answer)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def test_a_load_says_how_many_records_it_sent_and_shows_plain_progress(app: typer.Typer) -> None:
    code, out, err = run(app, "flights")
    assert (code, calls) == (0, ["broker:9092 flights 4", "prepare", "load [1, 2]"])
    assert out.startswith("topic flights: 4 records, 4 sent now")
    assert err.splitlines() == [f"loading flights: {n} of 4" for n in (1, 2, 3, 4)]


def test_a_full_topic_is_said_to_be_full(app: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Load(outcome=LoadOutcome.ALREADY_THERE, records=336_776, sent=0)
    monkeypatch.setattr(WrittenDown, "answer", full)
    assert "already holds all 336,776 records; nothing was sent" in run(app, "flights")[1]


def test_json_is_all_that_stdout_gets(app: typer.Typer) -> None:
    found = json.loads(run(app, "flights", "--json")[1])
    found.pop("seconds")
    assert found == {"topic": "flights", "outcome": "loaded", "records": 4, "sent": 4}


def test_replace_is_a_dry_run_without_execute(app: typer.Typer) -> None:
    code, out, err = run(app, "flights", "--replace", "--yes")
    assert (code, out, calls) == (0, "", [])
    assert "would delete topic flights on Kafka at broker:9092" in err


def test_replace_asks_before_it_deletes(app: typer.Typer) -> None:
    assert run(app, "flights", "--replace", "--execute", answer="n\n")[0] == 1
    assert calls == []
    assert run(app, "flights", "--replace", "--execute", answer="y\n")[0] == 0
    assert calls[1:] == ["replace", "load [1, 2]"]


def test_yes_answers_the_question(app: typer.Typer) -> None:
    assert run(app, "flights", "--replace", "--execute", "--yes")[0] == 0
    assert calls[1] == "replace"


def test_another_data_set_is_a_usage_error(app: typer.Typer) -> None:
    code, _, err = run(app, "trains")
    assert code == 2
    assert "flights" in err


def test_two_loads_at_once_are_a_conflict(app: typer.Typer, tmp_path: Path) -> None:
    path = tmp_path / "locks" / "load-flights.lock"
    path.parent.mkdir()
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(BusyError, match="being loaded by another process"):
            run(app, "flights")
    assert calls == []
