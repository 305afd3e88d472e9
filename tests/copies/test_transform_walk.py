"""Transforms at random: whatever queries write, plain dicts say the same, and continue as the fork does."""

import copy
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.copies.patched_pipeline import NAME, PatchedPipeline, State
from tests.copies.test_patch_walk import _check_compactions, _compact
from tests.support.scale import SCALE
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.operations import queries
from tidemark.operations.queries import DiffRequest
from tidemark.operations.savepoint_states import transform as transform_operations
from tidemark.operations.savepoint_states.transform import TransformRequest
from tidemark.readers.state_diff import Detail

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", "20131201"))
UIDS = ("sensors", "kept")
Effect = Callable[[State], State]


def _known(held: dict[str, Any]) -> dict[str, Any]:
    """A row of a fold as a query gives it: what is null is not known."""
    return {name: value for name, value in held.items() if value is not None}


def _renamed(state: State) -> State:
    return {f"{key}!": _known(held) for key, held in state.items()}


def _raised(state: State) -> State:
    return {key: {**_known(held), "n": held["n"] + 100} if key < "c" else held for key, held in state.items()}


def _without(state: State) -> State:
    return {key: held for key, held in state.items() if key not in "ad"}


def _taxed(state: State) -> State:
    return {key: held if held["total"] is None else {**held, "total": held["total"] + 1} for key, held in state.items()}


def _renamed_rows(state: State) -> State:
    return {f"{key}!": held for key, held in state.items()}


CHOICES: dict[str, list[tuple[str, Effect]]] = {
    "sensors": [
        ("FROM sensors", dict),
        ("SELECT * REPLACE (sensor || '!' AS sensor) FROM sensors", _renamed),
        ("SELECT * REPLACE (if(sensor < 'c', n + 100, n) AS n) FROM sensors", _raised),
        ("FROM sensors WHERE sensor NOT IN ('a', 'd')", _without),
        ("FROM sensors WHERE false", lambda state: {}),
    ],
    "kept": [
        ("FROM kept ORDER BY sensor DESC", dict),
        ("SELECT * REPLACE (total + 1 AS total) FROM kept", _taxed),
        ("SELECT * REPLACE (concat(sensor, '!') AS sensor) FROM kept", _renamed_rows),
        ("SELECT * FROM kept WHERE sensor NOT IN ('a', 'd')", _without),
    ],
}


def _transformed(ward: PatchedPipeline, source: Checkpoint, fork: str) -> Checkpoint:
    """Transforms a checkpoint at random, and its oracle likewise."""
    oracle, chosen = copy.deepcopy(ward.oracles[source.id]), {}
    for uid in ward.chance.sample(UIDS, ward.chance.randrange(3)):
        chosen[uid], effect = ward.chance.choice(CHOICES[uid])
        live = {key: held for key, held in oracle.states[uid].items() if key in oracle.rows(uid)}
        oracle.states[uid] = effect(live)
    if ward.chance.random() < 0.3:
        chosen["fresh"] = "FROM fresh"
    number = ward.chance.choice([1, 7, 300]) if not chosen else ward.chance.choice([None, None, 5, 256])
    request = TransformRequest(
        pipeline=NAME,
        source=RestoreRequest(checkpoint=source.id),
        fork=fork,
        queries=chosen,
        key_groups=number,
    )
    print(fork, source.plan.name, chosen, number)
    planned = transform_operations.plan_transform(ward.context, request)
    done = transform_operations.transform(ward.context, request)
    assert (planned.states, planned.checkpoint, planned.refused) == (done.states, None, 0)
    made = done.checkpoint
    assert made is not None
    ward.oracles[made.id] = oracle
    for uid, state in done.states.items():
        was, now = (ward.rows(c, uid, changed=True) for c in (source, made))
        same = {key for key in was.keys() & now.keys() if was[key] == now[key]}
        assert (state.before, state.after, state.unchanged) == (len(was), len(now), len(same)), uid
        wanted = (len(now.keys() - was.keys()), len(was.keys() & now.keys() - same), len(was.keys() - now.keys()))
        assert (state.inserted, state.changed, state.deleted) == wanted, uid
    return made


def _check_diff(ward: PatchedPipeline, source: Checkpoint, made: Checkpoint) -> None:
    """A diff shows what the counts say."""
    for uid in UIDS:
        was, now = (ward.rows(c, uid, changed=True) for c in (source, made))
        wanted = {key: "inserted" for key in now.keys() - was.keys()} | dict.fromkeys(
            was.keys() - now.keys(), "deleted"
        )
        wanted |= {key: "updated" for key in was.keys() & now.keys() if was[key] != now[key]}
        request = DiffRequest(uid=uid, before=source.id, after=made.id, detail=Detail.CHANGES)
        rows = queries.diff_states(ward.context, NAME, request).rows.to_pylist()
        assert {row["key"]["sensor"]: row["change"] for row in rows} == wanted, uid


@pytest.mark.parametrize("seed", range(SEED, SEED + 4 * SCALE))
def test_what_queries_write_is_what_a_dict_holds_and_goes_on_as_one(seed: int, tmp_path: Path) -> None:
    print(f"seed {seed}; repeat with TIDEMARK_TEST_SEED={seed}")
    ward = PatchedPipeline(tmp_path, random.Random(seed))
    made = [ward.checkpoint(count=8)]
    for _ in range(2):
        _compact(ward, None)
        made.append(ward.checkpoint())
    source = ward.chance.choice(made)
    for turn in ("one", "two", "three"):
        before = ward.tidemark.objects(NAME)
        made = [_transformed(ward, source, turn)]
        after = ward.tidemark.objects(NAME)
        assert {key: after[key] for key in before} == before, "what was read is as it was, bit for bit"
        _check_diff(ward, source, made[0])
        for _ in range(2):
            ward.check(made[-1])
            _check_compactions(ward, made[-1])
            _compact(ward, turn)
            made.append(ward.checkpoint(turn))
        ward.check(source)
        ward.check(made[-1])
        source = ward.chance.choice(made)
        if ward.chance.random() < 0.5:
            source, _ = ward.patch(source, f"patch-of-{turn}")
