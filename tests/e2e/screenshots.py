"""The pictures of Airflow's own pages: `python -m tests.e2e.screenshots` after `make demo`, with the stack up.

Does in Chromium what the how-tos say. The backfill has something to show because `LATE` of the flights is another
number while the script runs. At the end one flight of no distance is sent, which the gate refuses, so throw the demo's
warehouse away afterwards.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from confluent_kafka import Producer

from devstack.credentials import ADMIN, load_credentials
from tests.e2e.chromium import Page, chromium
from tidemark.cli.airflow_api import AirflowApi
from tidemark.settings import Settings, load_settings

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
FLIGHTS = ROOT / "include" / "pipelines" / "flights.py"
DIALOG = ".chakra-dialog__content"
SAVEPOINT = "end-of-june"
PATIENCE = 900.0
STEPS, QUESTION = (325, 65, 510), (325, 65, 725)
"""What is cut off: the pixels left of, above and below."""
NOWHERE = {
    "tail_number": "N14228",
    "carrier": "UA",
    "flight": 1545,
    "origin": "EWR",
    "destination": "EWR",
    "distance": 0,
    "scheduled_at": "2014-01-01T10:00:00Z",
}
"""A flight that the gate refuses."""


def main() -> None:
    """Makes all pictures."""
    settings = load_settings()
    login = load_credentials(settings.home)
    assert login is not None, "tidemark up"
    api = AirflowApi(settings.airflow_address, ADMIN, login.airflow_admin_password)
    api.get("version")
    token = api._token
    with chromium(settings.airflow_address, token) as page:
        forms(page)
        with another_code():
            run = backfill(page, api)
            with chromium(settings.airflow_address, token, size=(1300, 880)) as wide:
                progress(wide, api, run)
    with chromium(settings.airflow_address, token, size=(1430, 833)) as page:
        assets(page, api)
    with chromium(settings.airflow_address, token, size=(1430, 505)) as page:
        refusal(page, api, settings)


@contextmanager
def another_code() -> Iterator[None]:
    """Another release of the flights: a departure is late after five minutes more."""
    text = FLIGHTS.read_text()
    try:
        FLIGHTS.write_text(text.replace("LATE = 30", "LATE = 35"))
        yield
    finally:
        FLIGHTS.write_text(text)


def trigger(page: Page, dag: str) -> None:
    """Opens a trigger form."""
    page.open(f"/dags/{dag}", "Overview")
    page.click("Trigger", "button")
    page.sees("Run Parameters")


def forms(page: Page) -> None:
    """The forms as the pages fill them in; none is sent."""
    trigger(page, "savepoint")
    for field, text in (("name", "before-upgrade"), ("checkpoint", "chk-6"), ("expires", "90d")):
        page.types(f"element_{field}", text)
    page.picture(IMAGES / "airflow-savepoint.png", DIALOG)
    trigger(page, "restore")
    page.types("element_checkpoint", "chk-6")
    page.picture(IMAGES / "airflow-restore.png", DIALOG)
    trigger(page, "flights")
    page.click("Run this Dag for a range", "label")
    page.sees("Reprocess Behavior")
    page.click("All Runs", "label")
    for date in ("2013/07/01", "2013/12/31"):  # the first one is filled in when the second one is asked for
        page.dates(0, date)
    page.click("Override parameters", "label")
    page.click("Run Parameters", "button")
    page.click("Restore a savepoint first", "button")
    page.types("element_savepoint", SAVEPOINT)
    page.types("element_restore_id", "r1")
    page.picture(IMAGES / "airflow-own-backfill.png", DIALOG)


def backfill(page: Page, api: AirflowApi) -> str:
    """The form of the DAG, filled in and sent; returns the run."""
    trigger(page, "backfill")
    page.types("element_savepoint", SAVEPOINT)
    page.chooses("element_mode", "approval")
    page.picture(IMAGES / "airflow-backfill.png", DIALOG)
    before = {run["dag_run_id"] for run in api.get("dags/backfill/dagRuns", limit=100)["dag_runs"]}
    page.click("Trigger", f"{DIALOG} button")
    page.sees("plan")
    after = {run["dag_run_id"] for run in api.get("dags/backfill/dagRuns", limit=100)["dag_runs"]}
    (run,) = after - before
    return quote(str(run), safe="")


def progress(page: Page, api: AirflowApi, run: str) -> None:
    """What the run shows when it has repeated all, and the question; it is rejected."""
    wait_for(api, f"backfill/dagRuns/{run}/taskInstances/approve", "awaiting_input")
    page.open(f"/dags/backfill/runs/{run}/tasks/repeat/mapped", "6 Task Instances")
    page.picture(IMAGES / "airflow-backfill-steps.png", cut=STEPS)
    page.open(f"/dags/backfill/runs/{run}/tasks/approve/required_actions", "Approve")
    page.picture(IMAGES / "airflow-backfill-approve.png", cut=QUESTION)
    page.click("Reject", "button")
    wait_for(api, f"backfill/dagRuns/{run}", "success")


def assets(page: Page, api: AirflowApi) -> None:
    """The graph of the asset of a checkpoint."""
    (asset,) = (
        a for a in api.get("assets", name_pattern="flights/checkpoint")["assets"] if a["name"][-10:] != "completed"
    )
    page.call("Page.navigate", url=f"{page.base}/assets/{asset['id']}")  # this page has no search
    page.sees("Asset Events")
    page.picture(IMAGES / "airflow-assets.png")


def refusal(page: Page, api: AirflowApi, settings: Settings) -> None:
    """The log of the gate's task after a record that it does not let through."""
    producer = Producer({"bootstrap.servers": settings.kafka_address})
    producer.produce("flights", json.dumps(NOWHERE).encode())
    assert producer.flush(30) == 0
    run = quote(api.post("dags/flights/dagRuns", {"logical_date": None})["dag_run_id"], safe="")
    wait_for(api, f"flights/dagRuns/{run}", "failed")
    page.open(f"/dags/flights/runs/{run}/tasks/validate", "EXPECTATION_FAILED")
    page.script("document.querySelector('[aria-label$=\"scroll to top\"]').click()")
    page.picture(IMAGES / "airflow-refused.png")


def wait_for(api: AirflowApi, what: str, state: str) -> None:
    """Waits until a run or a task is in a state."""
    deadline = time.monotonic() + PATIENCE
    while api.get(f"dags/{what}")["state"] != state:
        assert time.monotonic() < deadline, f"{what} does not become {state}"
        time.sleep(1.0)


if __name__ == "__main__":
    main()
