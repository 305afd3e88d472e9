"""A topic that is recreated after it was read, and before the seal: the attempt ends, nothing is published (J9)."""

import pytest

from tests.support.bank import BankPipeline
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.coordinator.checkpoints.job import CheckpointJob
from tidemark.coordinator.records.states import OpenPlan
from tidemark.errors import DataLostError
from tidemark.testing.twin.memory import MemoryCompute


@pytest.mark.parametrize("at", ["fold.accounts", "runs.accounts", "gate"])
def test_a_topic_that_is_recreated_before_the_seal_ends_the_attempt(at: str) -> None:
    bank = BankPipeline()
    bank.send(3)
    plan = bank.plan()

    def crash(step: str, moment: str) -> None:
        if (step, moment) == (at, "after"):
            bank.log.create("payments", 2)
            bank.send(3)

    attempt = bank.coordinator.begin(plan)
    assert isinstance(attempt, OwnedAttempt)
    job = CheckpointJob(
        compute=MemoryCompute(pipeline=bank.pipeline, log=bank.log, tables=bank.tables),
        tables=bank.tables,
        clock=bank.clock,
        write_ids=bank.ids,
        listener=crash,
        max_dead_letters=1.0,
    )
    with pytest.raises(DataLostError, match="payments/1 became payments/2"):
        job.execute(attempt)
    assert isinstance(bank.coordinator.open_plan(), OpenPlan), "nothing was sealed"
