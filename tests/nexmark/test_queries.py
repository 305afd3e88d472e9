"""The queries of Nexmark in the twin: equal to DuckDB's answers at every checkpoint, over a crash as well."""

import os
import random

import pytest

from benchmarks.nexmark.oracle import answers
from benchmarks.nexmark.queries import QUERIES, SIDE
from tests.support.nexmark import STATE_ONLY, agrees, batches, records, rows
from tidemark.testing import CRASH, Barrier, Harness, Record

SEED = int(os.environ.get("TIDEMARK_TEST_SEED", random.randrange(2**32)))


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_answers_as_duckdb_at_every_checkpoint(name: str) -> None:
    print(f"TIDEMARK_TEST_SEED={SEED}")
    harness, read, most = Harness(QUERIES[name], partitions=2), [], 0
    if QUERIES[name].broadcast:
        harness.send(*(Record(value=row) for row in SIDE))
    for number, batch in enumerate(batches(2000, SEED, 4)):
        read += batch
        harness.send(*records(name, batch))
        checkpoint = harness.checkpoint(Barrier(), [CRASH] if number == 2 else [])
        found = harness.results.emitted(name, checkpoint)
        if name in STATE_ONLY:
            found = [*harness.results.rows(name, checkpoint).values()]
        agrees(name, rows(name, found), answers(read)[name])
        most = max(most, len(found))
    assert most, "there was something to compare"
