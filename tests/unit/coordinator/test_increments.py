"""What one checkpoint adds: a run of the keys it touched, over files that older checkpoints name as well."""

from dataclasses import replace

from tests.support.bank import ASK, P0, PIPELINE, Account, BankPipeline, sourced
from tests.unit.coordinator.test_attempts import DECLINED, begun
from tidemark import Fold
from tidemark.model.checkpoint import object_keys as keys
from tidemark.model.checkpoint.manifest import Ack, Checkpoint


def filled(accounts: int) -> BankPipeline:
    """A pipeline after a checkpoint over so many accounts."""
    bank = BankPipeline()
    for n in range(accounts):
        bank.send(1, account=f"a{n}")
    bank.complete()
    return bank


def ack_of(found: Checkpoint, uid: str = "accounts") -> Ack:
    ack = found.ack(uid)
    assert ack is not None
    return ack


def files(bank: BankPipeline, found: Checkpoint) -> set[str]:
    return {f.file.path for s in found.handles["accounts"] for f in bank.tables.files_of(s)}


def test_a_checkpoint_writes_the_keys_it_touched_and_names_the_older_files_again() -> None:
    bank = filled(100)
    first = bank.coordinator.checkpoint(1)
    bank.send(2, account="a7")
    second = bank.complete()
    assert (ack_of(first).keys, ack_of(second).keys) == (100, 1)
    assert files(bank, first) < files(bank, second)
    assert len(files(bank, second)) == len(files(bank, first)) + 1
    assert second.handles["accounts"].rows == 101
    assert bank.state("accounts")["a7",] == (3, 3)


def test_the_size_of_the_run_and_the_full_size_are_told_apart() -> None:
    bank = filled(100)
    bank.send(1, account="a7")
    found = bank.complete()
    whole = ack_of(bank.coordinator.checkpoint(1)).run_bytes
    run, full = ack_of(found).run_bytes, found.handles["accounts"].bytes
    assert (full, full - whole) == (whole + run, run)
    assert 0 < run < full / 50


def test_every_operator_acknowledges_with_its_commits_counts_and_times() -> None:
    bank = BankPipeline(
        replace(PIPELINE, operators=[*PIPELINE.operators, Fold("copies", key_by="account", state=Account)])
    )
    bank.send(3)
    bank.log.append(P0, b"{")
    found = bank.complete()
    assert [a.uid for a in found.sealed.acks] == ["accounts", "copies"]
    for ack in found.sealed.acks:
        assert (ack.read, ack.applied, ack.dead_lettered, ack.keys) == (4, 3, 1, 1)
        assert [c.path.split("/")[1] for c in ack.commits] == ["state", "dead_letters"]
        assert all(c.version == 0 and len(c.write_id) == 32 and len(c.sha256) == 64 for c in ack.commits)
        assert set(ack.timings_ms) == {"fold", "commit"}
        assert (ack.handle.rows, ack.handle.bytes) == (1, ack.run_bytes)
    steps = {"read", "gate"} | {f"{step}.{a.uid}" for a in found.sealed.acks for step in ("fold", "runs")}
    assert steps <= set(found.sealed.timings_ms)


def test_the_next_plan_reads_what_the_last_manifest_names_and_not_what_the_tables_hold() -> None:
    bank = filled(2)
    bank.send(5, account="a0")
    plan = bank.plan()
    owned = begun(bank, plan)
    bank.execute(owned)
    del bank.store.objects[keys.outcome_key(plan.slot, 1)]  # as if it had died before its seal
    bank.coordinator.abort(plan, DECLINED)
    (table,) = {s.path for s in plan.handles["accounts"]}
    assert len(bank.tables.tables[table]) == 2, "the attempt had committed to the table"
    again = bank.plan()
    assert again.handles == bank.coordinator.checkpoint(1).handles == plan.handles
    assert bank.state("accounts") == {("a0",): (1, 1), ("a1",): (1, 1)}
    assert bank.complete().handles["accounts"].rows == 3
    assert bank.state("accounts") == {("a0",): (6, 6), ("a1",): (1, 1)}


def test_the_isolation_level_is_read_committed_unless_said_and_stands_in_the_manifest() -> None:
    assert BankPipeline().complete().plan.isolation == "read_committed"
    other = BankPipeline(sourced(isolation="read_uncommitted"))
    other.complete(ASK)
    assert other.coordinator.checkpoint(1).plan.isolation == "read_uncommitted"
