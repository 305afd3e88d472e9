"""Patches at random: whatever is set, deleted, compacted and read afterwards, plain dicts say the same."""

import itertools
import os
import random
from pathlib import Path

import pyarrow as pa
import pytest

from tests.copies.patched_pipeline import NAME, PatchedPipeline
from tests.reading.upserts import check_upserts
from tests.support.disk import ParquetFiles
from tests.support.scale import SCALE
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.schema.operator_schema import run_columns
from tidemark.operations import queries
from tidemark.operations.queries import DiffRequest
from tidemark.operations.savepoint_states import patch as patch_operations
from tidemark.operations.savepoint_states.patch import PatchRequest
from tidemark.readers.duckdb_session import open_query_runner
from tidemark.readers.state_diff import Detail
from tidemark.sql.initial_state import given_columns
from tidemark.sql.resolve import compacted_sql
from tidemark.tables.delta_tables import arrow_schema
from tidemark.testing.twin.merge import compact_rows

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", "20131101"))
FOLDED = ("sensors", "fresh")


@pytest.mark.parametrize("seed", range(SEED, SEED + 3 * SCALE))
def test_what_is_patched_is_what_a_dict_holds_and_goes_on_as_one(seed: int, tmp_path: Path) -> None:
    print(f"seed {seed}; repeat with TIDEMARK_TEST_SEED={seed}")
    ward = PatchedPipeline(tmp_path, random.Random(seed))
    made = [ward.checkpoint(count=8)]
    for _ in range(2):
        _compact(ward, None)
        made.append(ward.checkpoint())
    for turn in ("one", "two"):
        source = ward.chance.choice(made)
        before = ward.tidemark.objects(NAME)
        done, told = ward.patch(source, turn)
        after = ward.tidemark.objects(NAME)
        assert {key: after[key] for key in before} == before, "what was patched is as it was, bit for bit"
        _check_diff(ward, source, done)
        for uid, state in told.states.items():
            was, now = ward.oracles[source.id].rows(uid), ward.oracles[done.id].rows(uid)
            assert state.new == len(now.keys() - was.keys()), uid
            assert state.rows and state.bytes
        made = [source, done]
        for _ in range(3):
            ward.check(made[-1])
            _check_compactions(ward, made[-1])
            _compact(ward, turn)
            made.append(ward.checkpoint(turn))
        ward.check(source)
        ward.check(made[-1])


def test_a_key_of_a_process_that_is_set_to_nothing_is_gone(tmp_path: Path) -> None:
    ward = PatchedPipeline(tmp_path, random.Random(SEED))
    source = ward.checkpoint(count=12)
    there = min(ward.rows(source, "kept"))
    nothing = {name: None for name, _ in given_columns(ward.line.pipeline.schemas()["kept"])}
    rows = [nothing | {"sensor": key} for key in (there, "never")]
    request = PatchRequest(
        pipeline=NAME,
        source=RestoreRequest(checkpoint=source.id),
        name="emptied",
        values={"kept": ward.table("kept", rows)},
        deletes={},
    )
    done = patch_operations.patch(ward.context, request).checkpoint
    assert done is not None
    assert ward.rows(done, "kept").keys() == ward.rows(source, "kept").keys() - {there}

    def changes(detail: Detail) -> dict[str, str]:
        request = DiffRequest(uid="kept", before=source.id, after=done.id, detail=detail)
        rows = queries.diff_states(ward.context, NAME, request).rows.to_pylist()
        return {row["key"]["sensor"]: row["change"] for row in rows}

    assert changes(Detail.CHANGES) == {there: "deleted"}
    assert changes(Detail.UPSERTS) == {there: "deleted", "never": "deleted"}, "it may never have been there"


def _compact(ward: PatchedPipeline, timeline: str | None) -> None:
    for uid in (*FOLDED, "kept"):
        how = ward.chance.choice([None, False, True])
        if how is not None:
            ward.line.compact(uid, full=how, timeline=timeline)


def _check_diff(ward: PatchedPipeline, source: Checkpoint, done: Checkpoint) -> None:
    """The diff is the patch: what was set has changed, even to the same; what was deleted was there."""
    for uid in ("sensors", "kept"):
        was, now = (ward.rows(c, uid, changed=True) for c in (source, done))
        touched = {key for key, row in now.items() if row["_changed"] == done.id}
        assert {k: now[k] for k in now.keys() - touched} == {k: was[k] for k in was.keys() & now.keys() - touched}
        wanted = {key: "updated" if key in was else "inserted" for key in touched}
        wanted |= dict.fromkeys(was.keys() - now.keys(), "deleted")
        request = DiffRequest(uid=uid, before=source.id, after=done.id, detail=Detail.VALUES)
        found = queries.diff_states(ward.context, NAME, request)
        assert {r["key"]["sensor"]: r["change"] for r in found.rows.to_pylist()} == wanted
        assert found.bytes_read is not None, "only what changed is read"
        back = queries.diff_states(
            ward.context, NAME, DiffRequest(uid=uid, before=done.id, after=source.id, detail=Detail.CHANGES)
        )
        assert {r["key"]["sensor"] for r in back.rows.to_pylist()} == set(wanted)
        for one, other in ((source, done), (done, source)):
            request = DiffRequest(uid=uid, before=one.id, after=other.id, detail=Detail.UPSERTS)
            upserts = queries.diff_states(ward.context, NAME, request).rows.to_pylist()
            sides = ([{"sensor": k, **row} for k, row in ward.rows(c, uid).items()] for c in (one, other))
            check_upserts(upserts, sides, keys=("sensor",))


def _check_compactions(ward: PatchedPipeline, checkpoint: Checkpoint) -> None:
    """A compaction of everything writes the same rows by SQL and by the twin, and they resolve to the same."""
    for uid, deepest in itertools.product((*FOLDED, "kept"), (False, True)):
        schema = checkpoint.plan.schemas[uid]
        rows = ParquetFiles(str(ward.line.root), checkpoint.plan.schemas).rows(checkpoint.handles[uid])
        columns = arrow_schema(run_columns(schema))
        twin = pa.Table.from_pylist(compact_rows(schema, rows, checkpoint.now, deepest=deepest), schema=columns)
        with open_query_runner() as ask:
            sql = compacted_sql(schema, "rows", checkpoint.now, deepest=deepest)
            found = ask(sql, rows=pa.Table.from_pylist(rows, schema=columns)).cast(columns)
        if schema.is_plain and not deepest:
            # Of a state that no patch shadows, what lies deepest is never merged so, and then kinds say nothing.
            found, twin = (t.drop_columns(["_kind"]) for t in (found, twin))
        assert _sorted(found) == _sorted(twin), (uid, deepest)


def _sorted(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist(maps_as_pydicts="strict")))
