"""What the command line tells of operator state: at every checkpoint, whole, and typed."""

from pathlib import Path

import pytest

from tests.support.cli import Command
from tests.support.disk import NOW_MS, DiskPipeline

DECLARATION = Path(__file__).parent / "pipelines" / "stall.py"


@pytest.fixture(scope="module")
def stall(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """A warehouse of three checkpoints; the second is an idle one."""
    tidemark = Command(tmp_path_factory.mktemp("stall"), "127.0.0.1:1", "sc://127.0.0.1:1")
    tidemark.declare(DECLARATION, topic="orders")
    line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("stall"), "orders")
    for batch in (["tea", 'm"ug'], [], ["tea"]):
        line.send([(0, b'{"customer":"c","article":"%s"}' % a.replace('"', '\\"').encode(), NOW_MS) for a in batch])
        line.checkpoint()
    return tidemark


def test_every_element_is_a_row_at_every_checkpoint(stall: Command) -> None:
    statement = "select * from operator_states order by checkpoint, field, position"
    rows = stall("state", "sql", "stall", statement, "--json").ok().json
    told = [(r["checkpoint"], r["uid"], r["field"], r["mode"], r["position"], r["element_json"]) for r in rows]
    articles = [("customers", "articles", "union", 0, '"tea"'), ("customers", "articles", "union", 1, '"m\\"ug"')]
    samples = [("customers", "samples", "split", n, t) for n, t in enumerate(['"c tea"', '"c m\\"ug"', '"c tea"'])]
    assert told == [
        *((n, *row) for n in (1, 2) for row in (*articles, *samples[:2])),
        *((3, *row) for row in (*articles, *samples)),
    ]


def test_one_query_joins_keyed_and_operator_state(stall: Command) -> None:
    statement = (
        "select c.orders, count(*) as n from customers_at(3) c, operator_states o"
        " where o.checkpoint = 3 and element_json->>'$' = 'c tea' and position >= 0 group by all"
    )
    assert stall("state", "sql", "stall", statement, "--json").ok().json == [{"orders": 3, "n": 2}]


def test_a_manifest_shows_it_whole(stall: Command) -> None:
    shown = stall("checkpoint", "show", "stall", "3", "--json").ok().json
    (ack,) = shown["sealed"]["acks"]
    assert {x["name"]: (x["mode"], x["elements"]) for x in ack["operator_state"]["lists"]} == {
        "samples": ("split", ["c tea", 'c m"ug', "c tea"]),
        "articles": ("union", ["tea", 'm"ug']),
    }
    before = shown["plan"]["operator_states"]["customers"]["lists"]
    assert [len(x["elements"]) for x in before] == [2, 2]


def test_people_are_told_how_long_the_lists_are(stall: Command) -> None:
    told = stall("checkpoint", "show", "stall", "3").ok()
    assert "operator state customers.samples  split, 3 elements, 23 bytes" in told.err + told.out
