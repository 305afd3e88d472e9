"""Tokens, passwords and keys of addresses are in no error, log line, table, JSON or record (I8)."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bank import BankPipeline
from tidemark.coordinator.checkpoints.failure_policy import failure_of
from tidemark.coordinator.records.states import OpenPlan
from tidemark.errors import EngineError, TidemarkError
from tidemark.ports import PlanRequest
from tidemark.redaction import redact, redacted_event, secrets_of

ROOT = Path(__file__).parents[2]
CANARY = "canary-7f3e"
ADDRESSES = [
    f"sc://spark.example.com:443/;token={CANARY};use_ssl=true",
    f"sc://spark.example.com:443/;use_ssl=true;token={CANARY}",
    f"sc://spark.example.com:443;token={CANARY}",
    f"sc://spark.example.com:443/;x-auth-token={CANARY};user_id=ann",
    f"sc://127.0.0.1:1/;authorization={CANARY}",
    f"https://lineage.example.com/api?api_key={CANARY}&x=1",
    f"postgresql://postgres:{CANARY}@127.0.0.1/airflow",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_nothing_but_the_secret_is_taken_out_of_an_address(address: str) -> None:
    shown = redact(f"Spark does not answer at '{address}'")
    assert CANARY not in shown
    assert shown == f"Spark does not answer at '{address.replace(CANARY, '***')}'"
    assert redact(shown) == shown
    assert secrets_of(address) == [CANARY]


def test_a_text_without_a_secret_stays_as_it_is() -> None:
    for text in ("sc://127.0.0.1:15002", "the token topic: 3 records", "key (token) of users", "at 12:30 a=b;c=d"):
        assert redact(text) == text
        assert secrets_of(text) == []


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_error_log_line_or_record_holds_it(address: str) -> None:
    error = EngineError(f"Spark failed: {address}", next=f"TIDEMARK_SPARK={address}")
    assert CANARY not in f"{error} {error!r} {error.what} {error.args} {vars(error)}"
    assert CANARY not in str(failure_of(ValueError(f"no such host: {address}")))
    event = {"event": address, "why": [address], "more": {"a": (address,)}, "error": ValueError(address), "n": 1}
    assert CANARY not in str(redacted_event(None, "info", dict(event)))
    assert redacted_event(None, "info", dict(event))["n"] == 1


def test_a_failure_behind_a_foreign_exception_is_recorded_without_it() -> None:
    bank = BankPipeline(fail=RuntimeError(ADDRESSES[0]))
    bank.send(2)
    with pytest.raises(RuntimeError):
        bank.loop.run_once(PlanRequest(origin="test"))
    (report,) = bank.reports
    assert isinstance(report.state, OpenPlan)
    bank.coordinator.abort(report.state.plan, report.failure)
    assert "token=***" in report.failure.message
    assert not any(CANARY.encode() in raw for raw in bank.store.objects.values())


@pytest.mark.parametrize("spark", [ADDRESSES[0], ADDRESSES[2]])
@pytest.mark.parametrize("command", [["doctor"], ["doctor", "--json"], ["run", "trips"], ["run", "trips", "--json"]])
def test_no_command_prints_it(spark: str, command: list[str], tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("TIDEMARK_")}
    env |= {
        "TIDEMARK_SPARK": spark.replace("spark.example.com", "127.0.0.1"),
        "TIDEMARK_HOME": str(tmp_path / "home"),
        "TIDEMARK_WAREHOUSE": str(tmp_path / "warehouse"),
        "TIDEMARK_PIPELINES": str(ROOT / "tests" / "airflow" / "pipelines"),
        "TIDEMARK_ROOT": str(ROOT),
        "TIDEMARK_KAFKA_BOOTSTRAP": "127.0.0.1:1",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "include"), str(ROOT)]),
    }
    line = [sys.executable, "-m", "tidemark.cli.main", *command]
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert CANARY not in done.stdout + done.stderr
    if command[0] == "doctor" and "/;" in spark:
        assert "***" in done.stdout + done.stderr, "the address is shown, without the token"
        assert done.returncode == 1


def test_a_traceback_of_a_defect_is_printed_without_it(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from tidemark.cli import checkpoint\n"
        "from tidemark.cli.main import entry\n"
        f"def defect(): raise RuntimeError({ADDRESSES[0]!r})\n"
        "checkpoint.open_context = defect\n"
        "sys.argv = ['tidemark', 'checkpoint', 'list', 'flights']\n"
        "entry()\n"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT / "include")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert done.returncode == 1
    assert "RuntimeError: sc://spark.example.com:443/;token=***;use_ssl=true" in done.stderr
    assert CANARY not in done.stderr


def test_a_pickled_error_stays_redacted() -> None:
    error: TidemarkError = pickle.loads(pickle.dumps(EngineError(ADDRESSES[0], next="go on")))  # noqa: S301
    assert CANARY not in json.dumps([error.what, error.next])
