"""Folds of Debezium's changes against a dict of rows: any history, any barriers, and what a compaction leaves."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.row_changes import Table, compacted, pipeline, random_changes, records, with_broadcast
from tidemark.testing import BARRIER, Replayed, replay

CHOICES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(0, 40)), max_size=25)
CUTS = st.lists(st.integers(0, 60), max_size=6)


def _script(found: list[Any], cuts: list[int]) -> list[Any]:
    script: list[Any] = []
    for n, record in enumerate(found):
        script += [BARRIER] if n in cuts else []
        script.append([record])
    return [*script, BARRIER]


def _copy(found: Replayed, uid: str = "copy") -> dict[Any, Any]:
    return {key: (row.name, row.cents, row.note, row.op, row.first) for key, row in found.state(uid).items()}


def _expected(table: Table) -> dict[Any, Any]:
    return {
        key: (row["name"], row["cents"], row.get("note"), table.ops[key], table.firsts[key])
        for key, row in table.rows.items()
    }


@settings(deadline=None)
@given(CHOICES, CUTS)
def test_a_fold_holds_the_table_however_barriers_fall(choices: list[tuple[int, int, int]], cuts: list[int]) -> None:
    table = random_changes(choices)
    found = replay(pipeline(), _script(records(table.sent), cuts), partitions=2)
    assert _copy(found) == _expected(table)
    seen = {key: (row.name, row.cents, row.op) for key, row in found.state("seen").items()}
    assert seen == {(region, id): (row["name"], row["cents"], op) for (id, region), (row, op) in table.ever.items()}, (
        "without deletes, rows stay as they were last"
    )
    gone = sum(value is None or b'"op": "d"' in value for _, value in table.sent)
    truncated = sum(key is None for key, _ in table.sent)
    totals: dict[str, list[int]] = {uid: [0, 0, 0] for uid in ("copy", "seen", "ids", "spent")}
    for checkpoint in found.checkpoints:
        for ack in checkpoint.sealed.acks:
            for n, count in enumerate((ack.applied, ack.filtered, ack.dead_lettered)):
                totals[ack.uid][n] += count
    changes = len(table.sent) - gone - truncated
    assert totals == {
        "copy": [changes + gone, 0, truncated],
        "seen": [changes, gone, truncated],
        "ids": [0, 0, len(table.sent)],
        "spent": [changes, gone, truncated],
    }
    assert {letter["reason"] for letter in found.dead_letters("copy")} <= {"unsupported_op"}
    assert {letter["reason"] for letter in found.dead_letters("ids")} <= {"unsupported_op", "bad_key"}


@settings(deadline=None)
@given(CHOICES, CUTS, st.integers(0, 60))
def test_a_compacted_topic_leaves_the_same_rows(
    choices: list[tuple[int, int, int]], cuts: list[int], until: int
) -> None:
    table = random_changes(choices)
    left = [*compacted(table.sent[:until]), *table.sent[until:]]
    found = replay(pipeline(), _script(records(left), cuts), partitions=2)
    assert {key: row[:4] for key, row in _copy(found).items()} == {
        key: row[:4] for key, row in _expected(table).items()
    }


@settings(deadline=None)
@given(CHOICES, CUTS)
def test_a_broadcast_state_holds_the_table(choices: list[tuple[int, int, int]], cuts: list[int]) -> None:
    table = random_changes(choices)
    made = with_broadcast()
    script = _script([replace(r, source="items") for r in records(table.sent)], cuts)
    found = replay(made, script, partitions=2)
    assert {key: row["cents"] for key, row in found.rows("items").items()} == {
        key: row["cents"] for key, row in table.rows.items()
    }


@settings(deadline=None)
@given(CHOICES)
def test_a_process_compares_rows_with_what_they_were(choices: list[tuple[int, int, int]]) -> None:
    kept = [(what, which, value) for what, which, value in choices if what % 10 not in (6, 7)]
    table = random_changes(kept)
    found = replay(pipeline(), [records(table.sent), BARRIER], partitions=2)
    expected: dict[str, int] = {}
    for (_, region), row in table.rows.items():
        expected[region] = expected.get(region, 0) + row["cents"]
    assert {region: spent.cents for region, spent in found.state("spent").items() if spent.cents} == {
        region: cents for region, cents in expected.items() if cents
    }
