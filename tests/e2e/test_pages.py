"""The pages in a real browser, over a real API server of Airflow: what somebody sees, clicks and types.

The tests share a server and run in the order in which they are written.
"""

import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.airflow_pages import AirflowServer, api_server
from tests.e2e.chromium import Page, chromium
from tests.e2e.looks import CONTRAST, NAMELESS, OUTSIDE, SHADE
from tests.support.prerequisites import needs_chromium
from tests.support.trips import TripsPipeline
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import checkpoints, savepoints, timelines
from tidemark.ports import PlanRequest

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    needs_chromium(),
]
BUS = "<script>window.pwned=1</script>'\"\u202e" + "x" * 200
FAILED = '<img src=x onerror="window.pwned=1"> ' + "y" * 300
LONG = "n" * 63
RUN = "by-hand"
PLACES = (
    ("view=overview", "Latest restore"),
    ("view=history", "chk-5"),
    ("view=checkpoint&checkpoint=2", "Lineage"),
    ("view=checkpoint&checkpoint=3", "run it again"),
    ("view=checkpoint&checkpoint=5", "Acknowledged 0 of 1"),
    ("view=timelines", "kept"),
    ("view=origin", "Which row?"),
    ("view=columns", "As recorded by"),
    ("view=columns&column=buses.miles", "aggregated"),
    ("view=configuration", "State backend"),
)
LATE = "[data-tile='Last completed']"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowServer]:
    """A server, and a warehouse with a history of everything."""
    home = tmp_path_factory.mktemp("pages")
    with api_server(home, checkpoint_deadline="1h") as made:
        made.ask("POST", "/api/v2/dags/trips/dagRuns", {"logical_date": None, "dag_run_id": RUN}, made.token())
        fill(home)
        yield made


def fill(home: Path) -> None:
    """chk-1 and 2, one of a DAG run; two savepoints, a fork; chk-3 fails, 4 is restored from 1, 5 is in progress.

    All of it two hours ago.
    """
    world = TripsPipeline.ago(home, 2 * 3_600_000)
    context = world.pages
    world.drive("b1", BUS, None)
    checkpoints.run_once(context, "trips", PlanRequest(origin=RUN))
    world.checkpoint("b1", "b2")
    for name, at in (("kept", 1), (LONG, 2)):
        request = SavepointRequest(name=name, owner=BUS, origin="test", checkpoint=at, note=BUS)
        savepoints.open_savepoints(context, "trips").create(request)
    timelines.fork(context, "trips", LONG, RestoreRequest(savepoint="kept"))
    world.fail(FAILED)
    timelines.restore(context, "trips", RestoreRequest(savepoint="kept", request="r"))
    world.checkpoint("b3")
    world.plan()


@pytest.fixture(scope="module")
def page(server: AirflowServer) -> Iterator[Page]:
    with chromium(server.base, server.token(), size=(1400, 1200)) as made:
        yield made


def test_the_overview_tells_how_the_pipeline_is(page: Page) -> None:
    page.view("trips", "view=overview&scope=all", "Latest restore")
    page.sees("p99.9")
    page.wait("document.querySelectorAll('[data-page] svg[data-chart] path').length >= 6")
    told = page.words()
    for text in ("chk-4 on t2", "3 completed", "1 failed", "1 in progress", "1 restored", "ENGINE_ERROR", "p99.9"):
        assert text in told, text


def test_a_pipeline_that_is_late_says_so_in_red_in_a_sign_and_in_words(page: Page) -> None:
    page.view("trips", "view=overview", "Latest restore")
    told = page.script("document.querySelector('[data-tile=\"Last completed\"]').innerText").replace("\xa0", " ")
    assert "! Late" in told and "deadline 1 h" in told and " 2 h " in told.replace("\n", " ")
    red, green, blue = page.script(f'{SHADE}(getComputedStyle(document.querySelector("{LATE}")).borderLeftColor)')[:3]
    assert red > 2 * max(green, blue), "the tile's edge is red"
    quiet = "document.querySelector('[data-tile=Lag]')"
    assert page.script(f"getComputedStyle({quiet}).borderLeftWidth") == "1px", "what is well is quiet"


def test_the_history_has_a_line_for_each_and_is_filtered(page: Page) -> None:
    page.view("trips", "view=history", "chk-5")
    told = page.words()
    assert all(f"chk-{n}" in told for n in range(1, 6))
    page.fills("Search ids, runs and savepoints", "kept")
    page.sees("1–1 of 1")
    page.fills("Search ids, runs and savepoints", " nothing is called so")
    page.sees("No checkpoint matches")


def test_the_history_is_sorted_and_searched_and_its_address_says_so(page: Page) -> None:
    page.view("trips", "view=history", "chk-5")
    order = "[...document.querySelectorAll('th button[data-key]')].map(b => b.innerText)"
    assert page.script(order) == ["chk-5", "chk-4", "chk-3", "chk-2", "chk-1"]
    page.click("Records", "th button")
    page.wait(f"{order}.join() === 'chk-4,chk-1,chk-2,chk-5,chk-3'")
    assert page.script("document.querySelector('th[aria-sort=descending]').innerText").startswith("Records")
    assert "sort=-records" in page.script("location.hash")
    page.click("Records", "th button")
    page.wait(f"{order}.join() === 'chk-2,chk-4,chk-1,chk-5,chk-3'")
    page.fills("Search ids, runs and savepoints", "engine_err")
    page.sees("1–1 of 1")
    assert page.script(order) == ["chk-3"] and "ENGINE_ERROR" in page.words()
    page.view("trips", "view=history&until=2013-01-01", "No checkpoint matches")
    page.click("Clear filters", "button")
    page.sees("1–5 of 5")


def test_each_operator_has_one_line_with_its_time_on_a_screen_of_1440(page: Page) -> None:
    page.resize(1440, 900)
    page.view("trips", "view=checkpoint&checkpoint=2", "Lineage")
    for part in ("Operators", "Storage"):
        page.click(part, "button[role=tab]")
        page.wait(f"!!document.querySelector('[role=region][aria-label={part}]')")
        region = f"document.querySelector('[role=region][aria-label={part}]')"
        assert page.script(f"{region}.scrollWidth <= {region}.clientWidth"), part
        titles = page.script(f"[...{region}.querySelectorAll('thead th')].map(t => t.innerText.toLowerCase())")
        assert len(titles) == len(set(titles)), part
    page.resize(1400, 1200)


def test_facts_are_next_to_the_graph_and_arrow_keys_go_from_node_to_node(page: Page) -> None:
    page.resize(1440, 900)
    page.view("trips", "view=checkpoint&checkpoint=2", "Lineage")
    page.wait("!!document.querySelector('[data-node=manifest]')")
    assert page.script("document.querySelectorAll('[data-node][tabindex=\"0\"]').length") == 1
    page.script("document.querySelector('[data-node=manifest]').focus()")
    for key, node in (("ArrowLeft", "dead buses"), ("ArrowLeft", "operator buses"), ("End", "pin")):
        page.press(key, 0)
        found = page.script("document.activeElement.dataset.node")
        assert found.startswith(("state", "dead", "operator", "pin", "chk")), (key, node, found)
        assert page.script("document.activeElement.getAttribute('aria-pressed')") == "true"
    selectors = "['[role=region][aria-label=Lineage]', '[aria-live=polite]']"
    boxes = f"{selectors}.map(s => document.querySelector('[data-page] ' + s).getBoundingClientRect())"
    graph, facts = page.script(f"{boxes}.map(r => [r.left, r.top, r.right])")
    assert facts[0] >= graph[2] and facts[1] < 900, "next to it, in sight"
    unlike = "[...document.querySelectorAll('[data-node]')].filter(n => !n.getAttribute('aria-label').startsWith("
    assert (
        page.script(
            f"{unlike}[...n.querySelectorAll('bdi')].map(b => b.textContent).filter(Boolean).join(' '))).length"
        )
        == 0
    )
    page.resize(1400, 1200)


def test_on_a_telephone_tabs_are_in_one_row_and_the_first_column_stays(page: Page) -> None:
    page.resize(390, 844)
    page.view("trips", "view=checkpoint&checkpoint=2", "Lineage")
    for strip in ("[aria-label=Views]", "[aria-label='Parts of chk-2']"):
        box = f'document.querySelector("[role=tablist]{strip}").getBoundingClientRect()'
        assert page.script(f"{box}.height") < 50, strip
    page.wait("!!document.querySelector('[data-node=manifest]')")
    graph = "document.querySelector('[role=region][aria-label=Lineage]')"
    heights = f"[{graph}, {graph}.querySelector('svg')].map(e => e.getBoundingClientRect().height)"
    around, drawn = page.script(heights)
    assert around >= drawn > 50, "the whole graph is in sight"
    page.view("trips", "view=history", "chk-5")
    region = "document.querySelector('[role=region][aria-label=History]')"
    page.script(f"{region}.scrollLeft = 400")
    left = f"{region}.querySelector('tbody th').getBoundingClientRect().left - {region}.getBoundingClientRect().left"
    assert abs(page.script(left)) < 2
    page.resize(1400, 1200)


def test_a_line_leads_by_keyboard_to_a_view_with_its_lineage_and_back(page: Page) -> None:
    page.view("trips", "view=history", "chk-2")
    page.script("document.querySelector('th button[data-key=\"5\"]').focus()")
    stops = "[...document.querySelectorAll('th button[data-key]')].filter(b => b.tabIndex === 0).length"
    assert page.script(stops) == 1, "one stop of the Tab key for all lines"
    for _ in range(3):
        page.press("ArrowDown", 40)
    page.wait("document.activeElement.innerText === 'chk-2'")
    page.press("Enter", 13, "\r")
    page.wait("document.activeElement.innerText === 'chk-2'")
    page.wait("!!document.querySelector('[data-node=\"state buses\"]')")
    page.script("document.querySelector('[data-node=\"partition trips-0\"]').focus()")
    page.press("Enter", 13)
    page.sees("end (excluded)")
    assert "[3, 5)" in page.words()
    page.click("History", "nav[aria-label=Breadcrumb] button")
    page.wait("document.activeElement.dataset.key === '2'")


def test_a_column_leads_by_keyboard_to_the_field_that_makes_it_and_back(page: Page) -> None:
    page.view("trips", "view=columns", "As recorded by")
    for column, word in (("buses.miles", "aggregated"), ("records.bus", "Made from it")):
        page.script(f"document.querySelector('[data-column=\"{column}\"]').focus()")
        page.press("Enter", 13, "\r")
        page.sees(word)
        page.wait(f"document.activeElement.innerText === '{column}'")
        assert page.script("new URLSearchParams(location.hash.slice(1)).get('column')") == column
    page.script("history.back()")
    page.wait("!!document.querySelector('[data-chosen=\"buses.miles\"]')")
    page.click("All columns")
    page.fills("Find a column", "mil")
    page.sees("2 columns")
    page.view("trips", "view=columns&column=buses.kilometres", "no column")
    page.click("All columns")
    page.sees("As recorded by")


def test_tabs_and_charts_are_walked_by_arrow_keys(page: Page) -> None:
    page.view("trips", "view=overview", "Latest restore")
    page.script("document.querySelector('[role=tab][aria-selected=true]').focus()")
    assert page.script("[...document.querySelectorAll('[role=tab]')].filter(t => t.tabIndex === 0).length") == 1
    for key, view in (("ArrowRight", "History"), ("End", "Configuration"), ("ArrowRight", "Overview")):
        page.press(key, 0)
        page.wait(f"document.activeElement.innerText === '{view}'")
        assert page.script("document.activeElement.getAttribute('aria-selected')") == "true"
        assert page.script("document.querySelector('[role=tabpanel]').getAttribute('aria-label')") == view
    page.wait("!!document.querySelector('[data-chart=Records]')")
    page.script("document.querySelector('[data-chart=Records]').focus()")
    page.press("Home", 36)
    page.wait("document.activeElement.getAttribute('aria-valuetext').startsWith('chk-1: records 3')")
    page.press("ArrowRight", 39)
    page.wait("document.activeElement.getAttribute('aria-valuetext').startsWith('chk-4')")
    page.press("Enter", 13)
    page.wait("location.hash.includes('checkpoint=4')")


def test_a_run_has_a_tab_with_its_checkpoint(page: Page) -> None:
    page.call("Page.navigate", url=f"{page.base}/dags/trips/runs/{RUN}/plugin/checkpoint")
    page.wait("!!document.querySelector('[data-node=manifest]')")
    assert "chk-1" in page.words()
    assert page.script("document.querySelector('[data-page] [data-status] a[href$=\"/runs/by-hand\"]')") is None
    page.script(
        "document.querySelector('[data-node=\"chk-2\"]').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    page.click("Lineage of chk-2", "button")
    page.wait("document.querySelector('[data-page]').innerText.includes('chk-2 (of another run)')")


def test_no_part_of_an_open_checkpoint_says_what_only_a_completed_one_knows(page: Page) -> None:
    page.view("trips", "view=checkpoint&checkpoint=5", "Acknowledged 0 of 1")
    for part in ("Operators", "Event time", "Dead letters", "Storage"):
        page.click(part, "[data-details] [role=tab]")
        page.sees("not completed")
        page.click("Lineage", "[data-details] [role=tab]")
        page.wait("!!document.querySelector('[data-node=manifest]')")


def test_counts_of_the_overview_lead_to_their_lines(page: Page) -> None:
    page.view("trips", "view=overview&scope=all", "5 checkpoints")
    page.click("1 in progress", "[data-counts] a")
    page.sees("1–1 of 1")
    assert page.asked() == {"pipeline": "trips", "view": "history", "status": "IN_PROGRESS", "scope": "all"}


def test_what_was_typed_is_as_dark_as_the_page(page: Page) -> None:
    page.view("trips", "view=origin&uid=buses&key=b1", "changed by chk-4")
    for field in ("input[aria-label=bus]", "select[aria-label='Row of']"):
        colours = f'[document.querySelector("{field}"), document.body].map(e => getComputedStyle(e).color)'
        assert len(set(page.script(colours))) == 1, field


def test_a_row_leads_to_its_checkpoint_and_offsets(page: Page) -> None:
    page.view("trips", "view=origin", "Which row?")
    page.fills("bus", "b3")
    page.click("Where does it come from?", "button")
    page.wait("!!document.querySelector('[data-origin=\"4\"]')")
    assert "t2" in page.words()
    page.sees("There was no such row before")
    assert page.script("location.hash").endswith("view=origin&uid=buses&key=b3")


def test_the_address_of_a_row_holds_key_and_checkpoint_and_shows_what_changed(page: Page) -> None:
    page.view("trips", "view=origin&uid=buses&key=b1", "changed by chk-4")
    page.view("trips", "view=origin&uid=buses&key=b1&at=chk-2", "changed by chk-2")
    assert page.script("document.querySelector('input[aria-label=bus]').value") == "b1"
    assert page.script("document.querySelector('input[aria-label=\"As of\"]').value") == "chk-2"
    page.wait("!!document.querySelector('[data-changed]')")
    changed = page.script("[...document.querySelectorAll('[data-changed]')].map(e => e.dataset.changed)")
    line = "[...document.querySelectorAll('tr')].find(r => r.querySelector('[data-changed=trips]')).innerText"
    assert "trips" in changed and "bus" not in changed
    assert page.script(line).split()[-2:] == ["1", "2"], "before and after"
    page.click("The change before", "button")
    page.sees("changed by chk-1")
    assert "at=chk-1" in page.script("location.hash")
    page.script("history.back()")
    page.sees("changed by chk-2")
    page.view("trips", "view=origin", "Which row?")
    page.click("Where does it come from?", "button")
    assert "Which row?" in page.words() and "Airflow refused" not in page.words()


def test_hostile_names_are_text(page: Page) -> None:
    for place, seen in (
        ("view=timelines", BUS[:30]),
        ("view=checkpoint&checkpoint=3", FAILED[:30]),
        ("view=overview", "t2"),
    ):
        page.view("trips", place, seen)
        assert page.script("typeof window.pwned") == "undefined"
        assert page.script("document.querySelectorAll('[data-page] script, [data-page] img').length") == 0
    page.view("trips", "view=origin", "Which row?")
    page.fills("bus", BUS)
    page.click("Where does it come from?", "button")
    page.wait("!!document.querySelector('[data-origin=\"1\"]')")
    assert page.script("typeof window.pwned") == "undefined"
    wide = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert page.script(wide), "a long name makes the page scroll sideways"
    assert page.script(
        "[...document.querySelectorAll('[data-page] td bdi')].some(e => e.innerText.includes('<script>'))"
    )


def test_a_button_triggers_the_dag_with_its_form(page: Page, server: AirflowServer) -> None:
    page.view("trips", "view=checkpoint&checkpoint=2", "Create savepoint…")
    page.click("Create savepoint…", "[data-details] button")
    page.fills("Name", "from-the-page")
    page.click("Create savepoint", "form button[type=submit]")
    page.wait("!!document.querySelector('[data-run]')")
    run = page.script("document.querySelector('[data-run]').dataset.run")
    made = server.ask("GET", f"/api/v2/dags/savepoint/dagRuns/{run}".replace("+", "%2B"), token=server.token())
    wanted = {"pipeline": "trips", "name": "from-the-page", "checkpoint": "chk-2"}
    assert {name: made["conf"].get(name) for name in wanted} == wanted


def test_dead_letters_are_redriven_by_operator_and_reason(page: Page, server: AirflowServer) -> None:
    page.view("trips", "view=overview", "Latest restore")
    page.click("Redrive dead letters…", "[role=group] button")
    page.wait("!!document.querySelector('select[aria-label=\"Operator and reason\"]')")
    told = page.form()
    assert "1, from chk-1 to chk-1" in told and "depends on the order of arrival" in told
    page.fills("Note", "from the page")
    page.click("Redrive dead letters", "form button[type=submit]")
    page.wait("!!document.querySelector('[data-run]')")
    run = page.script("document.querySelector('[data-run]').dataset.run")
    made = server.ask("GET", f"/api/v2/dags/redrive/dagRuns/{run}".replace("+", "%2B"), token=server.token())
    (total,) = server.ask("GET", "/tidemark/pipelines/trips/dead-letters", token=server.token())["letters"]
    wanted = {"pipeline": "trips", "uid": total["uid"], "reason": total["reason"], "execute": True}
    assert {name: made["conf"].get(name) for name in wanted} == wanted
    assert (made["conf"]["note"], made["conf"]["out_of_order"]) == ("from the page", False)


def test_a_restore_shows_what_it_would_come_to_first(page: Page) -> None:
    page.view("trips", "view=checkpoint&checkpoint=1", "Restore…")
    page.click("Restore…", "[data-details] button")
    page.sees("1 checkpoint (3 records) leaves the live timeline and stays restorable.")
    page.click("Details", "summary")
    assert "trips-0 [3, 6)" in page.form()


@pytest.mark.parametrize("where", ["a savepoint", "the page"])
def test_a_fork_is_asked_for_under_a_name(page: Page, server: AirflowServer, where: str) -> None:
    page.view("trips", "view=timelines", "kept")
    if where == "a savepoint":
        button = "document.querySelector('button[aria-label=\"Fork… savepoint kept\"]')"
        page.wait(f"!!{button}")
        page.script(f"{button}.focus()")
        page.press("Enter", 13, "\r")
        page.sees("Begins a separate timeline at kept")
    else:
        page.click("Fork…", "[role=group] button")
        page.fills("From", "chk-2")
    page.fills("Name", "what-if")
    page.fills("Note", BUS)
    page.click("Fork", "form button[type=submit]")
    page.wait("!!document.querySelector('[data-run]')")
    run = page.script("document.querySelector('[data-run]').dataset.run")
    made = server.ask("GET", f"/api/v2/dags/fork/dagRuns/{run}".replace("+", "%2B"), token=server.token())
    source = "kept" if where == "a savepoint" else "chk-2"
    assert made["conf"] == {"pipeline": "trips", "source": source, "name": "what-if", "note": BUS}


def test_dead_letters_are_read_from_their_table_and_a_silent_kafka_is_told_of(page: Page) -> None:
    page.view("trips", "view=checkpoint&checkpoint=1", "Dead letters")
    page.click("Dead letters", "[data-details] [role=tab]")
    page.wait("document.querySelectorAll('[data-letters] tbody tr').length === 1")
    words = page.words().replace("\n", " ")
    assert "1 record rejected by buses" in words and "null_key 1 (33.3 %)" in words
    field = "document.querySelector('[data-letters] [data-field=bus]').innerText"
    assert page.script(field) == "bus null"
    page.click("Show raw JSON", "button")
    page.sees('"bus": null')
    page.click("Offsets", "button[role=tab]")
    page.click("Records…", "td button")
    page.click("Read records of trips-0 from Kafka", "button")
    page.sees("no Kafka: TIDEMARK_KAFKA_BOOTSTRAP is not set")
    page.click("Retry", "button")
    page.sees("Next: run a command in a terminal")
    assert page.script("[...document.querySelectorAll('button')].some(b => b.title === 'tidemark up --only kafka')")


def test_a_savepoint_is_disposed_after_its_plan_was_shown(page: Page, server: AirflowServer) -> None:
    page.view("trips", "view=timelines", LONG)
    page.sees("Dispose…")
    lines = "[...document.querySelectorAll('table[aria-label=Savepoints] tr')]"
    line = f"{lines}.find(r => r.innerText.includes('chk-2'))"
    page.script(f"[...{line}.querySelectorAll('button')].find(b => b.innerText === 'Dispose…').click()")
    page.sees("Needed by")
    page.click("Dispose of savepoint", "[data-disposal] button")
    page.wait(
        "![...document.querySelectorAll('table[aria-label=Savepoints] tr')].some(r => r.innerText.includes('chk-2'))"
    )
    page.click("Dispose…", "td button")
    page.sees(f"timeline {LONG}")
    kept = "[...document.querySelectorAll('[data-disposal] button')].find(b => b.innerText === 'Dispose of savepoint')"
    assert page.script(f"{kept}.disabled"), "a fork without a checkpoint of its own needs it"
    left = server.ask("GET", "/tidemark/pipelines/trips/savepoints", token=server.token())
    assert [s["name"] for s in left] == ["kept"]


def test_a_viewer_sees_no_buttons_and_nobody_gets_the_bundle(server: AirflowServer) -> None:
    with chromium(server.base, server.token("ann"), size=(1400, 1200)) as page:
        page.view("trips", "view=timelines", "kept")
        assert "Dispose" not in page.words() and "Checkpoint now" not in page.words()
        page.view("trips", "view=origin", "You may not see rows of trips")
        page.view("trips", "view=checkpoint&checkpoint=1", "Dead letters")
        page.click("Dead letters", "[data-details] [role=tab]")
        page.sees("you may not see records and rows of trips")
        words = page.words().replace("\n", " ")
        assert "null_key 1" in words and "b1" not in words
    for path in ("/tidemark/static/page.js", "/tidemark/pipelines", "/tidemark/pipelines/trips/checkpoints"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            server.ask("GET", path)
        refused.value.close()
        assert refused.value.code == 401


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_stand_out_in_both_themes(server: AirflowServer, theme: str) -> None:
    with chromium(server.base, server.token(), size=(1400, 1200), theme=theme) as page:
        for place, seen in PLACES:
            page.view("trips", place, seen)
            faint: Any = page.script(CONTRAST)
            assert faint == [], faint


def test_on_any_screen_all_is_in_reach_and_has_a_name(page: Page) -> None:
    for place, seen in PLACES:
        page.view("trips", place, seen)
        assert page.script(NAMELESS) == [], place
        assert page.script("document.querySelectorAll('[data-page] h1').length") == 1
        for wide in (390, 1440, 1400):
            page.resize(wide, 1200)
            outside: Any = page.script(OUTSIDE)
            assert outside == [], f"{place} at {wide}: {outside}"
