"""A stranger's questions in a real browser: how many clicks to each answer, by mouse and by keyboard; and axe-core.

Nothing is known but the names of buttons, tabs, links and fields. No scheduler runs, so runs stay queued.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.airflow_pages import AirflowServer, api_server
from tests.e2e.axe_core import needs_axe, violations
from tests.e2e.chromium import Page, chromium
from tests.e2e.walker import Press, Step, Type, Walker
from tests.support.prerequisites import needs_chromium
from tests.support.trips import TripsPipeline
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.declare.retention import Retention
from tidemark.model.retention.savepoint import SavepointRequest
from tidemark.operations import checkpoints, retention, savepoints, timelines
from tidemark.operations.dead_letters import redriving
from tidemark.operations.dead_letters.redriving import RedriveRequest
from tidemark.ports import PlanRequest

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(400), needs_chromium()]
HOUR = 3_600_000
HOME, PAGE = "/", "/plugin/checkpoints"
RUN = "by-hand"
WIDE, NARROW = (1440, 900), (390, 844)


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the way to its answer.

    Attributes:
        asked: in words.
        start: the address to start at.
        steps: what to press and type.
        answers: the texts that answer it.
        most: the number of clicks that it may cost.
    """

    asked: str
    start: str
    steps: tuple[Step, ...]
    answers: tuple[str, ...]
    most: int


QUESTIONS = (
    Question("Is my pipeline healthy?", HOME, (), ("1 of 1 pipeline needs attention", "✕ Failing", "1 failure"), 0),
    Question("Is it healthy, on its page?", PAGE, (), ("✕ Failing", "1 failure (ENGINE_ERROR), last checkpoint"), 0),
    Question(
        "What did the last run read?",
        PAGE,
        (Press("button", "chk-7"),),
        ("2 records read", "trips-0", "[6, 8)"),
        1,
    ),
    Question(
        "What did this run read?",
        f"/dags/trips/runs/{RUN}",
        (Press("link", "Checkpoint"),),
        ("2 records read", "trips-0", "[6, 8)"),
        1,
    ),
    Question(
        "What changed since the checkpoint before?",
        PAGE,
        (Press("tab", "Compare"),),
        ("chk-5", "chk-7", "Keys: 1 inserted, 1 changed, 0 deleted."),
        3,
    ),
    Question(
        "What does the fork have that live lacks?",
        PAGE,
        (Press("tab", "Timelines and savepoints"), Press("button", "Compare with live: trial")),
        ("chk-6", "common ancestor chk-2", "Promote…"),
        3,
    ),
    Question(
        "How do I go back to yesterday?",
        PAGE,
        (Press("button", "Restore…"), Press("button", "1 day ago"), Press("button", "Dry run")),
        ("2 checkpoints (3 records) leave the live timeline and stay restorable.", "Queued"),
        3,
    ),
    Question(
        "What will retention delete, and when?",
        PAGE,
        (Press("tab", "Retention"),),
        ("Next retention: ", "Releases chk-1, chk-3 (older than the last 3).", "savepoint kept"),
        1,
    ),
    Question(
        "Where does this row come from?",
        PAGE,
        (Press("tab", "Row to source"), Type("textbox", "bus", "b")),
        ("changed by chk-7", "Show the records"),
        2,
    ),
    Question(
        "Why did it fail?",
        PAGE,
        (Press("button", "chk-8"),),
        ("ENGINE_ERROR: Spark was away", "is reading the same offsets"),
        1,
    ),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowServer]:
    """A server over the warehouse of `fill`."""
    home = tmp_path_factory.mktemp("walk")
    with api_server(home) as made:
        made.ask("POST", "/api/v2/dags/trips/dagRuns", {"logical_date": None, "dag_run_id": RUN}, made.token())
        for dag in ("trips", "retention"):
            made.ask("PATCH", f"/api/v2/dags/{dag}", {"is_paused": False}, made.token())
        fill(home)
        yield made


def fill(home: Path) -> None:
    """chk-1 to 5 every ten hours, the last 15 hours ago, 1 with a dead letter, 2 pinned; chk-6 on a fork of 2.

    chk-7 is by a DAG run, five hours ago; keep_last(3); chk-8 failed, 9 reads the same offsets. A redrive waits.
    """
    world = TripsPipeline.ago(home, 55 * HOUR)
    context, clock, line = world.pages, world.line.clock, world.line
    for buses in (("a", None), ("b",), ("c",), ("d",), ("e",)):
        world.checkpoint(*buses)
        clock.advance(10 * HOUR)
    request = SavepointRequest(name="kept", owner="me", origin="test", checkpoint=2, note="")
    savepoints.open_savepoints(context, "trips").create(request)
    timelines.fork(context, "trips", "trial", RestoreRequest(checkpoint=2))
    line.checkpoint(timeline="trial")
    world.drive("b", "f")
    checkpoints.run_once(context, "trips", PlanRequest(origin=RUN))
    retention.declare_rule(context, "trips", Retention.keep_last(3))
    clock.advance(2 * HOUR)
    world.drive("g")
    world.fail("Spark was away")
    world.plan(origin="by hand")
    redriving.redrive(context, "trips", RedriveRequest(uid="buses"), "me")


@pytest.fixture(scope="module")
def page(server: AirflowServer) -> Iterator[Page]:
    with chromium(server.base, server.token(), size=WIDE) as made:
        made.rest = 0.1
        yield made


def begin(page: Page, address: str, theme: str, size: tuple[int, int]) -> None:
    """Opens an address in a new page of the browser's window, with a theme and a size."""
    page.resize(*size)
    page.script(f"localStorage.setItem('theme', {json.dumps(theme)})")
    page.call("Page.navigate", url="about:blank")
    page.call("Page.navigate", url=page.base + address)


WALKS = {
    "mouse, light, wide": ("mouse", "light", WIDE),
    "mouse, dark, narrow": ("mouse", "dark", NARROW),
    "keyboard, dark, wide": ("keyboard", "dark", WIDE),
    "keyboard, light, narrow": ("keyboard", "light", NARROW),
}


@pytest.mark.parametrize("by, theme, size", WALKS.values(), ids=WALKS)
def test_a_stranger_has_every_answer_within_a_few_clicks(
    page: Page, by: str, theme: str, size: tuple[int, int]
) -> None:
    for question in QUESTIONS:
        begin(page, question.start, theme, size)
        walker = Walker(page, by_keyboard=by == "keyboard")
        for step in question.steps:
            walker.go(step)
        for answer in question.answers:
            walker.sees(answer)
        assert walker.clicks <= question.most, question.asked
        if page.script("!!document.querySelector('[data-form]')"):
            walker.key("Escape")
            page.wait("!document.querySelector('[data-form]')")
            assert walker.focused() == ("button", "Restore…"), "Esc closes, and gives the focus back"


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_verdict_is_in_sight_before_anything_is_done(page: Page, size: tuple[int, int]) -> None:
    begin(page, PAGE, "light", size)
    Walker(page).sees("✕ Failing")
    box = "document.querySelector('[data-verdict-line]').getBoundingClientRect()"
    assert page.script(f"{box}.top >= 0 && {box}.bottom <= innerHeight && {box}.right <= innerWidth")


VIEWS = (
    ("overview", "Latest restore"),
    ("history", "chk-9"),
    ("checkpoint&checkpoint=7", "2 records read"),
    ("checkpoint&checkpoint=8", "Spark was away"),
    ("checkpoint&checkpoint=9", "Acknowledged 0 of 1"),
    ("compare", "Keys:"),
    ("compare&left=live&right=timeline:trial", "common ancestor"),
    ("timelines", "Choose a checkpoint"),
    ("retention", "Next retention"),
    ("time", "No windows, timers or watermarks"),
    ("letters", "Dead letters of the live timeline"),
    ("letters&operator=buses&reason=null_key", "the newest first"),
    ("publications", "No publications"),
    ("origin&uid=buses&key=b", "changed by chk-7"),
    ("columns", "As recorded by"),
    ("columns&column=buses.miles", "aggregated"),
    ("configuration", "State backend"),
)
PARTS = ("Operators", "Offsets", "Event time", "Dead letters", "Gate", "Storage", "Facts")
FORMS = (
    ("checkpoint", "Checkpoint now"),
    ("savepoint&from=chk-7", "A name is used once."),
    ("restore", "stay restorable."),
    ("fork&from=kept", "separate timeline"),
    ("backfill&from=kept", "Checkpoints to repeat"),
    ("transform&from=kept", "Add a query for…"),
    ("patch&from=kept", "Add tables for…"),
    ("redrive", "from chk-1 to chk-1"),
    ("withdraw&from=1", "may still redrive them"),
    ("retention", "cannot be restored"),
    ("dispose&from=kept", "Unpins chk-2"),
    ("abort&from=chk-9", "Revokes the attempt"),
    ("promote&from=trial", "becomes the live timeline"),
    ("close&from=trial", "The timeline ends."),
)


@needs_axe()
@pytest.mark.parametrize(
    "theme, size", [("light", WIDE), ("dark", WIDE), ("light", NARROW)], ids=["light", "dark", "narrow"]
)
def test_axe_finds_nothing_in_any_view_and_any_form(page: Page, theme: str, size: tuple[int, int]) -> None:
    walker, found = Walker(page), list[str]()

    def look(where: str, text: str) -> None:
        walker.sees(text)
        walker.still()
        found.extend(f"{where}: {violation}" for violation in violations(page))

    begin(page, HOME, theme, size)
    look("home", "pipeline needs attention")
    begin(page, f"/dags/trips/runs/{RUN}/plugin/checkpoint", theme, size)
    look("tab of the run", "2 records read")
    begin(page, f"{PAGE}#pipeline=trips&view=checkpoint&checkpoint=1", theme, size)
    walker.sees("1 rejected")
    for part in PARTS:
        walker.go(Press("tab", part, inside="[data-details]"))
        look(f"part {part}", part)
    for view, text in VIEWS:
        page.script(f"location.hash = {json.dumps(f'#pipeline=trips&view={view}')}")
        look(view, text)
    for form, text in FORMS:
        page.script(f"location.hash = {json.dumps(f'#pipeline=trips&view=overview&form={form}')}")
        look(f"form {form}", text)
        walker.key("Escape")
        page.wait("!document.querySelector('[data-form]')")
    assert not found, "\n".join(found)


@needs_axe()
def test_axe_finds_what_is_planted(page: Page) -> None:
    begin(page, PAGE, "light", WIDE)
    Walker(page).sees("Latest restore")
    for planted, rule in (("<button></button>", "button-name"), ("<p style='color: #bbb'>faint</p>", "color-contrast")):
        page.script(f"document.querySelector('[data-verdict-line]').insertAdjacentHTML('beforeend', {planted!r})")
        assert any(rule in found for found in violations(page)), rule
