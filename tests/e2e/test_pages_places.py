"""Dead letters, publications, windows, timers and a backlog in a real browser over a real API server of Airflow."""

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.pipelines.trips import trips
from tests.e2e.airflow_pages import PATIENCE, AirflowServer, airflow, api_server, environment
from tests.e2e.chromium import Browser, Page, chromium
from tests.e2e.looks import CONTRAST, NAMELESS, OUTSIDE
from tests.pages.test_event_time import sales
from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext
from tests.support.prerequisites import needs_chromium
from tests.support.trips import PIPELINES
from tidemark import Fold
from tidemark.declare.pipeline import Pipeline
from tidemark.operations import checkpoints
from tidemark.operations.dead_letters import redriving
from tidemark.operations.dead_letters.redriving import LetterFilter, RedriveRequest
from tidemark.operations.publications import publishing
from tidemark.ports import PlanRequest
from tidemark.settings import load_settings
from tidemark.targets import DeltaMirror, KafkaUpsert
from tidemark.testing.twin.memory import ManualClock

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    needs_chromium(),
]
HOSTILE = "<script>window.pwned=1</script>'\"\u202e" + "x" * 120
PLACES = (
    ("trips", "view=letters", "Redrives"),
    ("trips", "view=letters&operator=buses&reason=null_key", "the newest first"),
    ("trips", "view=publications&publication=buses-mirror", "Last steps of"),
    ("trips", "view=publications&publication=buses-topic", "or this command"),
    ("trips", "view=letters&form=withdraw&from=1", "does not wait for a checkpoint"),
    ("trips", "view=letters&form=withdraw&from=9", "There is no request 9."),
    ("sales", "view=time&operator=quiet", "Watermarks"),
    ("sales", "view=backlog", "of the backlog is read"),
    ("sales", "view=overview", "By partition"),
    ("sales", "view=letters", "No redrives"),
    ("sales", "view=publications", "No publications"),
    ("trips", "view=time", "No windows, timers or watermarks"),
    ("trips", "view=backlog", "Nothing was left"),
    ("sales", "view=origin&sink=closed", "Which row?"),
)


class FilledContext(DiskContext):
    """Finds the declaration in the pipeline on disk."""

    def pipeline(self, name: str) -> Pipeline:
        return self.line.pipeline


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowServer]:
    """A server over the warehouse of `fill`; a run of the DAG `trips_publish` has failed."""
    home = tmp_path_factory.mktemp("places")
    with api_server(home) as made:
        fill(home)
        port = int(made.base.rpartition(":")[2])
        test = airflow("dags", "test", "trips_publish", "2024-05-01")
        subprocess.run(test, env=environment(home, port), check=False, capture_output=True, timeout=PATIENCE)
        yield made


def opened(home: Path, pipeline: Pipeline, topic: str) -> tuple[DiskPipeline, FilledContext]:
    """A pipeline in the warehouse of a server."""
    clock = ManualClock(int(time.time() * 1000) - 3_600_000)
    line = DiskPipeline(home / "warehouse", pipeline, topic, clock=clock)
    made = FilledContext(line, load_settings(root=str(home), warehouse=str(line.root), pipelines=str(PIPELINES)))
    made.clock = clock
    return line, made


def fill(home: Path) -> None:
    """`trips` has dead letters, a redrive of which all were rejected again, and a mirror two checkpoints behind.

    It declares a topic, too, to which nothing was published, and a redrive waits for its next checkpoint.
    `sales` has windows and timers, a slow partition, a late record, and a run that has read a part of its backlog.
    """
    (buses,) = trips.operators
    assert isinstance(buses, Fold)
    targets = [DeltaMirror(str(home / "lake" / "buses")), KafkaUpsert("buses")]
    published = replace(trips, operators=[replace(buses, publish=targets)])
    line, context = opened(home, published, "trips")
    line.crash = lambda *_: line.clock.advance(1)  # so that steps take time

    def trip(bus: str | None, **more: Any) -> tuple[int, bytes, int]:
        return 0, json.dumps({"bus": bus, "miles": 1, "ended_at": "2024-05-01T00:00:00Z"} | more).encode(), 1

    line.send([trip("b1"), trip("b2"), trip(None), trip(None, note=HOSTILE), (0, b"{", 1), trip(HOSTILE)])
    line.checkpoint()
    publishing.publish(context, "trips", "buses-mirror")
    request = RedriveRequest(uid="buses", letters=LetterFilter(reason="malformed_json"), note=HOSTILE)
    redriving.redrive(context, "trips", request, HOSTILE)
    line.send([trip("b3"), trip(None)])
    line.checkpoint()
    line.send([trip("b4")])
    line.checkpoint()
    waits = RedriveRequest(uid="buses", letters=LetterFilter(reason="null_key", limit=2), note=HOSTILE)
    redriving.redrive(context, "trips", waits, HOSTILE)
    line, context = opened(home, sales, "sales")
    start = datetime(2024, 1, 1, tzinfo=UTC)

    def sale(partition: int, shop: str, minutes: int) -> tuple[int, bytes, int]:
        at = start + timedelta(minutes=minutes)
        return partition, json.dumps({"shop": shop, "at": at.isoformat()}).encode(), minutes

    line.send([sale(0, "a", 1), sale(1, "b", 25), sale(0, "c", 30)])
    line.checkpoint()
    line.send([sale(1, "a", 2), sale(0, "b", 70), sale(0, HOSTILE, 71)])
    line.checkpoint()
    line.send([sale(n % 2, "d", 80 + n) for n in range(12)])
    for _ in range(2):
        line.clock.advance(4000)
        request_of_run = PlanRequest(origin="test", max_records=3, run="sales/monday")
        checkpoints.run_once(context, "sales", request_of_run)


@pytest.fixture
def page(browser: Browser, server: AirflowServer) -> Iterator[Page]:
    with browser.page(server.base, server.token(), size=(1440, 900)) as made:
        yield made


def test_letters_are_counted_by_reason_and_open_with_an_address(page: Page) -> None:
    page.view("trips", "view=overview", "by reason")
    page.click("by reason", "[data-tile] a")
    page.sees("Redrives")
    assert page.asked() == {"pipeline": "trips", "view": "letters"}
    reported = page.words()
    assert "4 dead letters, 1 more was redriven" in reported and "33 % of 9" in reported
    assert "redrove 1 letter, 1 rejected again" in reported
    page.click("null_key", "[data-reason]")
    page.sees("the newest first")
    assert page.asked() == {"pipeline": "trips", "view": "letters", "operator": "buses", "reason": "null_key"}
    rows = "[...document.querySelectorAll('[data-letters] tbody tr')].map(r => r.innerText)"
    assert [row.split()[0] for row in page.script(rows)] == ["chk-2", "chk-1", "chk-1"]
    assert page.script("typeof window.pwned") == "undefined"
    page.script("history.back()")
    page.wait("!location.hash.includes('reason')")


def test_the_form_of_a_redrive_is_filled_in_by_the_reason(page: Page, server: AirflowServer) -> None:
    page.view("trips", "view=letters", "Redrives")
    page.script("document.querySelector('button[aria-label=\"Redrive… buses: malformed_json\"]').click()")
    page.wait("!!document.querySelector('[data-form=redrive] select')")
    assert page.asked()["from"] == "buses:malformed_json"
    chosen = "(s => s.options[s.selectedIndex].text)(document.querySelector('[data-form=redrive] select'))"
    page.wait(f"{chosen} === 'buses: malformed_json'")
    page.click("Dry run", "[data-form] button")
    page.wait("!!document.querySelector('[data-run]')")
    run = page.script("document.querySelector('[data-run]').dataset.run")
    made = server.ask("GET", f"/api/v2/dags/redrive/dagRuns/{run}".replace("+", "%2B"), token=server.token())
    wanted = {"pipeline": "trips", "uid": "buses", "reason": "malformed_json", "execute": False}
    assert {name: made["conf"].get(name) for name in wanted} == wanted


def test_a_viewer_sees_counts_and_no_letters(server: AirflowServer) -> None:
    with chromium(server.base, server.token("ann"), size=(1440, 900)) as page:
        page.view("trips", "view=letters&operator=buses&reason=null_key", "You may not see records")
        assert "4 dead letters" in page.words() and not page.script("!!document.querySelector('[data-letters]')")
        table = "document.querySelector('[aria-label=\"Dead letters by reason\"] thead')"
        heads = f"[...{table}.querySelectorAll('th')].map(e => e.innerText)"
        assert page.script(heads)[-1] == "First and last", "a viewer can redrive nothing"
        page.view("sales", "view=time&operator=windows", "hidden")


def test_one_place_says_that_airflow_does_not_answer(page: Page) -> None:
    page.view("trips", "view=letters", "Checkpoint now")
    page.sees("Redrives")
    page.script("window.fetch = () => Promise.reject(new TypeError('away'))")
    page.script("dispatchEvent(new Event('tidemark:changed'))")
    page.sees("Airflow does not answer")
    page.wait("document.querySelectorAll('[data-page] [role=alert]').length === 1")
    reported = page.words()
    assert "4 dead letters" in reported and "Checkpoint now" in reported, "what was known is gone"


def test_a_redrive_that_waits_is_withdrawn(page: Page, server: AirflowServer) -> None:
    with chromium(server.base, server.token("ann"), size=(1440, 900)) as viewer:
        viewer.view("trips", "view=letters", "the next checkpoint takes it up")
        assert "Withdraw" not in viewer.words()
    page.view("trips", "view=letters", "Redrives")
    page.click("Withdraw…", "[aria-label='Withdraw… request 2']")
    page.wait("!!document.querySelector('[data-form=withdraw] button[type=submit]:not([disabled])')")
    assert page.asked() == {"pipeline": "trips", "view": "letters", "form": "withdraw", "from": "2"}
    page.wait("document.activeElement === document.querySelector('[data-form=withdraw]')")  # not its red button
    assert "Letters" in (reported := page.script("document.querySelector('[data-form=withdraw]').innerText"))
    assert "buses" in reported and page.script("typeof window.pwned") == "undefined"
    page.click("Withdraw redrive", "[data-form=withdraw] button")
    page.wait("!document.querySelector('[data-form]') && !!document.querySelector('[data-request=withdrawn]')")
    assert page.asked() == {"pipeline": "trips", "view": "letters"}
    assert not page.script("!!document.querySelector('[aria-label=\"Withdraw… request 2\"]')")


def test_a_failing_publication_shows_its_lag_its_error_and_its_log(page: Page) -> None:
    page.view("trips", "view=overview", "buses-mirror")
    state = "document.querySelector('[aria-label=Publications] [data-publication-state]').dataset.publicationState"
    assert page.script(state) == "FAILING"
    page.click("buses-mirror", "[aria-label=Publications] a")
    page.sees("Last steps of")
    assert page.asked() == {"pipeline": "trips", "view": "publications", "publication": "buses-mirror"}
    assert page.script("document.querySelector('[data-lag]').innerText").startswith("2 checkpoints, 3 records, 1 h")
    assert "Delta table" in page.words() and "All rows" in page.words() and "Failed" in page.words()
    trouble = page.script("document.querySelector('[data-publication-trouble]').innerText")
    assert "buses-mirror: trips declares no publication 'buses-mirror'" in trouble and "Next: " in trouble
    page.click("Log of task buses-mirror, try 1", "[data-publication-trouble] a")
    page.wait("location.pathname.includes('/dags/trips_publish/runs/') && location.search.includes('try_number=1')")


def test_a_publication_that_was_not_begun_says_what_starts_it(page: Page) -> None:
    page.view("trips", "view=publications", "Not started")
    rows = page.script("[...document.querySelectorAll('tr')].map(r => r.innerText)")
    (row,) = [text for text in rows if "Not started" in text]
    assert "buses-topic" in row and "all 3 checkpoints, 9 records" in row and "no DAG that you may read" in row
    page.click("buses-topic", "[data-publication]")
    page.wait("!!document.querySelector('[data-steps=buses-topic] [data-command]')")
    command = page.script("document.querySelector('[data-steps=buses-topic] [data-command]').innerText")
    assert command == "tidemark publication run trips buses-topic"
    assert page.asked()["publication"] == "buses-topic"


def test_windows_and_timers_show_what_waits_and_what_holds_it_back(page: Page) -> None:
    page.view("sales", "view=time", "Watermarks")
    page.wait("document.querySelectorAll('[data-waiting]').length === 3")
    waiting = page.script("[...document.querySelectorAll('[data-waiting]')].map(e => e.dataset.waiting)")
    assert waiting == ["hours 0 0", "quiet 3 0", "windows 3 2"]
    page.click("windows", "[data-operator]")
    page.wait("!!document.querySelector('[data-due=windows]')")
    assert page.asked()["operator"] == "windows"
    assert page.script("document.querySelectorAll('[data-due] tbody tr').length") == 2
    page.click("dead letters", "[aria-label='Operators with windows or timers'] a")
    page.sees("the newest first")
    assert page.asked()["reason"] == "late"


def test_the_backlog_shows_the_progress_of_each_partition(page: Page) -> None:
    page.view("sales", "view=overview", "By partition")
    assert page.script("document.querySelector('[data-backlog]').dataset.backlog") == "6/12"
    page.click("By partition", "[data-backlog] a")
    page.sees("50 % of the backlog is read")
    assert page.asked() == {"pipeline": "sales", "view": "backlog"}
    shares = "[...document.querySelectorAll('[role=progressbar]')].map(e => e.ariaValueNow)"
    assert page.script(shares) == ["50", "50", "50"]
    assert "about 2 more checkpoints" in page.words()
    page.click("Overview", "[aria-label=Breadcrumb] button")
    page.sees("Latest restore")


@pytest.mark.parametrize(("theme", "wide"), [("light", 390), ("dark", 1440)])
def test_all_places_fit_have_contrast_and_names(browser: Browser, server: AirflowServer, theme: str, wide: int) -> None:
    with browser.page(server.base, server.token(), size=(wide, 900), theme=theme) as page:
        page.rest = 0.3
        for pipeline, place, text in PLACES:
            page.view(pipeline, place, text)
            found = [page.script(looked) for looked in (OUTSIDE, NAMELESS, CONTRAST)]
            assert found == [[], [], []], place
        page.view("trips", "view=checkpoint&checkpoint=1", "Lineage")
        page.click("Operators", "[data-details] [role=tab]")
        page.wait("!!document.querySelector('[data-whole] [title]')")
        assert page.script(OUTSIDE) == [], "bars of steps"
