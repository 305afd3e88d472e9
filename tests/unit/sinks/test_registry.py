"""Every sink of the registry, over kills: committed rows once, rows of an outbox once by id, others at least once.

A new sink brings its `CASES` in `test_<module>.py`. `TIDEMARK_TEST_SEED` repeats a run.
"""

import ast
import os
import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.sinks.sink_cases import Arrived, SinkCase, SinkPipeline, all_cases, walk
from tidemark.errors import RecordRefusedError, UsageError
from tidemark.model.checkpoint.sink_traits import traits_of
from tidemark.model.checkpoint.sinks import SinkTable
from tidemark.sinks import EmittedRow, Outbox, Sink
from tidemark.sinks.known_sinks import SINKS, stored_sink
from tidemark.sinks.sink import AHEAD, COMMITTED, OUTBOX, Services

PACKAGE = Path(__file__).resolve().parents[3] / "include" / "tidemark"
SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))
CASES = all_cases()
each_case = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


def test_every_kind_has_a_case() -> None:
    assert {case.sink.kind for case in CASES} == set(SINKS)


@each_case
def test_rows_arrive_as_guaranteed_over_kills(case: SinkCase) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED} pytest {__file__}")
    for number in range(60):
        line = case.line()
        walk(line, random.Random(f"{SEED} {number}"))
        check(case, line)


def check(case: SinkCase, line: SinkPipeline) -> None:
    expected, arrived = line.expected(), case.arrived(line)
    known: dict[str, object] = {}
    for row, fields in arrived:
        assert known.setdefault(row, fields) == fields, f"two rows with the id {row}"
    match case.sink.traits:
        case traits if traits == COMMITTED:
            assert arrived == expected
        case traits if traits == OUTBOX:
            assert list(known.items()) == expected, "once by id, in order, and no row of an attempt that died"
        case traits:
            assert replace(traits, needs_topic=False) == AHEAD
            assert not [row for row in expected if row not in arrived]


@each_case
def test_what_is_delivered_once_is_not_delivered_again(case: SinkCase) -> None:
    line = case.line()
    line.send("a", "b")
    line.complete([])
    line.deliver()
    before: Arrived = case.arrived(line)
    line.deliver()
    assert case.arrived(line) == before == line.expected()


@each_case
def test_a_manifest_gives_the_sink_again(case: SinkCase) -> None:
    empty = SinkTable(name=case.sink.name, kind=case.sink.kind, path="x", columns=())
    assert stored_sink(case.sink.stored(empty)) == case.sink


def test_an_outbox_goes_on_behind_a_refused_row() -> None:
    rows = [EmittedRow(id=f"p/t1/chk-1/u/in-0-{n}-0", fields={"n": n}) for n in range(6)]
    written = list[str]()

    def outbox(held: list[EmittedRow]) -> Outbox:
        return Outbox(sink=Refusing("p/t1/chk-1/u/in-0-3-0", written), rows=lambda: held, commit_id="c")

    services = Services()
    with pytest.raises(RecordRefusedError):
        outbox(rows).deliver(services)
    digest, skipped = outbox(rows).digest_ahead(rows[3].id), {rows[1].id, rows[3].id}
    assert outbox(rows).deliver(services, skipped=skipped, refused=rows[3].id, digest=digest) == 4
    assert written == [row.id for row in rows if row != rows[3]], "those ahead of it do not come again"
    written.clear()
    assert outbox(rows[1:]).deliver(services, skipped=skipped, refused=rows[3].id, digest=digest) == 3
    assert written == [row.id for row in rows[1:] if row.id not in skipped], "other rows are ahead: all come again"
    assert outbox(rows).digest_ahead("stranger") == outbox(rows).digest_ahead("") == ""


class Refusing(Sink):
    """Takes all rows but one."""

    kinds = {"refusing": OUTBOX}

    def __init__(self, refused: str, written: list[str]) -> None:
        super().__init__("refusing")
        self.__dict__.update(refused=refused, written=written)

    def write(self, rows: Iterable[EmittedRow], commit_id: str, services: Services) -> int:
        """Remembers ids."""
        found = 0
        for row in rows:
            if row.id == self.__dict__["refused"]:
                raise RecordRefusedError("refused", safe="all else.", next="skip it.")
            self.__dict__["written"].append(row.id)
            found += 1
        return found


def test_an_unknown_kind_names_those_there_are() -> None:
    with pytest.raises(UsageError, match="no sink of kind 'pigeon'; there are console, delta, kafka, topic"):
        traits_of("pigeon")


def test_answers_of_0_1_stay() -> None:
    assert [traits_of(kind) for kind in ("delta", "kafka", "topic")] == [
        COMMITTED,
        OUTBOX,
        replace(AHEAD, needs_topic=True),
    ]
    fork_of_0_1 = SinkTable(name="alerts", kind="topic", path="x", columns=())
    assert stored_sink(fork_of_0_1) is None and not fork_of_0_1.is_sent and not fork_of_0_1.keeps_rows


def findings(source: str) -> list[int]:
    """Lines that compare the kind of a sink, or ask for its class."""
    classes, kinds = {cls.__name__ for cls in SINKS.values()}, set(SINKS)
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            found += [node.lineno for n in ast.walk(node.args[1]) if ast.unparse(n).rpartition(".")[2] in classes]
        elif isinstance(node, ast.Compare):
            sides = [*ast.walk(node.left), *(n for c in node.comparators for n in ast.walk(c))]
            asks = any(isinstance(n, ast.Attribute) and n.attr == "kind" for n in sides)
            found += [node.lineno] * (asks and any(isinstance(n, ast.Constant) and n.value in kinds for n in sides))
    return found


def test_no_kind_of_a_sink_is_compared_outside_its_folder() -> None:
    files = [path for path in sorted(PACKAGE.rglob("*.py")) if path.parent.name != "sinks"]
    found = [f"{path.relative_to(PACKAGE)}:{line}" for path in files for line in findings(path.read_text())]
    assert not found, "ask the table for its sink's traits instead"


@pytest.mark.parametrize(
    "text", ["t.kind == 'delta'", "(t.kind, t.name) == ('kafka', n)", "isinstance(sink, operators.KafkaSink)"]
)
def test_the_rule_finds_a_comparison(text: str) -> None:
    assert findings(text)
