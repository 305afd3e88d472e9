"""A market, a bucket, and another market: what tests of exports in a bucket begin with."""

from pathlib import Path

import pytest

from tests.copies.export_places import BucketPlace
from tests.copies.transfer_pipeline import SEED, TransferPipeline, transfer_pipeline
from tests.support.cli import Command
from tests.support.s3 import Bucket

NOWHERE = ("127.0.0.1:1", "sc://127.0.0.1:1")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TransferPipeline:
    """A market with three checkpoints that nobody changes."""
    print(f"seed {SEED}; repeat with TIDEMARK_TEST_SEED={SEED}")
    return transfer_pipeline(tmp_path_factory.mktemp("made")).grown(3, compacted=2)


@pytest.fixture
def place(bucket: Bucket) -> BucketPlace:
    """A folder of a bucket, without an export."""
    return BucketPlace(bucket)


@pytest.fixture
def other(made: TransferPipeline, tmp_path: Path) -> TransferPipeline:
    """A pipeline of another name in another warehouse, without a checkpoint."""
    return made.beside(Command(tmp_path / "other", *NOWHERE), "bazaar")
