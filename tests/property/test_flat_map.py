"""FlatMap, then Process, then Fold in the twin, against plain lists."""

import random

from hypothesis import given, note, settings
from hypothesis import strategies as st

from tests.support.flat_maps import WordOracle, lines, pipeline
from tests.support.spark import TwinPipeline


@settings(max_examples=100, deadline=None, print_blob=True)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 6), min_size=1, max_size=4), st.integers(1, 3), st.booleans())
def test_words_are_folded_and_processed_in_order_of_their_lines(
    seed: int, batches: list[int], partitions: int, cries: bool
) -> None:
    note(f"seed {seed}")
    chance = random.Random(seed)
    world = TwinPipeline(pipeline(on_error="dead_letter"), partitions=partitions)
    oracle = WordOracle(partitions)
    for count in batches:
        records = lines(chance, count, cries=cries)
        oracle.checkpoint(records)
        made = world.checkpoint(records)
        ack = made.ack("words")
        assert ack is not None and not ack.handle
        assert (ack.read, ack.emitted, ack.keys) == (count, len(oracle.words[-1]), 0)
    assert world.state("seen", made) == oracle.seen()
    assert world.state("numbers", made) == oracle.numbers()
    held = sorted(w for batch in oracle.words for w in batch)
    rows = world.emitted("words", made)
    assert sorted((r["word"], r["place"], r["of"]) for r in rows) == sorted((w[4], w[3], w[5]) for w in held)
    assert sorted((r["partition"], r["offset"]) for r in world.letters("words", made)) == sorted(oracle.failed)
