"""The pictures of the how-tos, made anew: `python -m tests.e2e.screenshots` with the stack up and an empty warehouse.

Loads the flights, makes three checkpoints and a savepoint, then does in Chromium what the pages say. The backfill has
something to show because `LATE` of `include/pipelines/flights.py` is to be changed when the script asks for it.
"""

import time
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from devstack.credentials import ADMIN, load_credentials
from devstack.demo.topic import DataSet, load
from tests.e2e.chromium import Page, chromium
from tidemark.cli.airflow_api import AirflowApi
from tidemark.context import Context, open_context
from tidemark.errors import NotFoundError
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import checkpoints, savepoints
from tidemark.ports import PlanRequest
from tidemark.settings import load_settings

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
DIALOG = ".chakra-dialog__content"
PATIENCE = 900.0
STEPS, QUESTION = (325, 65, 510), (325, 65, 680)
"""What is cut off: the pixels left of, above and below."""


def main() -> None:
    """Makes all pictures."""
    settings = load_settings()
    login = load_credentials(settings.home)
    assert login is not None, "tidemark up"
    api = AirflowApi(settings.airflow_address, ADMIN, login.airflow_admin_password)
    prepare(open_context(settings))
    for dag in ("savepoint", "restore", "backfill"):
        api.patch(f"dags/{dag}", {"is_paused": False})
    api.get("version")
    token = api._token
    with chromium(settings.airflow_address, token) as page:
        forms(page)
        input("change LATE in the flights, then press Enter: ")
        run = backfill(page, api)
    with chromium(settings.airflow_address, token, size=(1300, 700)) as page:
        progress(page, api, run)


def prepare(context: Context) -> None:
    """Three months, and a savepoint of the first one."""
    for data_set in (DataSet.AIRLINES, DataSet.PLANES, DataSet.FLIGHTS):
        load(data_set)
    for month in (2, 3, 4):
        end = datetime(2013, month, 1, 5, tzinfo=UTC)
        checkpoints.run_once(
            context, "flights", PlanRequest(origin="pictures", interval_end=end, until_interval_end=True)
        )
    try:
        savepoints.open_savepoints(context, "flights").get("before-the-bug")
    except NotFoundError:
        request = SavepointRequest(name="before-the-bug", owner="me", origin="pictures", checkpoint=1)
        savepoints.open_savepoints(context, "flights").create(request)


def trigger(page: Page, dag: str) -> None:
    """Opens a trigger form."""
    page.open(f"/dags/{dag}", "Overview")
    page.click("Trigger", "button")
    page.sees("Run Parameters")


def forms(page: Page) -> None:
    """The forms as the pages fill them in; none is sent."""
    trigger(page, "savepoint")
    for field, text in (("name", "before-upgrade"), ("checkpoint", "chk-2"), ("expires", "90d")):
        page.types(f"element_{field}", text)
    page.picture(IMAGES / "airflow-savepoint.png", DIALOG)
    trigger(page, "restore")
    page.types("element_checkpoint", "chk-2")
    page.picture(IMAGES / "airflow-restore.png", DIALOG)
    trigger(page, "flights")
    page.click("Run this Dag for a range", "label")
    page.sees("Reprocess Behavior")
    page.click("All Runs", "label")
    for date in ("2013/02/01", "2013/03/31"):  # the first one is filled in when the second one is asked for
        page.dates(0, date)
    page.click("Override parameters", "label")
    page.click("Run Parameters", "button")
    page.click("Restore a savepoint first", "button")
    page.types("element_savepoint", "before-the-bug")
    page.types("element_restore_id", "r1")
    page.picture(IMAGES / "airflow-own-backfill.png", DIALOG)


def backfill(page: Page, api: AirflowApi) -> str:
    """The form of the DAG, filled in and sent; returns the run."""
    trigger(page, "backfill")
    page.types("element_savepoint", "before-the-bug")
    page.chooses("element_mode", "approval")
    page.picture(IMAGES / "airflow-backfill.png", DIALOG)
    before = {run["dag_run_id"] for run in api.get("dags/backfill/dagRuns", limit=100)["dag_runs"]}
    page.click("Trigger", f"{DIALOG} button")
    page.sees("plan")
    after = {run["dag_run_id"] for run in api.get("dags/backfill/dagRuns", limit=100)["dag_runs"]}
    (run,) = after - before
    return quote(str(run), safe="")


def progress(page: Page, api: AirflowApi, run: str) -> None:
    """What the run shows when it has repeated all, and the question."""
    wait_for(api, run, "approve", "awaiting_input")
    page.open(f"/dags/backfill/runs/{run}/tasks/repeat/mapped", "2 Task Instances")
    page.picture(IMAGES / "airflow-backfill-steps.png", cut=STEPS)
    page.open(f"/dags/backfill/runs/{run}/tasks/approve/required_actions", "Approve")
    page.picture(IMAGES / "airflow-backfill-approve.png", cut=QUESTION)
    page.click("Approve", "button")
    wait_for(api, run, "promote", "success")


def wait_for(api: AirflowApi, run: str, task: str, state: str) -> None:
    """Waits until a task of a backfill is in a state."""
    deadline = time.monotonic() + PATIENCE
    while api.get(f"dags/backfill/dagRuns/{run}/taskInstances/{task}")["state"] != state:
        assert time.monotonic() < deadline, f"{task} does not become {state}"
        time.sleep(1.0)


if __name__ == "__main__":
    main()
