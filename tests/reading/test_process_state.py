"""SQL, diffs and hashes of values, lists and maps: entries go one by one, and keys go whole, without a ttl."""

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.reading.upserts import check_upserts
from tests.support.cli import Command
from tests.support.disk import DiskPipeline

START = datetime(2024, 5, 1, tzinfo=UTC)
DECLARATION = '''
"""Baskets: what lies in them; `word` says what to do."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from tidemark import KafkaSource, Pipeline, Process, state


@dataclass(frozen=True)
class Act:
    """One record."""

    who: str
    word: str
    item: str
    at: datetime


class Basket(state.Keyed):
    """One field of each kind."""

    acts: int = state.value(0)
    words: list[str] = state.list()
    items: dict[str, int] = state.map()


def fill(who: str, acts: Iterator[Act], basket: Basket) -> None:
    """Puts, takes out, or leaves."""
    for act in acts:
        if act.word == "leave":
            basket.clear()
            continue
        basket.acts += 1
        basket.words.append(act.word)
        if act.word == "put":
            basket.items[act.item] = basket.items.get(act.item, 0) + 1
        else:
            basket.items.pop(act.item, None)


baskets = Pipeline(
    name="baskets",
    source=KafkaSource("acts", Act, event_time="at"),
    operators=[Process("baskets", key_by="who", state=Basket, function=fill)],
)
'''
State = dict[str, dict[str, Any]]


def _acted(state: State, acts: list[tuple[str, str, str]]) -> State:
    """What the pipeline's function comes to, in plain dicts."""
    now: dict[str, dict[str, Any]] = json.loads(json.dumps(state))
    for who, word, item in acts:
        if word == "leave":
            now.pop(who, None)
            continue
        kept = now.setdefault(who, {"acts": 0, "words": [], "items": {}})
        kept["acts"] += 1
        kept["words"].append(word)
        if word == "put":
            kept["items"][item] = kept["items"].get(item, 0) + 1
        else:
            kept["items"].pop(item, None)
    return now


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_sql_diff_and_hash_of_process_state(seed: int, tmp_path: Path) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    tidemark = Command(tmp_path, "127.0.0.1:1", "sc://127.0.0.1:1")
    tidemark.declare(DECLARATION, file="baskets.py")
    line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("baskets"), "acts", partitions=1)
    states: list[State] = [{}]
    touched: list[set[str]] = [set()]
    for n in range(5):
        acts = [
            (chance.choice("abcd"), chance.choice(("put", "put", "take", "leave")), chance.choice("xyz"))
            for _ in range(chance.randrange(5))
        ]
        at = [START + timedelta(minutes=100 * n + m) for m in range(len(acts))]
        bodies = [{"who": w, "word": v, "item": i, "at": t.isoformat()} for (w, v, i), t in zip(acts, at, strict=True)]
        line.send([(0, json.dumps(b).encode(), int(t.timestamp() * 1000)) for b, t in zip(bodies, at, strict=True)])
        line.checkpoint()
        if chance.random() < 0.5:
            line.compact("baskets", full=chance.random() < 0.5)
        states.append(_acted(states[-1], acts))
        touched.append({who for who, *_ in acts})
    hashes: dict[str, str] = {}
    for n, state in enumerate(states[1:], start=1):
        rows = tidemark("state", "sql", "baskets", f"from baskets_at({n})", "--json").ok().json
        assert {r["who"]: {k: r[k] for k in ("acts", "words", "items")} for r in rows} == state
        made = tidemark("state", "hash", "baskets", "baskets", "--checkpoint", str(n), "--json").ok().json["sha256"]
        assert hashes.setdefault(json.dumps(state, sort_keys=True), made) == made
    assert len(set(hashes.values())) == len(hashes)
    for before, after in ((1, 5), (2, 4), (4, 5), (5, 2)):
        span = ("--from", str(before), "--to", str(after), "--values", "--json")
        told = tidemark("state", "diff", "baskets", "baskets", *span).ok().json
        assert told["bytes_read"] is not None
        between = set().union(*touched[min(before, after) + 1 : max(before, after) + 1])
        old, new = states[before], states[after]
        expected = {k for k in between if k in old or k in new}
        assert {r["key"]["who"] for r in told["rows"]} == expected
        for row in told["rows"]:
            who = row["key"]["who"]
            change = "updated" if who in old and who in new else "inserted" if who in new else "deleted"
            assert row["change"] == change
            for side, state in (("before", old), ("after", new)):
                assert (row[side] and {k: v for k, v in row[side].items() if k != "_changed"}) == state.get(who)
        upserts = tidemark("state", "diff", "baskets", "baskets", *span[:4], "--json").ok().json["rows"]
        sides = ([{"who": who, **held} for who, held in state.items()] for state in (old, new))
        check_upserts(upserts, sides, keys=("who",))
        assert {r["key"]["who"] for r in upserts} <= between


def test_a_diff_needs_no_older_file_to_know_which_keys_live(tmp_path: Path) -> None:
    tidemark = Command(tmp_path, "127.0.0.1:1", "sc://127.0.0.1:1")
    tidemark.declare(DECLARATION, file="baskets.py")
    line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("baskets"), "acts", partitions=1)
    acted = (
        [("a", "put", "x"), ("a", "put", "y"), ("b", "put", "x"), ("d", "put", "z")],
        [("a", "take", "x"), ("b", "leave", "x"), ("c", "put", "z")],
    )
    older: list[Path] = []
    for n, acts in enumerate(acted):
        older = sorted((tidemark.warehouse / "baskets/state").rglob("*.parquet"))
        at = (START + timedelta(hours=n)).isoformat()
        line.send([(0, json.dumps({"who": w, "word": v, "item": i, "at": at}).encode(), 0) for w, v, i in acts])
        line.checkpoint()
    assert older
    for file in older:
        file.write_bytes(b"not Parquet")
    span = ("state", "diff", "baskets", "baskets", "--from", "1", "--to", "2")
    rows = tidemark(*span, "--json").ok().json["rows"]
    assert {r["key"]["who"]: r["change"] for r in rows} == {"a": "upserted", "b": "deleted", "c": "upserted"}
