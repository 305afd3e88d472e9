"""The bodies of `--json` as they were recorded: fields, their order and types, over the twins of Kafka and Spark.

Delete `json_answers.json` and run this file to record them again.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.disk_context import commands_over
from tests.support.sales_pipeline import SalesPipeline

RECORDED = Path(__file__).with_name("json_answers.json")
KEEP = "keep_last(1)"
COMMANDS = (
    "run till", "savepoint create till kept --checkpoint 2 --note why", "savepoint list till",
    "savepoint show till kept",
    "savepoint note till kept --note other", "savepoint dispose till kept", "checkpoint list till",
    "checkpoint show till 2", "checkpoint stats till", "checkpoint abort till",
    "timeline list till", "timeline show till t1", "retention plan till", f"retention plan till --keep {KEEP}",
    f"retention apply till --keep {KEEP}", "storage till", "sink list till", "sink skipped till",
    "state show till accounts", "state diff till accounts --from 1 --to 3", "state source till accounts --key {key}",
    "erase till accounts --key {key}", "verify till", "fork till fix --savepoint kept --note why",
    "timeline show till fix", "promote till fix", "run till --timeline fix", "timeline close till fix",
    "timeline close till fix --execute", "backfill till --from-savepoint kept",
    "backfill till --from-savepoint kept --execute", "backfill till --from-savepoint kept --execute --mode promote",
    "backfill till --from-savepoint kept", "restore till --checkpoint 1", "restore till --checkpoint 1 --execute",
    "timeline list till", "erase till accounts --key {key} --execute --now", "savepoint dispose till kept --execute",
    f"retention apply till --keep {KEEP} --grace 0 --execute", "stop till --savepoint last", "resume till",
)  # fmt: skip


def shape(value: Any) -> Any:
    """A body with the type of each value in its place; of a list that of each element once."""
    if isinstance(value, dict):
        return {name: shape(v) for name, v in value.items()}
    if isinstance(value, list):
        return list({json.dumps(found): found for found in map(shape, value)}.values())
    return type(value).__name__


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[SalesPipeline]:
    """Three checkpoints."""
    made = SalesPipeline.opened(tmp_path)
    made.checkpoints(3)
    with commands_over(made.line):
        yield made


def test_the_bodies_of_all_commands_are_those_that_were_recorded(shop: SalesPipeline) -> None:
    rows = shop.tidemark("state", "show", "till", "accounts", "--json").ok().json
    key = next(row["account"] for row in rows if row["account"].isalnum())
    found: dict[str, Any] = {}
    for number, command in enumerate(COMMANDS):
        answer = shop.tidemark(*command.format(key=key).split(), "--json")
        body = shape(json.loads(answer.out)) if answer.out else answer.err
        found[f"{number} {command}: {answer.code}"] = body
    if not RECORDED.exists():
        lines = (f"{json.dumps(name)}: {json.dumps(body)}" for name, body in found.items())
        RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    recorded = json.loads(RECORDED.read_text())
    assert list(found) == list(recorded)
    assert {name: body for name, body in found.items() if json.dumps(body) != json.dumps(recorded[name])} == {}
