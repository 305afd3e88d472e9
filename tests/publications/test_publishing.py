"""Publications end to end, without Spark: at every version a mirror has the state of its checkpoint, come what may."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.publications.published_ward import NAME, SENSORS, UIDS, PublishedWard, read, rows_by
from tests.support.disk_context import commands_over
from tests.support.s3 import Bucket
from tests.support.scale import SCALE
from tidemark import Retention
from tidemark.api import PipelineHistory
from tidemark.coordinator.publications.publisher import StatePublisher
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.coordinator.retention.root_set import collect_roots
from tidemark.errors import DeclarationError, TargetChangedError, UsageError
from tidemark.operations import retention, timelines
from tidemark.operations.publications import publishing

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", "20261127"))
MIRROR = "sensors-mirror"


def _ward(folder: Path, n: int = 0) -> PublishedWard:
    print(f"seed {SEED}; TIDEMARK_TEST_SEED={SEED}")
    return PublishedWard(folder, random.Random(f"{SEED} {n}"))


@pytest.fixture
def ward(tmp_path: Path) -> PublishedWard:
    made = _ward(tmp_path)
    made.checkpoint()
    return made


def test_one_difference_catches_up_over_many_checkpoints_and_then_there_is_nothing_to_do(ward: PublishedWard) -> None:
    ward.publish("kept")
    for _ in range(4):
        ward.checkpoint()
    ward.line.compact("kept", full=True)
    ward.checkpoint()
    assert [step.mode for step in ward.publish("kept")] == ["difference"]
    assert ward.publish("kept") == []
    ward.check()


@pytest.mark.parametrize("uid", UIDS)
def test_an_erased_key_is_in_no_live_file_even_if_no_checkpoint_held_it_any_more(ward: PublishedWard, uid: str) -> None:
    ward.checkpoint()
    ward.publish(uid)
    gone, *_ = rows_by(ward.expected(2, uid))
    ward.erase(gone, uid)
    (made,) = ward.publish(uid)
    assert (made.mode, made.checkpoint) == ("difference", "chk-2"), "no later checkpoint is needed"
    assert gone not in rows_by(read(ward.mirror(uid), int(made.version)))
    ward.checkpoint()
    ward.publish(uid)
    ward.compare(uid)
    number = len(list((ward.tidemark.warehouse / NAME / "erasures").glob("*.end.json")))
    ward.erase("never", uid)
    assert len(list((ward.tidemark.warehouse / NAME / "erasures").glob("*.end.json"))) == number + 1
    assert [step.mode for step in ward.publish(uid)] == ["difference"]


def test_an_erasure_that_has_not_ended_is_left_to_the_next_step(ward: PublishedWard) -> None:
    ward.publish("sensors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidemark.coordinator.retention.key_erasure.Eraser._end", _raise)
        with pytest.raises(RuntimeError):
            ward.erase("a", "sensors")
    ward.checkpoint()
    ward.publish("sensors")
    begun = ward.steps("sensors").newest(MIRROR)
    assert begun is not None and begun.erasures == 0
    ward.erase("a", "sensors")
    ward.publish("sensors")
    begun = ward.steps("sensors").newest(MIRROR)
    assert begun is not None and begun.erasures == 2, "the record that the call was killed at, and its own"
    ward.compare("sensors")


def test_a_restore_is_followed_once_the_new_timeline_has_a_checkpoint(ward: PublishedWard) -> None:
    for _ in range(3):
        ward.checkpoint()
    for uid in UIDS:
        ward.publish(uid)
    ward.restore(2)
    assert [ward.publish(uid) for uid in UIDS] == [[], [], []], "no step back to an ancestor"
    ward.checkpoint()
    for uid in UIDS:
        (made,) = ward.publish(uid)
        assert (made.mode, made.checkpoint) == ("difference", "chk-5")
    ward.check()


def test_a_promoted_fork_is_followed(ward: PublishedWard) -> None:
    ward.checkpoint()
    timelines.fork(ward.context, NAME, "side", RestoreRequest(checkpoint=1))
    ward.checkpoint()
    ward.publish("sensors")
    ward.checkpoint("side")
    assert ward.publish("sensors") == [], "only the live timeline is published"
    timelines.promote(ward.context, NAME, "side")
    (made,) = ward.publish("sensors")
    assert (made.mode, made.timeline) == ("difference", "side")
    ward.check()


def test_a_changed_declaration_is_a_rebuild_with_the_new_columns(ward: PublishedWard) -> None:
    for uid in UIDS:
        ward.publish(uid)
    ward.declare(
        lambda text: text.replace("    total: int |", '    greatest: int | None = state.max("room")\n    total: int |')
    )
    ward.checkpoint()
    assert [step.mode for uid in UIDS for step in ward.publish(uid)] == ["rebuild", "difference", "difference"]
    ward.checkpoint()
    assert [step.mode for step in ward.publish("sensors")] == ["difference"]
    ward.check()


def test_a_sweep_keeps_what_a_publication_starts_from(ward: PublishedWard) -> None:
    ward.publish("sensors")
    for _ in range(4):
        ward.checkpoint()
    keep = Retention.keep_last(1)
    ward.line.clock.ms += 10**9
    retention.sweep(ward.context, NAME, str(keep), grace_ms=0)
    why = collect_roots(ward.line.coordinator, keep).reasons[1]
    assert why == (f"publication {MIRROR}, which continues from there",)
    assert [step.mode for step in ward.publish("sensors")] == ["difference"]
    ward.compare("sensors")
    retention.sweep(ward.context, NAME, str(keep), grace_ms=0)
    assert not collect_roots(ward.line.coordinator, keep).reasons.get(1)


def test_a_step_that_is_begun_keeps_both_of_its_checkpoints(ward: PublishedWard) -> None:
    ward.publish("sensors")
    ward.checkpoint()
    ward.kill("sensors", "publish.begun", "after")
    for _ in range(3):
        ward.checkpoint()
    ward.line.clock.ms += 10**9
    for _ in range(2):
        retention.sweep(ward.context, NAME, str(Retention.keep_last(1)), grace_ms=0)
    assert [step.checkpoint for step in ward.publish("sensors")] == ["chk-2", "chk-5"]
    ward.compare("sensors")


def test_changes_of_others_stop_it_until_a_rebuild(ward: PublishedWard) -> None:
    ward.publish("sensors")
    DeltaTable(str(ward.mirror("sensors"))).delete("n > 0")
    assert not publishing.verify(ward.context, NAME, MIRROR).equal
    ward.checkpoint()
    for _ in range(2):
        with pytest.raises(TargetChangedError, match="MIRROR_CHANGED"):
            ward.publish("sensors")
    made = ward.rebuild("sensors")
    assert (made.mode, made.checkpoint) == ("rebuild", "chk-2")
    assert publishing.verify(ward.context, NAME, MIRROR).equal
    ward.checkpoint()
    assert [step.mode for step in ward.publish("sensors")] == ["difference"]
    ward.check()


def test_a_publication_that_was_dropped_begins_again_by_a_rebuild_only(ward: PublishedWard) -> None:
    ward.publish("sensors")
    rows = read(ward.mirror("sensors"), 0)
    made = publishing.drop(ward.context, NAME, MIRROR)
    assert made is not None and made.mode == "drop"
    assert publishing.drop(ward.context, NAME, MIRROR) == made
    ward.checkpoint()
    assert ward.publish("sensors") == []
    assert read(ward.mirror("sensors"), 1) == rows
    assert not collect_roots(ward.line.coordinator, Retention.keep_last(1)).reasons.get(1)
    ward.rebuild("sensors")
    ward.checkpoint()
    assert [step.mode for step in ward.publish("sensors")] == ["difference"]
    ward.check()


def test_a_table_moves_with_its_path_and_the_old_one_stays(ward: PublishedWard) -> None:
    ward.publish("sensors")
    rows = read(ward.mirror("sensors"), 0)
    ward.declare(lambda text: text.replace(f'"{ward.mirror("sensors")}"', f'"{ward.mirror("moved")}"'))
    (made,) = publishing.publish(ward.context, NAME, MIRROR)
    assert (made.mode, made.place) == ("rebuild", str(ward.mirror("moved")))
    assert read(ward.mirror("moved"), 0) == rows == read(ward.mirror("sensors"), 0)


@pytest.mark.parametrize("n", range(3 * SCALE))
def test_random_walks(tmp_path: Path, n: int) -> None:
    ward = _ward(tmp_path, n)
    uid = UIDS[n % len(UIDS)]
    ward.checkpoint()
    ward.publish(uid)
    for _ in range(18):
        _moves(ward, uid)[ward.chance.randrange(len(_moves(ward, uid)))]()
    ward.checkpoint()
    ward.publish(uid)
    ward.check()
    ward.compare(uid)


def _moves(ward: PublishedWard, uid: str) -> list[Callable[[], object]]:
    kinds = ("publish.begun", "publish.target", "publish.done")
    newest = next(ward.line.coordinator.checkpoints()).id

    def sweep() -> None:
        ward.line.clock.ms += 10**9
        retention.sweep(ward.context, NAME, str(Retention.keep_last(2)), grace_ms=0)

    def restore() -> None:
        survey = collect_roots(ward.line.coordinator, None)
        kept = [c.id for c in survey.lines.all() if not survey.is_released(c.id)]
        ward.restore(ward.chance.choice(kept))
        ward.checkpoint()

    def erase() -> None:
        ward.publish(uid)  # what is begun is finished first: the oracle reads the state before the erasure
        ward.erase(ward.chance.choice(SENSORS), uid)
        ward.publish(uid)

    checkpoint, publish = ward.checkpoint, lambda: ward.publish(uid)
    kill = lambda: ward.kill(uid, ward.chance.choice(kinds), ward.chance.choice(("before", "after")))  # noqa: E731
    compact = lambda: ward.line.compact(uid, full=ward.chance.random() < 0.5)  # noqa: E731
    optimize = lambda: DeltaTable(str(ward.mirror(uid))).optimize.compact()  # noqa: E731
    common: list[Callable[[], object]] = [checkpoint] * 3 + [publish] * 3 + [kill, compact, optimize, sweep]
    return [*common, *([restore, erase] if newest > 2 else [])]


def test_commands(ward: PublishedWard) -> None:
    tidemark = ward.tidemark
    with commands_over(ward.line):
        rows = tidemark("publication", "list", NAME, "--json").ok().json
        assert [(r["publication"], r["state"], r["behind"]) for r in rows] == [
            ("fresh-mirror", "new", 1), ("kept-mirror", "new", 1), (MIRROR, "new", 1)
        ]  # fmt: skip
        made = tidemark("publication", "run", NAME, "--json").ok().json
        assert {(m["mode"], m["checkpoint"]) for m in made} == {("rebuild", "chk-1")}
        assert "nothing to publish" in tidemark("publication", "run", NAME).ok().err
        assert tidemark("publication", "verify", NAME, MIRROR, "--json").ok().json["equal"]
        told = tidemark("publication", "rebuild", NAME, MIRROR).ok()
        assert f"Next: tidemark publication rebuild {NAME} {MIRROR} --execute" in told.err
        assert DeltaTable(str(ward.mirror("sensors"))).version() == 0
        tidemark("publication", "rebuild", NAME, MIRROR, "--execute").ok()
        assert DeltaTable(str(ward.mirror("sensors"))).version() == 1
        DeltaTable(str(ward.mirror("sensors"))).delete("n > 0")
        told = tidemark("publication", "verify", NAME, MIRROR, "--json")
        assert (told.code, told.json["missing"]) == (4, 1)
        assert "differs from chk-1" in told.err
        tidemark("publication", "run", NAME, "none").failed(3, "declares no publication", MIRROR)
        told = tidemark("publication", "drop", NAME, "kept-mirror").ok()
        assert f"Next: tidemark publication drop {NAME} kept-mirror --execute" in told.err
        told = tidemark("publication", "drop", NAME, "kept-mirror", "--execute").ok()
        assert "keeps its rows" in told.err
        told = tidemark("erase", NAME, "fresh", "--key", "a").ok()
        assert f"tidemark publication run {NAME} fresh-mirror" in told.err
        ward.declare(lambda text: text.replace(f'publish=[DeltaMirror("{ward.mirror("fresh")}")], ', ""))
        states = {r["publication"]: r["state"] for r in tidemark("publication", "list", NAME, "--json").ok().json}
        assert states == {"fresh-mirror": "removed", "kept-mirror": "dropped", MIRROR: "current"}
        assert f"tidemark publication drop {NAME} fresh-mirror" in tidemark("publication", "list", NAME).ok().err


def test_python_answers_as_the_commands_do(ward: PublishedWard) -> None:
    flights = PipelineHistory(ward.context, NAME)
    assert [made["mode"] for made in flights.publications.run()] == ["rebuild"] * 3
    assert flights.publications.run(MIRROR) == []
    assert flights.publications.verify(MIRROR)["equal"]
    (step,) = flights.publications.show(MIRROR)["steps"]
    assert (step["checkpoint"], step["version"]) == ("chk-1", "0")
    planned = flights.publications.rebuild(MIRROR)
    assert planned.plan in flights.publications.list()
    assert planned.commit()["version"] == "1"
    assert flights.publications.drop(MIRROR).commit()["mode"] == "drop"
    with commands_over(ward.line):
        assert ward.tidemark("publication", "list", NAME, "--json").ok().json == flights.publications.list()


def test_declarations_that_cannot_be(ward: PublishedWard) -> None:
    def declared(change: Callable[[str], str]) -> None:
        ward.declare(change)
        assert ward.pipeline

    with pytest.raises(DeclarationError, match="relative path"):
        declared(lambda text: text.replace(str(ward.mirror("sensors")), "lake"))
    with pytest.raises(DeclarationError, match="publications share the place"):
        declared(lambda text: text.replace(str(ward.mirror("sensors")), str(ward.mirror("kept"))))
    with pytest.raises(DeclarationError, match="publications share the name"):
        declared(lambda text: text.replace('sensors")]', 'sensors", name="kept-mirror")]'))
    with pytest.raises(DeclarationError, match="is no publication"):
        declared(lambda text: text.replace(f'DeltaMirror("{ward.mirror("sensors")}")', "7"))


def test_a_table_inside_the_warehouse_is_refused(ward: PublishedWard) -> None:
    inside = ward.tidemark.warehouse / NAME / "gold"
    ward.declare(lambda text: text.replace(str(ward.mirror("sensors")), str(inside)))
    with pytest.raises(UsageError, match="inside the warehouse"):
        publishing.publish(ward.context, NAME, MIRROR)
    assert not inside.exists()


def test_a_publication_decides_no_result(ward: PublishedWard) -> None:
    before = ward.pipeline.fingerprint
    ward.declare(lambda text: text.replace(f'publish=[DeltaMirror("{ward.mirror("fresh")}")], ', ""))
    assert ward.pipeline.fingerprint == before


def test_a_planted_publisher_that_ignores_erased_keys_is_found(
    ward: PublishedWard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StatePublisher, "_erased", lambda *_: iter(()))
    with pytest.raises(AssertionError):
        test_an_erased_key_is_in_no_live_file_even_if_no_checkpoint_held_it_any_more(ward, "sensors")


def _raise(*_: object) -> None:
    raise RuntimeError


def test_a_mirror_in_a_bucket_needs_the_settings_of_the_store_only(tmp_path: Path, bucket: Bucket) -> None:
    class BucketWard(PublishedWard):
        def target(self, uid: str) -> str:
            return f'DeltaMirror("s3://{bucket.name}/gold/{uid}")'

    ward = BucketWard(tmp_path, random.Random(SEED))
    for modes in (["rebuild"] * 3, ["difference"] * 3):
        ward.checkpoint()
        # In processes of their own: the proxy in front of the store needs this one.
        told = ward.tidemark.process("publication", "run", NAME, "--json", **bucket.server.variables).ok()
        assert [step["mode"] for step in told.json] == modes
    for uid in UIDS:
        told = ward.tidemark.process(
            "publication", "verify", NAME, f"{uid}-mirror", "--json", **bucket.server.variables
        )
        assert told.ok().json["equal"]
    assert {key.split("/")[0] for key in bucket.objects("gold/")} == set(UIDS)
