"""What a person does in the browser, from log-in to disposal, and the real scheduler, Kafka and Spark behind it.

The tests share the stack and one browser, and run in the order in which they are written: each goes on from the last.
"""

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import quote

import pytest

from devstack.credentials import ADMIN, load_credentials
from devstack.demo.topic_loader import TopicLoader
from tests.e2e.chromium import Page, chromium
from tests.e2e.conftest import Stack
from tests.e2e.test_scheduler import DAY, PATIENCE, Sent, finished
from tests.support.prerequisites import needs_chromium
from tidemark.context import Context, open_context
from tidemark.operations import reads, savepoints, timelines
from tidemark.web import previews

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(900),
    needs_chromium(),
]
HOSTILE = "<script>window.pwned=1</script>'\"\u202e" + "x" * 150
DAGS = ("parcels", "savepoint", "restore", "fork", "backfill", "retention")
DIALOG = ".chakra-dialog__content"


def parcel(row: int, depot: str | None, grams: int) -> Sent:
    at = DAY + timedelta(hours=row)
    value = json.dumps({"depot": depot, "grams": grams, "sent_at": at.isoformat()}).encode()
    return Sent(row, b"k", value, int(at.timestamp() * 1000))  # one key, hence one partition


FIRST = [parcel(0, "a", 3), parcel(1, HOSTILE, 5), parcel(2, None, 9), parcel(3, "a", 4)]
SECOND = [parcel(4, "a", 7), parcel(5, HOSTILE, 2), parcel(6, "b", 1)]


def oracle(records: list[Sent]) -> dict[str, tuple[int, int]]:
    """(parcels, grams) per depot."""
    found: dict[str, tuple[int, int]] = {}
    for told in (json.loads(sent.value) for sent in records):
        if told["depot"] is not None:
            number, grams = found.get(told["depot"], (0, 0))
            found[told["depot"]] = (number + 1, grams + told["grams"])
    return found


def depots(context: Context, checkpoint: int) -> dict[str, tuple[int, int]]:
    rows = reads.read_state(context, "parcels", "depots", checkpoint=checkpoint).to_pylist()
    return {row["depot"]: (row["parcels"], row["grams"]) for row in rows}


def send(stack: Stack, records: list[Sent]) -> None:
    """Fills the topic up to these records."""
    TopicLoader(stack.settings.kafka_address, "parcels", partitions=2).load(records)


@pytest.fixture(scope="module")
def context(stack: Stack) -> Context:
    """The warehouse; four records wait in the topic, and no DAG is paused."""
    send(stack, FIRST)
    for dag in DAGS:
        stack.api.patch(f"dags/{dag}", {"is_paused": False})
    return open_context(stack.settings)


@pytest.fixture(scope="module")
def page(stack: Stack, context: Context) -> Iterator[Page]:
    """A browser that is not logged in."""
    with chromium(stack.settings.airflow_address, None, size=(1400, 1200)) as made:
        made.rest = 0.3
        yield made


def runs(stack: Stack, dag: str) -> list[str]:
    found = stack.api.get(f"dags/{dag}/dagRuns", order_by="-run_after", limit=100)["dag_runs"]
    return [run["dag_run_id"] for run in found]


def sent_run(page: Page) -> str:
    """The run that a form of ours has triggered."""
    page.wait("!!document.querySelector('[data-run]')")
    return str(page.script("document.querySelector('[data-run]').dataset.run"))


def succeeds(page: Page) -> str:
    """Watches the run of a form on the page until the scheduler has completed it; returns the run."""
    run = sent_run(page)
    page.wait("/^(success|failed)$/.test(document.querySelector('[data-run]').dataset.runState)")
    reported = page.script("document.querySelector('[data-run]').innerText")
    assert "Success" in reported, reported
    return run


def test_who_logs_in_triggers_a_checkpoint_from_the_dag_page_and_watches_it_complete(
    stack: Stack, context: Context, page: Page
) -> None:
    login = load_credentials(stack.settings.home)
    assert login is not None
    page.sees("Sign into Airflow")
    for field, text in (("username", ADMIN), ("password", login.airflow_admin_password)):
        page.script(f"document.querySelector('input[name={field}]').focus()")
        page.call("Input.insertText", text=text)
    page.click("Sign in", "button[type=submit]")
    page.wait("!location.pathname.includes('/auth/login')")
    page.open("/dags/parcels", "Overview")
    page.click("Trigger", "button")
    page.sees("Run Parameters")
    page.click("Trigger", f"{DIALOG} button")
    deadline = time.monotonic() + PATIENCE
    while not (found := runs(stack, "parcels")):
        assert time.monotonic() < deadline, "no run was triggered"
        time.sleep(0.2)
    page.view("parcels", "view=history", "Checkpoints")
    page.wait("[...document.querySelectorAll('tr')].some(r => /chk-1\\b/.test(r.innerText) && /✓/.test(r.innerText))")
    (made,) = reads.list_checkpoints(context, "parcels")
    assert (made.id, made.plan.origin) == (1, found[0])
    assert depots(context, 1) == oracle(FIRST)
    assert finished(stack, "parcels", found[0])["state"] == "success"


def test_a_button_makes_a_savepoint_that_the_scheduler_completes(stack: Stack, context: Context, page: Page) -> None:
    page.view("parcels", "view=checkpoint&checkpoint=1", "Create savepoint…")
    page.click("Create savepoint…", "[data-details] button")
    page.fills("Name", "before")
    page.fills("Note", HOSTILE)
    page.click("Create savepoint", "form button[type=submit]")
    run = succeeds(page)
    made = savepoints.open_savepoints(context, "parcels").get("before")
    assert (made.checkpoint, made.owner, made.note, made.origin) == (1, ADMIN, HOSTILE, f"savepoint {run}")


def test_checkpoint_now_reads_what_has_come(stack: Stack, context: Context, page: Page) -> None:
    send(stack, [*FIRST, *SECOND])
    page.view("parcels", "view=overview", "Checkpoint now")
    page.click("Checkpoint now", "button")
    page.click("Checkpoint now", "form button[type=submit]")
    run = succeeds(page)
    page.sees("Created chk-2")
    newest = reads.get_checkpoint(context, "parcels")
    assert (newest.id, newest.plan.origin, newest.plan.parent) == (2, run, 1)
    assert depots(context, 2) == oracle([*FIRST, *SECOND])


@pytest.fixture(scope="module")
def backfill(page: Page, context: Context) -> str:
    """A backfill from the savepoint is on its way, sent by its row's button."""
    page.view("parcels", "view=timelines", "before")
    page.click("Backfill…", "td button")
    page.sees("Checkpoints to repeat")
    assert "chk-2" in page.form()
    page.click("Backfill", "form button[type=submit]")
    return sent_run(page)


def test_the_tab_of_a_run_shows_its_lineage(page: Page, context: Context, backfill: str) -> None:
    run = quote(reads.get_checkpoint(context, "parcels", 2).plan.origin, safe="")
    page.call("Page.navigate", url=f"{page.base}/dags/parcels/runs/{run}/plugin/checkpoint")
    page.wait("!!document.querySelector('[data-node=\"state depots\"]')")
    partition = next(tp for tp, r in reads.get_checkpoint(context, "parcels", 2).plan.ranges.items() if not r.is_empty)
    page.script(f"document.querySelector('[data-node=\"partition {partition}\"]').focus()")
    page.press("Enter", 13)
    page.sees("end (excluded)")
    assert "[4, 7)" in page.words() and "chk-1" in page.words()


def test_a_row_is_followed_to_its_offsets_and_its_records(page: Page, backfill: str) -> None:
    page.view("parcels", "view=origin", "Which row?")
    page.fills("depot", HOSTILE)
    page.click("Where does it come from?", "button")
    page.wait("!!document.querySelector('[data-origin=\"2\"]')")
    page.click("Show the records", "button")
    page.wait("!!document.querySelector('[data-records] table')")
    told = page.words()
    assert "1 match in 3 records (whole range searched)" in told
    assert "<script>window.pwned=1</script>" in told
    assert page.script("document.querySelector('[data-records] [data-field=grams]').innerText") == "grams 2"
    page.click("The change before", "button")
    page.wait("!!document.querySelector('[data-origin=\"1\"]')")
    page.picks("Row of", "sink heavy")
    page.fills("_checkpoint", "chk-2")
    page.fills("Value 1", "a")
    page.click("Where does it come from?", "button")
    page.wait("!!document.querySelector('[data-row]')")
    page.click("Show the record", "button")
    page.wait("!!document.querySelector('[data-records] table')")
    assert page.script("document.querySelector('[data-records] [data-field=grams]').innerText") == "grams 7"
    assert page.script("document.querySelectorAll('[data-row]').length") == 1
    assert page.script("typeof window.pwned") == "undefined"
    assert page.script("document.querySelectorAll('[data-page] script').length") == 0


def test_dead_letters_are_shown_with_their_reason(page: Page, backfill: str) -> None:
    page.view("parcels", "view=checkpoint&checkpoint=1", "Dead letters")
    page.click("Dead letters", "[data-details] [role=tab]")
    page.wait("document.querySelectorAll('[data-reason=null_key]').length === 2")
    assert page.script("document.querySelector('[data-rejected]').dataset.rejected") == "1", "one record, two operators"
    page.click("null_key", "button")
    page.wait("document.querySelectorAll('[data-letters] tbody tr').length === 1")


def test_the_backfill_was_completed_and_left_the_live_timeline_alone(
    stack: Stack, context: Context, page: Page, backfill: str
) -> None:
    assert finished(stack, "backfill", backfill)["state"] == "success"
    (fork,) = [b for b in timelines.list_timelines(context, "parcels") if b.timeline != "t1"]
    assert fork.genesis is not None and fork.newest is not None
    assert (fork.genesis.savepoint, fork.fate) == ("before", "fork")
    assert depots(context, fork.newest.id) == oracle([*FIRST, *SECOND])
    assert reads.get_checkpoint(context, "parcels").id == 2
    page.view("parcels", f"view=checkpoint&checkpoint={fork.newest.id}", "DAG run, of backfill")


def test_a_fork_is_begun_beside_a_checkpoint(stack: Stack, context: Context, page: Page) -> None:
    page.view("parcels", "view=checkpoint&checkpoint=2", "Fork…")
    page.click("Fork…", "[data-details] button")
    page.fills("Name", "what-if")
    page.fills("Note", HOSTILE)
    page.click("Fork", "form button[type=submit]")
    run = succeeds(page)
    genesis = timelines.get_timeline(context, "parcels", "what-if").genesis
    assert genesis is not None and (genesis.parent, genesis.note, genesis.request) == (2, HOSTILE, run)


def test_a_savepoint_that_nothing_needs_any_more_is_disposed(context: Context, page: Page) -> None:
    page.view("parcels", "view=timelines", "Dispose…")
    page.click("Dispose…", "td button")
    page.sees("Needed by")
    page.click("Dispose of savepoint", "[data-disposal] button")
    page.sees("No savepoints")
    assert savepoints.open_savepoints(context, "parcels").list() == []
    assert reads.get_checkpoint(context, "parcels", 1).id == 1, "its checkpoint stays"


def test_a_restore_shows_its_plan_and_is_done(context: Context, page: Page) -> None:
    page.view("parcels", "view=checkpoint&checkpoint=1", "Restore…")
    page.click("Restore…", "[data-details] button")
    page.sees("stays restorable")
    page.click("Details", "summary")
    assert "[4, 7)" in page.form()
    page.click("Dry run", "form button")
    succeeds(page)
    page.sees("nothing was changed")
    page.click("Restore", "form button[type=submit]")
    page.wait("document.body.innerText.replace(/\\s+/g, ' ').includes('Began timeline t2')")
    run = succeeds(page)
    live = next(b for b in timelines.list_timelines(context, "parcels") if b.is_live)
    assert live.genesis is not None
    assert (live.timeline, live.genesis.parent, live.genesis.why) == ("t2", 1, "restore")
    assert live.genesis.request == run


def test_retention_shows_its_calendar_before_it_runs(stack: Stack, context: Context, page: Page) -> None:
    page.view("parcels", "view=retention", "Next retention")
    page.wait("!!document.querySelector('[data-calendar=declared]')")
    released = ", ".join(previews.preview_retention(context, "parcels").released) or "nothing"
    words = " ".join(page.words().split())
    assert "keep_last(1)" in words and f"Releases {released}" in words, words
    page.click("Scan storage", "button")
    page.sees("Deleted by it at once")
    assert runs(stack, "retention") == [], "looking runs nothing"
    page.click("Run retention…", "button")
    page.click("Run retention", "form button[type=submit]")
    run = succeeds(page)
    tasks = stack.api.get(f"dags/retention/dagRuns/{run}/taskInstances")["task_instances"]
    assert {t["task_id"]: t["state"] for t in tasks} == dict.fromkeys(("plan", "sweep", "verify"), "success")
