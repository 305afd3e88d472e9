"""Eight million keys through a Spark server with a driver heap of 2 GB: what is large is never on the heap at once."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from benchmarks import generator
from devstack import control
from tests.support.kafka import Topics
from tidemark.context import open_context
from tidemark.operations import checkpoints, reads
from tidemark.ports import PlanRequest
from tidemark.settings import Settings, load_settings

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]
KEYS, UPDATES, SEED = 8_000_000, 20_000, 7


@pytest.fixture
def settings(broker: str, tmp_path: Path) -> Iterator[Settings]:
    """Those of a Spark server as users have it: the one that tests share has no compiler for what runs so long."""
    made = load_settings(home=str(tmp_path), pipelines=str(BENCHMARKS), kafka_bootstrap=broker)
    control.up(made, only=("spark",), warm=False)
    try:
        yield made
    finally:
        control.down(made)


@pytest.mark.timeout(900)
def test_a_checkpoint_of_eight_million_keys_fits_a_heap_of_two_gigabytes(
    topics: Topics, broker: str, settings: Settings
) -> None:
    print(f"seed {SEED}")
    assert settings.spark_driver_memory == "2g", "the server was started with the default heap"
    context, name = open_context(settings), f"bench-{KEYS}"
    topics.make(name, partitions=4)
    batches = (generator.first(KEYS), generator.uniform(KEYS, UPDATES, SEED))
    for batch, records in zip(batches, (KEYS, UPDATES), strict=True):
        generator.produce(broker, name, batch)
        made = checkpoints.run_once(context, name, PlanRequest(origin="test")).checkpoint
        assert made is not None
        assert made.sealed.facts.records == records
    state = reads.read_state(context, name, "totals")
    counts, sums = generator.expected(iter(batches), KEYS)
    assert state.num_rows == KEYS
    assert pc.sum(state["updates"]).as_py() == counts.sum() == KEYS + UPDATES
    assert pc.sum(state["amount"]).as_py() == sums.sum()
    touched = np.unique(batches[1].keys)[:200].tolist()
    for number in touched[::20]:
        (row,) = reads.read_state(context, name, "totals", key=[generator.key_text(number)]).to_pylist()
        assert (row["updates"], row["amount"], row["_changed"]) == (counts[number], sums[number], 2)
