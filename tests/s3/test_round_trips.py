"""How many round trips in a row a checkpoint takes, whatever one of them takes (adr/0071)."""

import os
from dataclasses import replace
from pathlib import Path
from unittest import mock
from uuid import uuid4

import pytest

from tests.s3.waves import Waves
from tests.support.cli import Command
from tests.support.disk import DiskPipeline
from tests.support.disk_context import DiskContext
from tests.support.memory import payment
from tests.support.s3 import S3Server, only_moto
from tidemark.operations import checkpoints
from tidemark.ports import PlanRequest
from tidemark.settings import load_settings
from tidemark.storage.s3_folder import S3Folder

pytestmark = [pytest.mark.slow, only_moto]
DECLARATION = '''"""One fold."""

from dataclasses import dataclass

from tidemark import Fold, KafkaSource, Pipeline, state


@dataclass(frozen=True)
class Payment:
    """One record."""

    account: str | None
    amount: int


class Account(state.Keyed):
    """Per account."""

    payments: int = state.count()


bank = Pipeline(
    name="bank",
    source=KafkaSource("$topic", Payment),
    operators=[Fold("accounts", key_by="account", state=Account)],
)
'''


def test_a_checkpoint_of_one_fold_takes_eleven_round_trips_in_a_row_and_a_look_during_the_read(
    s3_server: S3Server, s3_folder: S3Folder, tmp_path: Path
) -> None:
    s3_server.proxy.reset()
    bucket = s3_server.make_bucket(f"waves-{uuid4().hex[:12]}")
    folder = replace(s3_folder, access=replace(s3_folder.access, place=replace(s3_folder.place, bucket=bucket.name)))
    tidemark = Command(tmp_path / "home", "127.0.0.1:1", "sc://127.0.0.1:1")
    (tmp_path / "bank.py").write_text(DECLARATION)
    tidemark.declare(tmp_path / "bank.py", topic="payments")
    there = {"TIDEMARK_WAREHOUSE": f"s3://{bucket.name}/house", **s3_server.variables}
    with mock.patch.dict(os.environ, tidemark.environment(**there)):
        line = DiskPipeline(tidemark.warehouse, tidemark.context.pipeline("bank"), "payments", bucket=folder)
        context, waves = DiskContext(line, load_settings()), Waves()
        for number in range(3):
            line.send([(n % 2, payment(f"a{n}", n), 1_700_000_000_000) for n in range(20)])
            s3_server.proxy.rule = waves if number == 2 else s3_server.proxy.rule
            made = checkpoints.run_once(context, "bank", PlanRequest(origin="test")).checkpoint
        s3_server.proxy.reset()
    assert made is not None and made.id == 3
    found = waves.of_the_product()
    assert len(found) <= 12, "\n".join(map(str, found))
    puts = [request for wave in found for request in wave if request.startswith("PUT")]
    order = ["/ids/", "/plans/", "0.outcome", "/runs/3.1/", "_delta_log", "1.outcome", "/timelines/"]
    assert len(puts) == len(order)
    assert all(part in put for part, put in zip(order, puts, strict=True)), puts
