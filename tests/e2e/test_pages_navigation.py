"""Addresses of the pages, and checkpoints under way, in a real browser over a real API server of Airflow."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.airflow_pages import AirflowServer, api_server
from tests.e2e.chromium import Browser, Page
from tests.support.prerequisites import needs_chromium
from tests.support.trips import TripsPipeline
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.model.checkpoint.codec import body_of
from tidemark.operations import timelines
from tidemark.testing.twin.memory import ManualClock
from tidemark.web import details

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    needs_chromium(),
]
PATH = "/plugin/checkpoints"
HEIGHT = 900
BOX = "(e => e && (r => [r.top, r.bottom])(e.getBoundingClientRect()))"


@dataclass
class Site:
    """A server, and what it reads, which the tests change while somebody looks."""

    server: AirflowServer
    world: TripsPipeline
    clock: ManualClock


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """chk-1 to 3 on t1, one failed; t1 ends by a restore from 2, so that chk-3 is set aside; 30 on t2."""
    home = tmp_path_factory.mktemp("navigation")
    with api_server(home) as server:
        world = TripsPipeline.ago(home, 3_600_000)
        context, clock = world.pages, world.line.clock
        for bus in ("b1", "b2", "b3"):
            world.checkpoint(bus)
        world.fail("the broker was away")
        timelines.restore(context, "trips", RestoreRequest(checkpoint=2, request="back"))
        for n in range(30):
            clock.advance(1000)
            world.checkpoint(f"b{n}")
        yield Site(server, world, clock)


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    with browser.page(site.server.base, site.server.token(), size=(1440, HEIGHT)) as made:
        yield made


def place(page: Page) -> tuple[str, dict[str, str]]:
    """The path of the address, and what its fragment says."""
    path, told = page.script("[location.pathname, Object.fromEntries(new URLSearchParams(location.hash.slice(1)))]")
    return path, told


def in_sight(page: Page, selector: str) -> bool:
    """Whether the top of an element stands in the window."""
    found: Any = page.script(f"{BOX}(document.querySelector({selector!r}))")
    return bool(found) and 0 <= found[0] < HEIGHT


def tab(page: Page) -> Any:
    """The view whose tab is chosen."""
    return page.script("document.querySelector('[role=tab][aria-selected=true]').innerText")


def begin(page: Page) -> None:
    """Opens the page as Airflow's menu does: without a fragment."""
    page.call("Page.navigate", url=page.base + PATH)
    page.sees("Latest restore")


def reload(page: Page) -> None:
    """Loads the page again; nothing of the old one is taken for the new one."""
    page.script("window.old = true")
    page.call("Page.reload")
    page.wait("!window.old && !!document.querySelector('[data-page]')")


def test_a_click_keeps_the_path_and_a_reload_shows_the_same(page: Page) -> None:
    begin(page)
    page.click("History", "[role=tab]")
    page.sees("1–25 of 34")
    assert place(page) == (PATH, {"pipeline": "trips", "view": "history"})
    reload(page)
    page.sees("1–25 of 34")
    assert place(page) == (PATH, {"pipeline": "trips", "view": "history"})
    page.click("chk-30", "tr")
    page.wait("!!document.querySelector('[data-node=manifest]')")
    wanted = (PATH, {"pipeline": "trips", "view": "checkpoint", "checkpoint": "30"})
    assert place(page) == wanted
    reload(page)
    page.wait("!!document.querySelector('[data-node=manifest]')")
    assert place(page) == wanted and "chk-30" in page.words()


def test_back_and_forward_go_through_views_and_checkpoints(page: Page) -> None:
    begin(page)
    page.click("History", "[role=tab]")
    page.sees("1–25 of 34")
    page.picks("Status", "FAILED")
    page.sees("1–1 of 1")
    page.click("chk-4", "tr")
    page.sees("the broker was away")
    page.click("chk-5 ›", "button")
    page.wait("!!document.querySelector('[data-details=\"5\"] [data-node=manifest]')")
    steps: list[tuple[str, str | None, str]] = [
        ("chk-4", "4", "the broker was away"),
        ("the filtered history", None, "1–1 of 1"),
        ("the overview", None, "Latest restore"),
    ]
    for what, checkpoint, text in steps:
        page.script("history.back()")
        page.sees(text)
        path, told = place(page)
        assert (path, told.get("checkpoint")) == (PATH, checkpoint), what
    assert tab(page) == "Overview", "a filter is no step of its own"
    page.script("history.forward()")
    page.sees("1–1 of 1")
    assert (place(page)[0], place(page)[1]["status"], tab(page)) == (PATH, "FAILED", "History")


def test_the_menu_leads_to_the_overview_from_wherever_one_is(page: Page) -> None:
    page.view("trips", "view=checkpoint&checkpoint=3", "on t1")
    page.click("Checkpoints", "a[href$='/plugin/checkpoints']")
    page.sees("Latest restore")
    assert place(page) == (PATH, {})
    page.script("history.back()")
    page.sees("on t1")


def test_filters_stand_in_the_address(page: Page) -> None:
    page.view("trips", "view=history&status=FAILED", "1–1 of 1")
    page.fills("Search ids, runs and savepoints", "chk-9")
    page.sees("No checkpoint matches")
    path, told = place(page)
    assert (path, told["text"], told["status"]) == (PATH, "chk-9", "FAILED")
    page.view("trips", "view=history&offset=25", "26–34 of 34")


@pytest.mark.parametrize("size", [(1440, HEIGHT), (390, 844)])
def test_details_are_in_sight_by_every_way(page: Page, size: tuple[int, int]) -> None:
    page.resize(*size)
    for address in ("view=checkpoint&checkpoint=3", "view=history&checkpoint=3"):
        page.view("trips", address, "on t1")
        assert in_sight(page, "[data-details='3']"), address
    page.view("trips", "view=overview&scope=all", "Latest failed")
    page.click("chk-4", "section button")
    page.sees("the broker was away")
    assert place(page)[1]["view"] == "checkpoint" and in_sight(page, "[data-details='4']")
    assert page.script("[...document.querySelectorAll('[role=alert]')].every(e => e.getBoundingClientRect().top < 844)")
    page.view("trips", "view=history", "1–25 of 34")
    page.click("chk-12", "tr th")
    page.wait("!!document.querySelector('[data-details=\"12\"]')")
    assert in_sight(page, "[data-details='12']"), "although the table was scrolled"


@pytest.mark.parametrize("wide", [1440, 390])
def test_the_newest_dot_of_the_timelines_is_in_sight(page: Page, wide: int) -> None:
    page.resize(wide, 844)
    page.view("trips", "view=timelines", "Choose a checkpoint")
    newest = "[...document.querySelectorAll('[data-dot]')].pop()"
    page.wait(f"!!{newest}")
    dot, around = (f"{e}.getBoundingClientRect()" for e in (newest, f"{newest}.closest('svg').parentElement"))
    assert page.script(f"{dot}.left > {around}.left && {dot}.right < {around}.right")
    assert page.script(f"{dot}.left - {around}.left > {around}.width / 2") or wide == 1440, "and those before it"


def test_a_checkpoint_that_is_unknown_says_so_in_sight(page: Page) -> None:
    page.view("trips", "view=checkpoint&checkpoint=999", "no checkpoint chk-999")
    assert in_sight(page, "[data-details='999'] [role=alert]")


def test_a_tab_of_the_run_leads_to_the_view_of_its_checkpoint(page: Page, site: Site) -> None:
    run = body_of(details.get_details(site.world.pages, "trips", 34))["origin"]
    site.server.ask(
        "POST", "/api/v2/dags/trips/dagRuns", {"logical_date": None, "dag_run_id": run}, site.server.token()
    )
    page.call("Page.navigate", url=f"{page.base}/dags/trips/runs/{run}/plugin/checkpoint")
    page.click("Open in Checkpoints", "a")
    page.wait("!!document.querySelector('[data-details=\"34\"]')")
    assert place(page) == (PATH, {"pipeline": "trips", "view": "checkpoint", "checkpoint": "34"})


def test_a_run_plans_then_runs_then_is_completed_while_somebody_looks(page: Page, site: Site) -> None:
    world, line = site.world, site.world.line
    body = {"logical_date": None, "dag_run_id": "watched"}
    site.server.ask("POST", "/api/v2/dags/trips/dagRuns", body, site.server.token())
    page.call("Page.navigate", url=f"{page.base}/dags/trips/runs/watched/plugin/checkpoint")
    page.sees("Planning…")
    assert "queued" in page.words() and "made no checkpoint" not in page.words()
    world.drive("late")
    plan = world.plan("watched")
    page.wait("!!document.querySelector('[data-progress=planned]')")
    owned = line.coordinator.begin(plan)
    assert isinstance(owned, OwnedAttempt)
    page.wait("!!document.querySelector('[data-progress=running]')")
    assert page.script("document.querySelector('[data-acks]').dataset.acks") == "0/1"
    assert page.script("document.querySelector('[data-elapsed]').innerText").startswith("Elapsed ")
    line.execute(owned)
    page.wait("!!document.querySelector('[data-acks=\"1/1\"]')")
    line.coordinator.complete(plan)
    page.wait("!!document.querySelector('[data-status=COMPLETED]')")
    assert page.script("document.querySelector('[data-progress]')") is None
    page.wait("document.querySelector('[data-node=manifest]').textContent.includes('completed')")


def test_before_the_first_checkpoint_a_run_plans_and_the_page_says_how_to_begin(page: Page, site: Site) -> None:
    body = {"logical_date": None, "dag_run_id": "first"}
    site.server.ask("POST", "/api/v2/dags/trips/dagRuns", body, site.server.token())
    folder = site.world.line.root / "trips"
    aside = folder.rename(site.server.home / "aside")
    try:
        page.call("Page.navigate", url=f"{page.base}/dags/trips/runs/first/plugin/checkpoint")
        page.sees("Planning…")
        assert "no pipeline" not in page.words()
        page.call("Page.navigate", url=page.base + PATH)
        page.sees("No pipeline has made a checkpoint yet")
    finally:
        aside.rename(folder)


ASKED = """performance.getEntriesByType('resource').filter(e => e.name.includes('/tidemark/pipelines'))
  .map(e => [e.name.split('/tidemark/pipelines')[1], e.startTime, e.responseEnd])"""


@pytest.mark.parametrize(
    ("view", "answers"),
    [
        ("overview", {"?limit=0&scope=live&more=false", "/series?last=200&scope=live"}),
        ("history", {"?limit=25&more=false"}),
        ("checkpoint&checkpoint=2", {"/details/2", "/lineage/2"}),
    ],
)
def test_a_view_asks_for_its_answers_while_the_pipelines_are_asked_for(
    page: Page, view: str, answers: set[str]
) -> None:
    page.view("trips", f"view={view}", "Checkpoint now")
    asked = {path: (start, end) for path, start, end in reversed(page.script(ASKED))}
    early = {path for path, (start, _) in asked.items() if start < asked[""][1]}
    assert {f"/trips/checkpoints{answer}" for answer in answers} <= early


def test_a_pipeline_that_does_not_exist_is_told_once_its_view_is_gone(page: Page) -> None:
    page.view("nowhere", "view=overview", "There is no pipeline nowhere that you may see")
    page.wait("document.querySelectorAll('[data-page] [role=alert]').length === 1")
    assert "Overview" not in page.words()
    page.picks("Pipeline", "trips")
    page.wait("!!document.querySelector('[data-verdict-line]')")


def test_an_error_stands_below_the_heading_of_its_page(page: Page) -> None:
    page.call("Network.enable")
    page.call("Network.setBlockedURLs", urls=["*/tidemark/pipelines*", "*/tidemark/verdicts*"])
    for path, heading in ((PATH, "h1"), ("/", "[data-page=home] h2")):
        page.call("Page.navigate", url=page.base + path)
        page.sees("Airflow does not answer")
        assert page.script(f"document.querySelector('{heading}').innerText") == "Checkpoints"


def test_damage_is_said_once(page: Page, site: Site) -> None:
    damaged = site.world.checkpoint("damaged")
    manifest = max((site.world.folder / "timelines/t2").glob("*.json"))
    whole = manifest.read_bytes()
    try:
        manifest.write_bytes(whole[:-40])
        page.view("trips", "view=overview&scope=all", "1 damaged")
        page.wait("document.querySelectorAll('[data-page] [role=alert]').length === 1")
        assert page.words().count("object damaged") == 2, "in the verdict, and with what to do next"
        page.view("trips", "view=timelines", "object damaged")
        page.sees("No savepoints")
        assert page.words().count("object damaged") == 1 and page.words().count("Next: ") == 1
        page.view("trips", f"view=checkpoint&checkpoint={damaged}", "object damaged")
        page.wait("document.querySelectorAll('[data-details] [role=tab]').length === 3")
        page.wait("document.querySelectorAll('[data-details] [data-node=manifest]').length === 1")
        assert page.words().count("object damaged") == 1 and page.words().count("Next: ") == 1
        page.script("document.querySelector('[aria-label^=\"Previous checkpoint, chk-\"]').click()")
        page.wait(f"!!document.querySelector('[data-details]:not([data-details=\"{damaged}\"])')")
    finally:
        manifest.write_bytes(whole)
