"""A backlog is worked off by one command, over real Kafka and Spark."""

import re

import pytest

from tests.cli.conftest import TillPipeline
from tests.cli.test_checkpoints import _accounts

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]
TOLD = re.compile(r"^chk-(\d+): (\d+) of 60 offsets \((\d+) %\), \d+ per second, about 0:\d\d:\d\d left$", re.MULTILINE)


def test_one_run_makes_as_many_checkpoints_as_the_backlog_needs_and_tells_how_far_it_is(line: TillPipeline) -> None:
    answer = line.tidemark("run", "till", "--max-records", "25", "--json").ok()
    told = [tuple(map(int, found)) for found in TOLD.findall(answer.err)]
    assert [number for number, _, _ in told] == list(range(1, len(told) + 1))
    assert len(told) >= 3
    assert told[-1][1:] == (60, 100)
    assert all(done <= 25 * number and share == done * 100 // 60 for number, done, share in told[:-1])
    listed = line.tidemark("checkpoint", "list", "till", "--json").ok().json
    assert [c["id"] for c in listed] == [f"chk-{number}" for number, _, _ in reversed(told)]
    assert answer.json["id"] == listed[0]["id"]
    assert sum(line.ends(answer.json).values()) == 60
    assert _accounts(line, answer.json["id"]) == line.sales.accounts(line.ends(answer.json))


def test_a_later_run_has_an_end_of_its_own(line: TillPipeline) -> None:
    before = len(line.tidemark("checkpoint", "list", "till", "--json").ok().json)
    answer = line.tidemark("run", "till", "--max-records", "25").ok()
    assert "0 of 0 offsets (100 %)" in answer.err
    assert len(line.tidemark("checkpoint", "list", "till", "--json").ok().json) == before + 1
