"""Checks promises and costs in the README and in `docs/` against code and data."""

import json
import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tidemark import DeltaSink, Fold, KafkaSource, Pipeline, Tumbling, state
from tidemark.cli import state_diff
from tidemark.engine.session.parallelism import FEWEST, MANY, READ_TASK
from tidemark.engine.session.session import SparkSettings
from tidemark.engine.write.parquet_writer import files_for
from tidemark.model.checkpoint.segments import Segment, StateHandle
from tidemark.settings import Settings
from tidemark.testing import BARRIER, replay

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
GUARANTEES = (ROOT / "docs/guarantees.md").read_text()


def _promise(text: str) -> str:
    """The first block quotation of a page, as one line."""
    quoted = re.search(r"(?:^> .*\n)+", text, re.MULTILINE)
    assert quoted
    return " ".join(line.removeprefix("> ") for line in quoted.group().splitlines())


@dataclass(frozen=True)
class Sale:
    """One record."""

    shop: str | None
    amount: int


class Takings(state.Keyed):
    """The takings of a shop."""

    sales: int = state.count()
    total: int = state.sum("amount")


SALES = Pipeline(
    name="sales",
    source=KafkaSource("sales", Sale),
    operators=[Fold("shops", key_by="shop", state=Takings), Fold("amounts", key_by="amount", state=Takings)],
    max_dead_letters=1.0,
)


def test_readme_and_guarantees_make_one_promise_and_it_excepts_dead_letters() -> None:
    assert _promise(README) == _promise(GUARANTEES)
    assert "exactly once, or keeps it as a dead letter, which changes no state" in _promise(README)
    summary, _, _ = README.partition("```")
    assert "dead letter" in summary, "the first paragraph counts records too"


def test_a_dead_letter_changes_no_state_of_its_operator_and_leaves_the_other_ones_alone() -> None:
    good = [Sale("a", 1), Sale("b", 2), Sale("a", 3)]
    bad = [b"\xff", b'{"shop":"a"}', b"null", None, Sale(None, 9)]
    mixed = [bad[0], good[0], bad[1], good[1], bad[2], bad[3], good[2]]
    done, clean = replay(SALES, [[*mixed, bad[4]], BARRIER]), replay(SALES, [good, BARRIER])
    assert done.state("shops") == clean.state("shops")
    assert len(done.dead_letters("shops")) == len(bad)
    # A record without a shop is a dead letter of `shops` only, because `amounts` is not keyed by shop.
    assert len(done.dead_letters("amounts")) == len(bad) - 1
    assert done.state("amounts") == replay(SALES, [[*good, bad[4]], BARRIER]).state("amounts")


@dataclass(frozen=True)
class Visit:
    """A record with a time."""

    shop: str
    at: datetime


class Visits(state.Keyed):
    """The number of visits to a shop in an hour."""

    visits: int = state.count()


def test_a_window_closes_once_and_a_late_record_changes_nothing() -> None:
    assert "that close once, at a checkpoint" in GUARANTEES
    hours = Fold("hours", key_by="shop", state=Visits, window=Tumbling("1h"), sink=DeltaSink("hours"))
    pipeline = Pipeline(
        name="visits", source=KafkaSource("visits", Visit, event_time="at"), operators=[hours], max_dead_letters=0.0
    )
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    late = Visit("a", noon + timedelta(minutes=59))
    done = replay(pipeline, [[Visit("a", noon), Visit("a", noon + timedelta(hours=3))], BARRIER, [late], BARRIER])
    (closed,) = done.emitted("hours")
    assert (closed["shop"], closed["window_start"], closed["visits"]) == ("a", noon, 1)
    assert [start for _, start, _ in done.state("hours")] == [noon + timedelta(hours=3)]


def test_the_cost_of_each_form_of_a_diff_is_what_was_measured() -> None:
    page = (ROOT / "docs/how-to/read-state.md").read_text()
    diffs = json.loads((ROOT / "docs/benchmarks/checkpoint-cost.json").read_text())["facts"]["diffs"]
    # Data from before the default was upserts has them under the name of `--keys-only`, which read the same.
    found = {"upserts" if d["detail"] == "keys" else d["detail"]: d["share"] for d in diffs}
    shares = {detail: f"{share:.1%}" for detail, share in found.items()}
    for form, detail in (("(default)", "upserts"), ("`--inserts`", "changes"), ("`--values`", "values")):
        (line,) = (line for line in page.splitlines() if line.startswith(f"| {form} |"))
        assert line.strip("| ").rpartition("|")[2].strip() == shares[detail]
    assert found["upserts"] <= 0.2, "the target of the default"
    # If the other forms ever read less than half of a state, correct the page and the help.
    assert all(share > 0.5 for detail, share in found.items() if detail != "upserts")
    costs = (ROOT / "docs/benchmarks/state-costs.md").read_text()
    assert f"a diff reads {shares['upserts']} of the bytes, and {found['changes']:.0%} with `--inserts`" in costs


def test_the_help_of_a_diff_says_what_each_form_reads() -> None:
    help_text = " ".join((state_diff.diff.__doc__ or "").split())
    assert "The default reads only the key columns of changed rows." in help_text
    assert "With --inserts, the changed keys are also looked up in the older state" in help_text
    assert "often most of its bytes" in help_text
    assert "--values also reads the row groups of both states" in help_text


def test_the_numbers_of_tasks_and_files_are_those_of_the_page() -> None:
    page = _plain("deploy")
    assert f"one per {READ_TASK:,} records" in page
    assert f"one per {FEWEST:,} records" in page
    assert MANY == 1_000_000
    assert "From a million records on, Spark's adaptive execution is on." in page
    large = StateHandle((Segment(after=0, through=1, path="p", version=1, rows=10**6, bytes=10**9, files=1),))
    assert files_for(10**6, large) == math.ceil(10**9 / (64 * 2**20))
    assert files_for(10**9, StateHandle()) == 1000
    assert "in files of about 64 MiB, or of a million rows if these are smaller" in page
    assert SparkSettings(master="local[8]").parallelism is None
    assert Settings.model_fields["spark_parallelism"].default is None


def _plain(page: str) -> str:
    """The text of a page without link targets and line breaks."""
    text = (ROOT / f"docs/{page}.md").read_text()
    return " ".join(re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text).split())


def test_the_page_on_deployment_says_which_memory_an_executor_takes() -> None:
    compose = (ROOT / "docker-compose.yaml").read_text()
    assert "spark.executor.memory=1g" in compose
    assert "`spark.executor.memory` (1 GB)" in (ROOT / "docs/deploy.md").read_text()
