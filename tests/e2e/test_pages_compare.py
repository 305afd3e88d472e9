"""The comparison and the graph of timelines in a real browser over a real API server of Airflow."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.airflow_pages import AirflowServer, api_server
from tests.e2e.chromium import Browser, Page, chromium
from tests.e2e.looks import CONTRAST, NAMELESS, OUTSIDE
from tests.support.prerequisites import needs_chromium
from tests.support.trips import TripsPipeline
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.model.retention.savepoint import SavepointRequest, TombstoneKind
from tidemark.operations import savepoints, timelines

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    needs_chromium(),
]
BUS = "<script>window.pwned=1</script>'\"\u202e" + "x" * 200
FORK = "what-if"
LIVE = '[aria-label^="Compare with live"]'
PLACES = (
    ("view=compare", "Keys:"),
    ("view=compare&left=live&right=timeline:what-if", "Fork"),
    ("view=compare&left=kept&right=kept", "No difference"),
    ("view=compare&left=nothing", "no restore point"),
    ("view=timelines", "Choose a checkpoint"),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowServer]:
    """A server over the warehouse of `fill`."""
    home = tmp_path_factory.mktemp("comparison")
    with api_server(home) as made:
        fill(home)
        yield made


def fill(home: Any) -> None:
    """chk-1 (`kept`), 2 and 3 (released) on t1, 4 on the fork of 1, 5 fails; 6 is on t2, which is restored from 2.

    chk-2 adds b2 and changes b1 of chk-1; the fork has b1 and b2 as well, and t2 another trip of b1.
    """
    world = TripsPipeline.ago(home, 3_600_000)
    context, line = world.pages, world.line
    world.checkpoint("b1", BUS)
    request = SavepointRequest(name="kept", owner="me", origin="test", checkpoint=1)
    savepoints.open_savepoints(context, "trips").create(request)
    world.checkpoint("b1", "b2")
    world.checkpoint()
    timelines.fork(context, "trips", FORK, RestoreRequest(checkpoint=1))
    line.checkpoint(timeline=FORK)
    world.fail("the broker was away")
    timelines.restore(context, "trips", RestoreRequest(checkpoint=2, request="back"))
    world.checkpoint("b1", "b3", BUS)
    tombstones = savepoints.open_savepoints(context, "trips").tombstones
    raised, _ = tombstones.raise_for(TombstoneKind.CHECKPOINT, "chk-3", "keep_last(3)")
    assert tombstones.confirm(raised)


@pytest.fixture
def page(browser: Browser, server: AirflowServer) -> Iterator[Page]:
    with browser.page(server.base, server.token(), size=(1440, 900)) as made:
        yield made


def compared(page: Page, left: str, right: str) -> None:
    """Waits for a comparison."""
    page.wait(f"!!document.querySelector('[data-compare=\"{left} {right}\"]')")


def counts(page: Page, uid: str) -> dict[str, int]:
    """The counts of an operator, by the badges of its panel."""
    found: dict[str, int] = page.script(
        f"(e => Object.fromEntries(['inserted', 'changed', 'deleted'].map(n => [n, e.querySelector(`[data-${{n}}]`)])"
        f".filter(([, b]) => b).map(([n, b]) => [n, Number(b.dataset[n])])))"
        f"(document.querySelector('[data-operator={uid}]'))"
    )
    return found


def test_the_tab_compares_the_head_with_the_checkpoint_before_it(page: Page) -> None:
    page.view("trips", "view=overview", "Latest restore")
    page.click("Compare", "[role=tab]")
    compared(page, "chk-2", "chk-6")
    assert page.asked() == {"pipeline": "trips", "view": "compare"}
    assert counts(page, "buses") == {"inserted": 1, "changed": 2}
    reported = page.words()
    assert "Keys: 1 inserted, 2 changed, 0 deleted." in reported
    assert "The first" not in reported and "All 3 keys that differ" in reported
    cell = "document.querySelector('[data-operator=buses] [data-differs=trips]').innerText"
    assert page.script(cell).replace("\xa0", " ") == "1 → 2"
    assert page.script("typeof window.pwned") == "undefined"
    assert page.script("document.querySelectorAll('[data-page] script, [data-page] img').length") == 0


def test_the_address_holds_the_comparison_and_back_works(page: Page) -> None:
    page.view("trips", "view=compare", "Keys:")
    compared(page, "chk-2", "chk-6")
    page.picks("From", "savepoint:kept")
    page.picks("To", f"timeline:{FORK}")
    page.click("Compare", "form button[type=submit]")
    compared(page, "chk-1", "chk-4")
    wanted = {"pipeline": "trips", "view": "compare", "left": "savepoint:kept", "right": f"timeline:{FORK}"}
    assert page.asked() == wanted
    assert counts(page, "buses") == {"inserted": 1, "changed": 1}
    page.click("Keep chk-1 and chk-4 in the address", "button")
    page.wait("location.hash.includes('left=chk-1')")
    compared(page, "chk-1", "chk-4")
    page.script("history.back()")
    page.wait("location.hash.includes('kept')")
    page.script("history.back()")
    compared(page, "chk-2", "chk-6")
    page.script("history.forward()")
    compared(page, "chk-1", "chk-4")
    page.click("History", "[role=tab]")
    page.wait("!location.hash.includes('left')")


def test_any_other_restore_point_is_typed_and_sides_are_swapped(page: Page) -> None:
    page.view("trips", "view=compare&left=chk-1&right=chk-2", "Keys:")
    page.picks("To", "other")
    page.fills("To, another one", "6")
    page.click("⇄", "form button")
    page.click("Compare", "form button[type=submit]")
    compared(page, "chk-6", "chk-1")
    assert counts(page, "buses") == {"deleted": 2, "changed": 2}


def test_a_checkpoint_leads_to_comparisons_with_its_parent_and_with_live(page: Page) -> None:
    page.view("trips", "view=checkpoint&checkpoint=2", "Compare with live")
    page.click("Compare with parent chk-1", "button")
    compared(page, "chk-1", "chk-2")
    page.script("history.back()")
    page.click("Compare with live", "button")
    compared(page, "chk-2", "chk-6")
    page.view("trips", "view=checkpoint&checkpoint=5", "the broker was away")
    assert "Compare with" not in page.words()
    page.view("trips", "view=compare&left=chk-3", "chk-3 was released at 20")
    assert re.search(r"released at [-0-9]+ [:0-9]+ [A-Z]\w+: keep_last", page.words()), "in the zone of the page"


def test_a_fork_is_promoted_from_its_comparison(page: Page, server: AirflowServer) -> None:
    page.view("trips", "view=timelines", FORK)
    button = f"document.querySelector('button[aria-label=\"Compare with live: {FORK}\"]')"
    page.wait(f"!!{button}")
    page.script(f"{button}.click()")
    compared(page, "chk-6", "chk-4")
    assert page.asked()["right"] == f"timeline:{FORK}"
    assert counts(page, "buses") == {"deleted": 1, "changed": 2}
    assert "common ancestor chk-1" in page.words()
    page.click("Promote…", "button")
    page.sees("The fork becomes the live timeline")
    page.click("Also if the fork lacks records", "form label")
    page.click(f"Promote {FORK}", "form button[type=submit]")
    page.wait("!!document.querySelector('[data-run]')")
    run = page.script("document.querySelector('[data-run]').dataset.run")
    made = server.ask("GET", f"/api/v2/dags/promote/dagRuns/{run}".replace("+", "%2B"), token=server.token())
    assert made["conf"] == {"pipeline": "trips", "name": FORK, "execute": True, "discard": True, "send": False}


def test_what_is_equal_is_said_once(page: Page) -> None:
    page.view("trips", "view=compare&left=kept&right=chk-1", "Compared: buses.")
    assert page.words().count("No difference") == 1


def test_lines_of_timelines_have_the_colours_of_their_dots(page: Page) -> None:
    page.view("trips", "view=timelines", "Choose a checkpoint")
    page.wait("!!document.querySelector('[data-graph] [data-dot]')")
    strokes = "new Set([...document.querySelectorAll('[data-graph] %s')].map(e => getComputedStyle(e).stroke))"
    lines, dots = (page.script(f"[...{strokes % found}]") for found in ("path[d*=H]", "[data-dot] circle"))
    assert len(lines) == 2 and set(lines) <= set(dots)


def test_two_dots_are_compared_and_one_is_opened(page: Page) -> None:
    page.view("trips", "view=timelines", "Choose a checkpoint")
    page.wait("!!document.querySelector('[data-dot=\"6\"]')")
    dots = "[...document.querySelectorAll('[data-dot]')]"
    kinds = page.script(f"Object.fromEntries({dots}.map(d => [d.dataset.dot, d.dataset.kind]))")
    assert kinds == {**dict.fromkeys("1246", "COMPLETED"), "3": "released", "5": "FAILED"}
    labels = page.script(f"{dots}.map(d => d.getAttribute('aria-label'))")
    assert labels[0].startswith("chk-1, completed, on t1, ") and labels[0].endswith(", savepoint kept")
    assert "on what-if" in labels[3] and "failed" in labels[4]
    assert page.script(f"{dots}.filter(d => d.tabIndex === 0).map(d => d.dataset.dot)") == ["6"], (
        "one stop of the Tab key"
    )
    page.script("document.querySelector('[data-dot=\"6\"]').focus()")
    page.press(" ", 32)
    page.wait("document.querySelector('[data-chosen]').dataset.chosen === 'chk-6'")
    page.press("Home", 36)
    page.press("ArrowRight", 39)
    assert page.script("document.activeElement.dataset.dot") == "2"
    page.press(" ", 32)
    page.click("Compare chk-2 with chk-6", "button")
    compared(page, "chk-2", "chk-6")
    page.script("history.back()")
    page.wait("!!document.querySelector('[data-dot=\"4\"]')")
    page.script("document.querySelector('[data-dot=\"4\"]').focus()")
    page.press("Enter", 13)
    page.wait("!!document.querySelector('[data-details=\"4\"]')")
    page.view("trips", "view=timelines", "Choose a checkpoint")
    for dot in (3, 6):
        page.wait(f"!!document.querySelector('[data-dot=\"{dot}\"]')")
        page.script(
            f"document.querySelector('[data-dot=\"{dot}\"]').dispatchEvent(new MouseEvent('click', {{bubbles: true}}))"
        )
    page.sees("Only completed checkpoints that are not released can be compared.")
    assert page.script(f"[...document.querySelectorAll('{LIVE}')].map(b => b.ariaLabel)") == [
        "Compare with live: what-if"
    ], "the newest checkpoint of t1 is released"


def test_a_viewer_compares_and_changes_nothing(server: AirflowServer) -> None:
    with chromium(server.base, server.token("ann"), size=(1440, 900)) as page:
        page.view("trips", "view=compare&left=live&right=what-if", "Keys:")
        assert "Promote" not in page.words() and "Close" not in page.words()
        assert "You may not see keys and rows of trips" in page.words(), "and the page says so"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_stand_out_and_all_is_in_reach(browser: Browser, server: AirflowServer, theme: str) -> None:
    with browser.page(server.base, server.token(), size=(1440, 900), theme=theme) as page:
        for place, seen in PLACES:
            page.view("trips", place, seen)
            faint: Any = page.script(CONTRAST)
            assert (faint, page.script(NAMELESS)) == ([], []), place
            for wide in (390, 1440):
                page.resize(wide, 900)
                outside: Any = page.script(OUTSIDE)
                assert outside == [], f"{place} at {wide}: {outside}"
