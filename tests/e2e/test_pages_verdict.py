"""The verdict, the scope, times and charts in a real browser, and the pages' places in Airflow's own pages."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.e2e.airflow_pages import AirflowServer, api_server
from tests.e2e.chromium import Page, chromium
from tests.e2e.looks import CONTRAST, NAMELESS, OUTSIDE
from tests.support.prerequisites import needs_chromium
from tests.support.trips import TripsPipeline
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import savepoints, timelines

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(400), needs_chromium()]
HOUR, DAY = 3_600_000, 86_400_000
LINE = "document.querySelector('[data-verdict-line]')"
POINTS = "document.querySelectorAll('[data-chart=Records] circle').length"
RUN = "manual__2026-01-05T10:20:30+00:00"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowServer]:
    """chk-1 to 3 on t1, a savepoint at 2, a fork of it, 4 failed, a restore from 2, chk-5 to 9 on t2; 5 days ago."""
    home = tmp_path_factory.mktemp("verdict")
    with api_server(home) as made:
        world = TripsPipeline.ago(home, 5 * DAY)
        context, clock = world.pages, world.line.clock
        for buses in (("a", None), ("b",), ("c",)):
            world.checkpoint(*buses)
            clock.advance(HOUR)
        request = SavepointRequest(name="kept", owner="me", origin="test", checkpoint=2)
        savepoints.open_savepoints(context, "trips").create(request)
        timelines.fork(context, "trips", "what-if", RestoreRequest(checkpoint=2))
        world.fail("the broker was away")
        clock.advance(HOUR)
        timelines.restore(context, "trips", RestoreRequest(checkpoint=2, request="back"))
        for n in range(5):
            clock.advance(HOUR)
            world.checkpoint(f"b{n}")
        made.ask("POST", "/api/v2/dags/trips/dagRuns", {"logical_date": None, "dag_run_id": RUN}, made.token())
        yield made


@pytest.fixture(scope="module")
def page(server: AirflowServer) -> Iterator[Page]:
    with chromium(server.base, server.token(), size=(1440, 900)) as made:
        yield made


def pause(server: AirflowServer, *, paused: bool) -> None:
    server.ask("PATCH", "/api/v2/dags/trips", {"is_paused": paused}, server.token())


def picked(page: Page, zone: str) -> None:
    """Chooses a time zone as Airflow's picker does."""
    page.script(
        f"localStorage.setItem('timezone', {json.dumps(json.dumps(zone))});"
        "dispatchEvent(new StorageEvent('local-storage', {key: 'timezone'}))"
    )


def test_a_paused_pipeline_becomes_late_by_its_schedule_once_it_is_unpaused(page: Page, server: AirflowServer) -> None:
    pause(server, paused=True)
    page.view("trips", "view=overview", "the DAG is paused, last checkpoint 4 d")
    assert page.script(f"{LINE}.dataset.verdictLine") == "PAUSED"
    pause(server, paused=False)
    page.view("trips", "view=overview", "a run has been due for")
    assert page.script(f"{LINE}.dataset.verdictLine") == "LATE"
    reported = page.script(f"{LINE}.innerText")
    assert (
        "! Late" in reported
        and "lag 0" in reported
        and "9 % dead letters" not in reported
        and "dead letters" in reported
    )
    assert page.script(f"{LINE}.getBoundingClientRect().bottom") < 400, "in sight at once"
    tile = page.script("document.querySelector('[data-tile=\"Last completed\"]').innerText")
    assert "! Late" in tile and "late since" in tile


def test_the_home_page_lists_pipelines_with_their_verdicts(page: Page, server: AirflowServer) -> None:
    pause(server, paused=False)
    page.call("Page.navigate", url=server.base)
    page.sees("1 of 1 pipeline needs attention")
    assert page.script("document.querySelector('[data-pipeline=trips] [data-verdict]').dataset.verdict") == "LATE"
    page.click("trips", "[data-pipeline] a")
    page.sees("Latest restore")
    assert page.script("location.pathname + location.hash") == "/plugin/checkpoints#pipeline=trips&view=overview"


@pytest.mark.parametrize("dag", ["trips", "fork"])
def test_a_dag_has_the_tab_with_its_pipeline(page: Page, server: AirflowServer, dag: str) -> None:
    page.call("Page.navigate", url=f"{server.base}/dags/{dag}")
    page.click("Checkpoints", f"a[href$='/dags/{dag}/plugin/dag-checkpoints']")
    page.wait(f"!!{LINE}")
    page.click("History", "[data-page] [role=tab]")
    page.sees("1–9 of 9")
    address = page.script("location.pathname + location.hash")
    assert address == f"/dags/{dag}/plugin/dag-checkpoints#pipeline=trips&view=history"
    page.call("Page.reload")
    page.sees("1–9 of 9")
    page.click("Overview", "[data-page] [role=tab]")
    page.click("by partition", "[data-tile] a")
    page.sees("Partitions")
    assert page.script("location.pathname").startswith(f"/dags/{dag}/"), "a link within the tab stays in it"


def test_every_panel_follows_the_scope_and_the_address_holds_it(page: Page) -> None:
    page.view("trips", "view=overview", "7 checkpoints")
    page.wait(f"{POINTS} === 7")
    for value, text, points in (("all", "9 checkpoints", 8), ("timeline:what-if", "2 checkpoints", 2)):
        page.picks("Checkpoints of", value)
        page.sees(text)
        page.wait(f"{POINTS} === {points}")
        assert page.script("new URLSearchParams(location.hash.slice(1)).get('scope')") == value
    card = "[...document.querySelectorAll('section')].find(s => /Latest failed/.test(s.innerText)).innerText"
    assert "None" in page.script(card)
    page.script("history.back()")
    page.sees("9 checkpoints")
    assert page.script(f"{LINE}.innerText").count("Late") == 1, "the verdict is about the live timeline"
    page.view("trips", "view=overview&scope=timeline:nothing", "no timeline 'nothing'")
    page.click("Show the live timeline", "button")
    page.sees("7 checkpoints")


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata", "UTC"])
def test_times_follow_the_zone_that_is_picked_without_a_reload(page: Page, server: AirflowServer, zone: str) -> None:
    page.view("trips", "view=overview", "Latest restore")
    picked(page, zone)
    reported = server.ask("GET", "/tidemark/pipelines/trips/checkpoints?scope=live", token=server.token())
    trigger = datetime.fromtimestamp(reported["latest"]["completed"]["trigger_timestamp"] / 1000, UTC)
    text = trigger.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S")
    page.sees(text)
    name = zone.split("/")[-1].replace("_", " ")
    assert f"{text} {name}" in page.words().replace("\n", " ") and f"({name})" in page.words()
    iso = page.script("document.querySelector('time').getAttribute('datetime')")
    assert datetime.fromisoformat(iso) == trigger
    picked(page, "UTC")


def clock(page: Page, expression: str) -> Any:
    """A value of the module that formats times."""
    url = json.dumps("/tidemark/static/clock.js")
    page.script(f"window.got = undefined; import({url}).then(clock => {{ window.got = {{ value: {expression} }} }})")
    page.wait("!!window.got")
    return page.script("window.got.value")


@pytest.mark.parametrize("zone", ["America/New_York", "Australia/Lord_Howe", "UTC"])
@pytest.mark.parametrize("hours", [0.01, 5, 30, 24 * 20, 24 * 400, 24 * 3650])
def test_ticks_are_whole_times_of_the_zone(page: Page, zone: str, hours: float) -> None:
    page.rest = 0.0
    picked(page, zone)
    begin = int(datetime(2026, 3, 7, 19, 41, 7, tzinfo=UTC).timestamp() * 1000)
    end = begin + round(hours * HOUR)
    for most in (2, 4, 9):
        ticks = clock(page, f"clock.timeTicks({begin}, {end}, {most})")
        assert len(ticks) <= most + 1
        walls = [datetime.fromtimestamp(t["at"] / 1000, ZoneInfo(zone)) for t in ticks]
        times = [t["at"] for t in ticks]
        assert all(begin <= at <= end for at in times) and times == sorted(times)
        for tick, wall in zip(ticks, walls, strict=True):
            if ":" in tick["label"]:
                assert tick["label"] in (wall.strftime("%H:%M"), wall.strftime("%H:%M:%S"))
            elif tick["label"].isdigit():
                assert (wall.year, wall.month, wall.day, wall.hour) == (int(tick["label"]), 1, 1, 0)
            elif tick["label"][0].isdigit():
                assert (tick["label"], wall.strftime("%H:%M")) == (wall.strftime("%-d %b"), "00:00")
            else:
                assert (tick["label"], wall.day, wall.hour) == (wall.strftime("%b %Y"), 1, 0)
    page.rest = 1.0
    picked(page, "UTC")


def test_charts_mark_events_and_say_them_by_keyboard(page: Page) -> None:
    page.view("trips", "view=overview&scope=all", "9 checkpoints")
    page.wait(f"{POINTS} === 8")
    marks = page.script("[...document.querySelectorAll('[data-chart=Size] [data-mark]')].map(m => m.dataset.mark)")
    assert sorted(marks) == ["failed", "fork", "restore", "savepoint"]
    page.script("document.querySelector('[data-chart=Size]').focus()")
    page.press("Home", 36)
    found = []
    for _ in range(11):
        found.append(page.script("document.activeElement.getAttribute('aria-valuetext')"))
        assert page.script("document.querySelector('[data-tip]').innerText")
        page.press("ArrowRight", 39)
    assert found[0].startswith("chk-1: incremental ") and "savepoints: kept" in found[1]
    assert any(text.startswith("chk-4 failed: ENGINE_ERROR") for text in found)
    assert any(text.startswith("Restore of chk-2: timeline t2 began") for text in found)
    assert found[-1].startswith("chk-9: ")
    page.press("Escape", 27)
    assert page.script("document.querySelector('[data-tip]')") is None


@pytest.mark.parametrize("size", [(1440, 900), (390, 844)])
def test_texts_of_a_chart_keep_their_size_and_do_not_overlap(page: Page, size: tuple[int, int]) -> None:
    page.resize(*size)
    page.view("trips", "view=overview", "7 checkpoints")
    page.wait(f"{POINTS} === 7")
    sizes = "new Set([...document.querySelectorAll('[data-chart] text')].map(t => getComputedStyle(t).fontSize))"
    assert page.script(f"[...{sizes}]") == ["12px"]
    scaled = "s.getBoundingClientRect().width !== Number(s.getAttribute('width'))"
    assert not page.script(f"[...document.querySelectorAll('[data-chart]')].some(s => {scaled})")
    overlaps = """[...document.querySelectorAll('[data-chart]')].flatMap(s => {
      const boxes = [...s.querySelectorAll('text')].map(t => t.getBoundingClientRect());
      return boxes.flatMap((a, n) => boxes.slice(n + 1).filter(b => a.left < b.right - 1 && b.left < a.right - 1
        && a.top < b.bottom - 2 && b.top < a.bottom - 2).map(() => s.dataset.chart)); })"""
    assert page.script(overlaps) == []
    assert page.script(OUTSIDE) == []
    page.resize(1440, 900)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_lines_badges_and_tile_have_contrast_and_names(server: AirflowServer, theme: str) -> None:
    with chromium(server.base, server.token(), size=(1440, 900), theme=theme) as made:
        made.view("trips", "view=overview&scope=all", "9 checkpoints")
        made.wait(f"{POINTS} === 8")
        assert (made.script(CONTRAST), made.script(NAMELESS), made.script(OUTSIDE)) == ([], [], [])
        made.call("Page.navigate", url=server.base)
        made.sees("1 of 1 pipeline needs attention")
        assert (made.script(CONTRAST), made.script(OUTSIDE)) == ([], [])
        icon = "document.querySelector('a[href$=\"/plugin/checkpoints\"] img')"
        made.wait(f"!!{icon} && {icon}.naturalWidth > 0")
        wanted = "icon-dark.svg" if theme == "dark" else "icon.svg"
        assert made.script(f"{icon}.src").endswith(f"/tidemark/static/{wanted}")


def test_the_window_has_the_title_of_the_pipeline_only_while_the_page_is_shown(page: Page) -> None:
    page.view("trips", "view=overview", "Latest restore")
    page.wait("document.title === 'Checkpoints · trips - Airflow'")
    page.click("trips", "[data-page] a[href$='/dags/trips']")
    page.wait("!document.querySelector('[data-page]') && !document.title.includes('Checkpoints')")
    page.script("history.back()")
    page.wait("document.title === 'Checkpoints · trips - Airflow'")


def test_after_a_link_to_a_run_its_tab_is_marked(page: Page, server: AirflowServer) -> None:
    page.rest = 1.0
    picked(page, "UTC")
    path = "/tidemark/static/ui.js"
    page.view("trips", "view=overview", "Latest restore")
    page.script(f"import('{path}').then(ui => {{ window.link = ui.dagRun('trips', {json.dumps(RUN)}) }})")
    page.wait("!!window.link")
    link = page.script("window.link")
    assert link == f"/dags/trips/runs/{RUN}", "as Airflow writes it"
    page.call("Page.navigate", url=server.base + link)
    page.wait(f"[...document.querySelectorAll('a[aria-current=page]')].some(a => a.href.includes({json.dumps(link)}))")
