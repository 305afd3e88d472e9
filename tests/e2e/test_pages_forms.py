"""The forms of the pages, in a real browser over a real API server of Airflow: dialogs, addresses, keyboard, and runs.

No scheduler runs, so runs stay queued until a test ends them.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from tests.airflow.pipelines.trips import trips
from tests.e2e.airflow_pages import AirflowServer, api_server
from tests.e2e.chromium import Page, chromium
from tests.e2e.looks import CONTRAST, NAMELESS
from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext
from tests.support.prerequisites import needs_chromium
from tests.support.trips import PIPELINES, TripsPipeline
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.declare.retention import Retention
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import retention, savepoints
from tidemark.operations.savepoint_states import transform as transforms
from tidemark.settings import load_settings
from tidemark.testing.twin.memory import ManualClock

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    needs_chromium(),
]
HOURS = 3_600_000
FORM = "document.querySelector('[data-form]')"
FOCUS = f"{FORM}.contains(document.activeElement)"
SUBMIT = f"{FORM}.querySelector('button[type=submit]')"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowServer]:
    """chk-1 to 6, one every ten hours up to now, keep_last(3), chk-2 pinned; chk-7 failed, 8 in progress for hours."""
    home = tmp_path_factory.mktemp("forms")
    with api_server(home) as made:
        world = TripsPipeline.ago(home, 55 * HOURS)
        context, clock = world.pages, world.line.clock
        for bus in "abcdef":
            world.checkpoint(bus)
            clock.advance(10 * HOURS)
        request = SavepointRequest(name="kept", owner="me", origin="test", checkpoint=2, note="")
        savepoints.open_savepoints(context, "trips").create(request)
        retention.declare_rule(context, "trips", Retention.keep_last(3))
        clock.advance(-8 * HOURS)
        world.drive("g")
        world.fail("Spark was away")
        world.plan(origin="by hand")
        yield made


@pytest.fixture(scope="module")
def page(server: AirflowServer) -> Iterator[Page]:
    with chromium(server.base, server.token(), size=(1440, 900)) as made:
        yield made


def run_of(page: Page, server: AirflowServer, dag: str) -> Any:
    """The run that the open form has triggered."""
    page.wait("!!document.querySelector('[data-run]')")
    run = quote(page.script("document.querySelector('[data-run]').dataset.run"), safe="")
    return server.ask("GET", f"/api/v2/dags/{dag}/dagRuns/{run}", token=server.token())


def ends(server: AirflowServer, run: str, result: dict[str, Any]) -> None:
    """Stores the result of a transform as its tasks do, and ends the run: no worker is there."""
    token, task = server.token(), "transform" if "checkpoint" in result else "plan"
    there = f"/api/v2/dags/transform/dagRuns/{quote(run, safe='')}"
    entry = {"key": "return_value", "value": result}
    server.ask("POST", f"{there}/taskInstances/{task}/xcomEntries", entry, token)
    last = "skipped" if task == "plan" else "success"
    for name, state in (("plan", "success"), ("transform", last)):
        server.ask("PATCH", f"{there}/taskInstances/{name}", {"new_state": state}, token)
    server.ask("PATCH", there, {"state": "success"}, token)


def transform_trips(server: AirflowServer, queries: list[str], *, execute: bool) -> dict[str, Any]:
    """Runs the form's request over the server's warehouse; returns the result of the task."""
    line = DiskPipeline(server.home / "warehouse", trips, "trips", clock=ManualClock(int(time.time() * 1000)))
    settings = load_settings(root=str(server.home), warehouse=str(line.root), pipelines=str(PIPELINES))
    request = transforms.TransformRequest(
        pipeline="trips",
        source=RestoreRequest(savepoint="kept"),
        fork="upper",
        queries=transforms.queries_of(queries),
    )
    run = transforms.transform if execute else transforms.plan_transform
    done = run(DiskContext(line, settings), request)
    states = {uid: {k: n for k, n in asdict(state).items() if k != "refused"} for uid, state in done.states.items()}
    names = {"savepoint": done.savepoint, "timeline": done.timeline, "from": done.source.plan.name}
    found = {"pipeline": "trips", **names, "states": states}
    return found if done.checkpoint is None else found | {"checkpoint": done.checkpoint.plan.name}


def test_a_form_is_a_dialog_that_keeps_the_focus_and_gives_it_back(page: Page) -> None:
    page.view("trips", "view=checkpoint&checkpoint=2", "Create savepoint…")
    page.click("Create savepoint…", "[data-details] button")
    page.wait(f"!!{FORM} && {FOCUS}")
    assert page.asked()["form"] == "savepoint" and page.asked()["from"] == "chk-2"
    title = page.script(f"{FORM}.querySelector('h2').innerText")
    assert title == page.script(f"{SUBMIT}.innerText") == "Create savepoint"
    for _ in range(12):
        page.press("Tab", 9)
        assert page.script(FOCUS), "Tab leaves the dialog"
    page.press("Escape", 27)
    page.wait(f"!{FORM} && !location.hash.includes('form')")
    page.wait("document.activeElement.innerText === 'Create savepoint…'")
    assert page.asked()["checkpoint"] == "2"


def test_a_link_opens_a_form_and_back_closes_it(page: Page) -> None:
    page.view("trips", "view=checkpoint&checkpoint=2&form=restore&from=kept", "stay restorable")
    assert "chk-2 on t1" in page.form().replace("\xa0", " ")
    page.press("Escape", 27)
    page.wait(f"!{FORM}")
    page.click("Fork…", "[data-details] button")
    page.sees("Begins a separate timeline at chk-2")
    page.script("history.back()")
    page.wait(f"!{FORM}")
    assert page.script("location.pathname") == "/plugin/checkpoints" and "chk-2" in page.words()
    page.view("trips", "view=overview&form=nonsense", "The address names no form of this page")


def test_a_closed_form_leaves_no_step_behind_and_the_page_stays(page: Page) -> None:
    page.view("trips", "view=overview", "Restore…")
    page.click("History", "[role=tab]")
    page.script("document.querySelector('[data-page]').dataset.mounted = 'once'")
    for closes in ("Escape", "Back"):
        page.click("Restore…", "[role=group] button")
        page.wait(f"!!{FORM}")
        if closes == "Escape":
            page.press("Escape", 27)
        else:
            page.script("history.back()")
        page.wait(f"!{FORM} && location.hash.includes('view=history')")
    page.script("history.back()")
    page.wait("location.hash.includes('view=overview')")
    assert page.script(f"!{FORM} && document.querySelector('[data-page]').dataset.mounted") == "once"
    page.script("history.forward()")
    page.wait("location.hash.includes('view=history')")


def test_three_clicks_go_back_to_yesterday_and_end_in_a_dry_run(page: Page, server: AirflowServer) -> None:
    page.view("trips", "view=overview", "Restore…")
    page.click("Restore…", "[role=group] button")
    page.click("1 day ago", "button")
    page.sees("leave the live timeline and stay restorable.")
    assert "2 checkpoints (2 records)" in page.form()
    assert "About" in page.form() and "to read 2 offsets again." in page.form()
    page.click("Dry run", "button")
    made = run_of(page, server, "restore")
    wanted = {"pipeline": "trips", "checkpoint": "chk-4", "execute": False, "restore_sinks": False}
    assert {name: made["conf"].get(name) for name in wanted} == wanted


def test_enter_starts_nothing_that_needs_the_press_of_a_red_button(page: Page) -> None:
    page.view("trips", "view=timelines&form=dispose&from=kept", "Unpins chk-2")
    page.wait(f"{FOCUS} && document.activeElement === {FORM}")
    page.view("trips", "view=overview&form=restore", "restorable.")
    page.wait(f"!{SUBMIT}.disabled && document.activeElement.tagName === 'INPUT'")
    page.press("Enter", 13, "\r")
    assert page.script("!document.querySelector('[data-run]')") and not page.script(f"{SUBMIT}.disabled")


def test_a_timeline_that_is_not_there_or_live_is_not_promoted(page: Page) -> None:
    for name, why in (("nothing", "There is no timeline nothing"), ("t1", "Timeline t1 is live")):
        page.view("trips", f"view=timelines&form=promote&from={name}", why)
        assert page.script(f"{SUBMIT}.disabled")


def test_a_time_is_that_of_the_clock_of_airflow(page: Page) -> None:
    page.script("localStorage.setItem('timezone', JSON.stringify('America/New_York'))")
    page.view("trips", "view=overview&form=restore", "As of (America/New_York)")
    field = f"{FORM}.querySelector('input[type=datetime-local]')"
    shown = datetime.fromisoformat(page.script(f"{field}.value"))
    page.script(
        "import('/tidemark/static/zoned.js').then(m => {"
        " window.july = m.momentOf('2013-07-01T00:00', 'America/New_York'); })"
    )
    page.wait("window.july === '2013-07-01T04:00:00.000Z'")
    page.script("localStorage.removeItem('timezone')")
    yesterday = datetime.now(UTC).replace(tzinfo=None) - timedelta(days=1)
    assert timedelta(hours=3) < yesterday - shown < timedelta(hours=6), "New York is behind UTC"


def test_a_name_is_checked_while_it_is_typed_without_asking_again(page: Page) -> None:
    page.view("trips", "view=checkpoint&checkpoint=2&form=savepoint&from=chk-2", "A name is used once.")
    asked = "performance.getEntriesByType('resource').filter(e => e.name.includes('/savepoints')).length"
    before = page.script(asked)
    for text, wrong in (("kept", "This name was used already."), ("-1", "Letters, digits")):
        page.fills("Name", text)
        page.sees(wrong)
        assert page.script(f"{SUBMIT}.disabled")
        page.script(f"{FORM}.querySelector('input').select()")
    assert page.script(asked) == before
    page.fills("Name", "free")
    page.wait(f"!{SUBMIT}.disabled")
    for text, fits in (("soonish", False), ("2020-01-01", False), ("30d", True)):
        page.script(f"{FORM}.querySelectorAll('input')[2].select()")
        page.fills("Expires", text)
        page.wait(f"{SUBMIT}.disabled === {str(not fits).lower()}")
    page.view("trips", "view=overview&form=fork", "A savepoint, or a checkpoint")
    page.fills("From", "chk-99")
    page.sees("The newest checkpoint is chk-6")
    page.script(f"{FORM}.querySelector('input').select()")
    page.fills("From", "nothing")
    page.sees("There is no such savepoint.")


def test_a_paused_dag_is_unpaused_by_the_form(page: Page, server: AirflowServer) -> None:
    token = server.token()
    server.ask("PATCH", "/api/v2/dags/fork", {"is_paused": True}, token)
    page.view("trips", "view=overview&form=fork&from=chk-2", "Unpause DAG")
    page.fills("Name", "what-if")
    page.click("Fork", "form button[type=submit]")
    assert run_of(page, server, "fork")["state"] == "queued"
    assert server.ask("GET", "/api/v2/dags/fork", token=token)["is_paused"] is False


def test_a_failed_run_gives_the_button_back_and_keeps_what_was_typed(page: Page, server: AirflowServer) -> None:
    page.view("trips", "view=overview&form=fork&from=chk-2", "Begins a separate timeline")
    page.fills("Name", "another")
    page.click("Fork", "form button[type=submit]")
    run = run_of(page, server, "fork")["dag_run_id"]
    page.wait(f"{SUBMIT}.disabled")
    path = f"/api/v2/dags/fork/dagRuns/{quote(run, safe='')}"
    server.ask("PATCH", path, {"state": "failed"}, server.token())
    page.wait(f"!{SUBMIT}.disabled && !!document.querySelector('[data-run-state=failed]')")
    assert page.script(f"[...{FORM}.querySelectorAll('input')].some(i => i.value === 'another')")


def test_the_calendar_says_what_goes_when_and_why(page: Page) -> None:
    page.view("trips", "view=retention", "Next retention")
    page.wait("!!document.querySelector('[data-calendar=declared]')")
    page.sees("Releases chk-1, chk-3 (older than the last 3).")
    row = "[...document.querySelectorAll('[data-calendar] tr')].find(r => r.innerText.startsWith('%s')).innerText"
    assert "savepoint kept" in page.script(row % "chk-2")
    assert "one of the last 3" in page.script(row % "chk-5") and "2 more checkpoints" in page.script(row % "chk-5")
    assert "chk-8, which is in progress" in page.script(row % "chk-6")
    page.picks("Rule", "last")
    page.script("document.querySelector('input[aria-label=\"Keep the last\"]').select()")
    page.call("Input.insertText", text="1")
    page.wait("!!document.querySelector('[data-calendar=what-if]')")
    page.sees("It would release chk-1, chk-3, chk-4, chk-5")
    page.picks("Without a savepoint", "kept")
    page.sees("It would release chk-1, chk-2, chk-3, chk-4, chk-5")
    question = {"pipeline": "trips", "view": "retention", "keep": "keep_last(1)", "without": "kept"}
    assert page.asked() == question
    page.view("trips", "view=retention&keep=keep_last(1)&without=kept", "It would release chk-1, chk-2, chk-3")
    assert page.script("document.querySelector('input[aria-label=\"Keep the last\"]').value") == "1"
    page.picks("Rule", "rule")
    page.sees("Type a rule. Until then, the calendar shows the declared rule.")


def test_a_failed_checkpoint_names_its_successor_and_a_stuck_one_is_aborted(page: Page, server: AirflowServer) -> None:
    page.view("trips", "view=checkpoint&checkpoint=7", "Spark was away")
    page.sees("is reading the same offsets")
    page.click("chk-8", "[data-failed] button")
    page.wait("!!document.querySelector('[data-stuck=\"8\"]')")
    page.click("Abort…", "a")
    page.sees("Revokes the attempt at chk-8")
    page.click("Abort checkpoint", "form button[type=submit]")
    page.wait(f"!{FORM}")
    page.sees("DECLINED")
    found = server.ask("GET", "/tidemark/pipelines/trips/checkpoints/details/8", token=server.token())
    assert found["status"] == "FAILED"


def test_the_buttons_come_from_one_request_and_their_space_is_kept(page: Page) -> None:
    page.view("trips", "view=overview", "Checkpoint now")
    asked = "performance.getEntriesByType('resource').map(e => new URL(e.name).pathname)"
    paths: Any = page.script(asked)
    assert not [path for path in paths if path.endswith("/tasks") and path.startswith("/api/v2/dags")]
    assert sum(path.endswith("/trips/actions") for path in paths) == 1


def test_a_transform_offers_the_operators_tries_first_and_leads_to_the_comparison(
    page: Page, server: AirflowServer
) -> None:
    page.view("trips", "view=timelines", "Transform…")
    page.click("Transform…", "td button")
    assert (page.asked()["form"], page.asked()["from"]) == ("transform", "kept")
    page.picks("Add a query for…", "buses")
    page.sees("Returns, per key: bus STRING, trips BIGINT, miles BIGINT")
    assert page.script(f"{SUBMIT}.disabled"), "it has no name"
    query = f"{FORM}.querySelector('textarea')"
    assert page.script(f"{query}.value") == "SELECT *\nFROM buses"
    page.script(f"{query}.select()")
    page.call("Input.insertText", text="SELECT upper(bus) AS bus, trips, miles FROM buses")
    page.fills("Name", "upper")
    assert page.script(f"{SUBMIT}.innerText") == "Dry run"
    page.click("Dry run", "form button[type=submit]")
    names = {"pipeline": "trips", "source": "kept", "fork": "upper"}
    queries = ["buses=SELECT upper(bus) AS bus, trips, miles FROM buses"]
    wanted = {**names, "queries": queries, "key_groups": None, "execute": False}
    made = run_of(page, server, "transform")
    assert {name: made["conf"][name] for name in wanted} == wanted
    ends(server, made["dag_run_id"], transform_trips(server, queries, execute=False))
    page.wait(f"{SUBMIT}.innerText === 'Transform'")
    assert "nothing was changed" in page.form()
    cells = f"[...{FORM}.querySelectorAll('[data-written] tr')].map(r => [...r.children].map(c => c.innerText))"
    heads, row = page.script(cells)
    assert dict(zip(heads, row, strict=True)) == {
        "Operator": "buses", "Before": "2", "After": "2", "Inserted": "2", "Changed": "0", "Deleted": "2",
        "Unchanged": "0", "Key groups": "128",
    }  # fmt: skip
    page.click("Transform", "form button[type=submit]")
    newest = "(document.querySelector('[data-run]') || { dataset: {} }).dataset.run"
    page.wait(f"![undefined, '{made['dag_run_id']}'].includes({newest})")
    made = run_of(page, server, "transform")
    assert made["conf"]["execute"] is True
    done = transform_trips(server, queries, execute=True)
    ends(server, made["dag_run_id"], done)
    page.sees(f"Compare with {done['from']}")
    assert "dry run" not in page.script(f"{FORM}.querySelector('[data-run]').innerText")
    page.click(f"Compare with {done['from']}", "a")
    page.wait(f"!!document.querySelector('[data-compare=\"chk-2 {done['checkpoint']}\"]')")
    assert "Keys: 2 inserted, 0 changed, 2 deleted." in page.words()
    page.click("Promote…", "button")
    page.sees("The fork becomes the live timeline")


def test_the_forms_of_patches_and_of_refused_states(page: Page, server: AirflowServer) -> None:
    page.view("trips", "view=checkpoint&checkpoint=2&form=patch&from=chk-2", "Add tables for…")
    page.picks("Add tables for…", "buses")
    page.fills("Keys to delete from buses", "/data/gone.parquet")
    page.fills("Name", "right")
    page.click("Dry run", "form button[type=submit]")
    wanted = {"source": "chk-2", "name": "right", "timeline": None, "set_tables": [],
              "delete_tables": ["buses=/data/gone.parquet"], "execute": False}  # fmt: skip
    conf = run_of(page, server, "patch")["conf"]
    assert {name: conf[name] for name in wanted} == wanted
    page.view("trips", "view=overview&form=transform", "The address names no restore point")
    with chromium(server.base, server.token("ann"), size=(1440, 900)) as viewer:
        viewer.view("trips", "view=timelines", "Retention")
        heads: Any = viewer.script("[...document.querySelectorAll('[aria-label=Savepoints] th')].map(e => e.innerText)")
        assert "Compare" in heads and "Action" not in heads
        viewer.view("trips", "view=timelines&form=transform&from=kept", "You may not do this here")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_forms_are_readable_and_named_in_both_themes_and_on_a_small_screen(server: AirflowServer, theme: str) -> None:
    whole = "document.querySelector('[data-form]').dataset.page = 'form'"
    with chromium(server.base, server.token(), size=(390, 844), theme=theme) as page:
        forms = (
            ("restore", "As of"),
            ("savepoint", "Expires"),
            ("fork&from=kept", "Note"),
            ("dispose&from=kept", "Unpins chk-2"),
            ("transform&from=kept", "Key groups"),
        )
        for form, seen in forms:
            page.view("trips", f"view=overview&form={form}", seen)
            page.script(whole)
            assert page.script(CONTRAST) == [] and page.script(NAMELESS) == [], form
            left, right = page.script(f"(r => [r.left, r.right])({FORM}.getBoundingClientRect())")
            assert left >= 8 and right <= 382, form
