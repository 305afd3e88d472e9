"""Pipeline files that cannot be: told by file and line, before anything is connected or written."""

import pytest

from tests.support.cli import Command

GOOD = """
from dataclasses import dataclass
from tidemark import Fold, KafkaSource, Pipeline, state

@dataclass(frozen=True)
class Sale:
    shop: str
    amount: int

class Shop(state.Keyed):
    sales: int = state.count()

def made(name="shops", topic="sales", uids=("shops",), **more):
    operators = [Fold(uid, key_by="shop", state=Shop) for uid in uids]
    return Pipeline(name=name, source=KafkaSource(topic, Sale), operators=operators, **more)
"""


@pytest.fixture
def tidemark(tmp_path_factory: pytest.TempPathFactory) -> Command:
    return Command(tmp_path_factory.mktemp("declared"), "127.0.0.1:9", "sc://127.0.0.1:9")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("\n\nshops = Pipeline(name=", ("broken.py:3", "SyntaxError")),
        ("import this_is_no_module_of_anybody", ("broken.py:1", "ModuleNotFoundError")),
        ("x = 1\ny = x / 0", ("broken.py:2", "ZeroDivisionError")),
        ("raise SystemError('no')", ("broken.py:1", "SystemError")),
        (GOOD + "shops = made(uids=('shops', 'shops'))", ("two operators", "shops")),
        (GOOD + "shops = made(uids=('Shops', 'shops'))", ("two operators", "shops")),
        (GOOD + "shops = made(uids=())", ("no operators",)),
        (GOOD + "shops = made(uids=('../shops',))", ("../shops",)),
        (GOOD + "shops = made(uids=('sh`ops',))", ("sh`ops",)),
        (GOOD + "shops = made(name='../shops')", ("../shops",)),
        (GOOD + "shops = made(name='shops; DROP TABLE x')", ("shops; DROP TABLE x",)),
        (GOOD + "shops = made(topic='sales`--')", ("sales`--",)),
        (GOOD + "shops = made(max_dead_letters=2)", ("max_dead_letters",)),
    ],
    ids=range(13),
)
def test_a_file_that_cannot_be_is_a_usage_error(tidemark: Command, source: str, words: tuple[str, ...]) -> None:
    tidemark.declare(source, file="broken.py")
    tidemark("run", "shops").failed(2, *words)
    assert not tidemark.warehouse.exists()


def test_a_broken_file_beside_does_not_stop_a_good_one(tidemark: Command) -> None:
    tidemark.declare("def (", file="a_broken.py")
    tidemark.declare(GOOD + "shops = made()", file="good.py")
    assert tidemark("checkpoint", "list", "shops", "--json").ok().json == []
    tidemark("run", "trains").failed(2, "a_broken.py:1")


def test_two_files_may_not_declare_one_name(tidemark: Command) -> None:
    for name in ("one", "two"):
        tidemark.declare(GOOD + "shops = made()", file=f"{name}.py")
    tidemark("run", "shops").failed(2, "one.py", "two.py")


def test_a_folder_of_pipelines_that_is_not_there(tidemark: Command) -> None:
    tidemark("run", "shops", TIDEMARK_PIPELINES="/no/such/folder").failed(3, "/no/such/folder", "TIDEMARK_PIPELINES")


def test_a_process_says_the_same_and_prints_nothing_on_stdout(tidemark: Command) -> None:
    tidemark.declare(GOOD + "shops = made(uids=('shops', 'shops'))", file="broken.py")
    answer = tidemark.process("run", "shops", "--json").failed(2, "two operators")
    assert len(answer.err.splitlines()) == 3
