"""A FlatMap in Spark and in the twin: no key, no state, no exchange."""

import io
import os
import random
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.flat_maps import DAY, Verse, Word, WordOracle, lines, pipeline, split
from tests.support.spark import SparkPipeline, TwinPipeline
from tidemark import DeltaSink, FlatMap, Fold, state
from tidemark.engine.process.process_operator import mapped_rows
from tidemark.errors import IncompatibleStateError, ProcessFunctionError, UsageError
from tidemark.operations.reads import state_schema_of
from tidemark.processing.shapes import record_shape


def test_spark_gives_the_rows_of_the_twin_and_of_plain_lists(spark: SparkSession, tmp_path: Path) -> None:
    seed = int(os.environ.get("TIDEMARK_SEED", "0")) or random.randrange(2**32)
    print(f"TIDEMARK_SEED={seed}")
    chance, oracle = random.Random(seed), WordOracle(partitions=2)
    declared = pipeline(on_error="dead_letter")
    twin, world = TwinPipeline(declared), SparkPipeline(declared, spark=spark, root=tmp_path)
    for count in (9, 0, 7):
        records = lines(chance, count, cries=True)
        oracle.checkpoint(records)
        one, other = twin.checkpoint(records), world.checkpoint(records)
        acks = [[(a.uid, a.read, a.applied, a.dead_lettered, a.emitted) for a in x.sealed.acks] for x in (one, other)]
        assert acks[0] == acks[1]
    assert world.emitted("words", other) == twin.emitted("words", one)
    assert world.letters("words", other) == twin.letters("words", one)
    for uid, wanted in (("seen", oracle.seen()), ("numbers", oracle.numbers())):
        assert world.state(uid, other) == twin.state(uid, one) == wanted
    ack = other.ack("words")
    assert ack is not None and not ack.handle and not (tmp_path / other.plan.tables["words"]).exists()


def test_records_are_not_moved_before_the_function(spark: SparkSession) -> None:
    columns = "topic STRING, partition INT, offset BIGINT, _path ARRAY<BIGINT>, event_time TIMESTAMP, _reason STRING"
    raw = spark.createDataFrame([], f"{columns}, record STRUCT<text: STRING, at: TIMESTAMP>")
    (words,) = (o for o in pipeline().operators if isinstance(o, FlatMap))
    printed = io.StringIO()
    with redirect_stdout(printed):
        mapped_rows(words, record_shape(Verse), raw).explain()
    plan = printed.getvalue()
    assert "MapInArrow" in plan
    assert "Exchange" not in plan and "Sort" not in plan


def cries(line: Verse) -> Any:
    """Yields a word, then raises."""
    yield Word("ant", 0, "")
    raise ValueError(line.text)


def wrong(line: Verse) -> Any:
    """Yields its input."""
    yield line


def silent(line: Verse) -> None:
    """Yields nothing."""


@pytest.mark.parametrize(
    ("function", "words"),
    [(cries, "ValueError: !"), (wrong, "yielded Verse(text='!'")],
)
def test_a_function_that_fails_fails_the_checkpoint_by_position(
    function: Any, words: str, spark: SparkSession, tmp_path: Path
) -> None:
    declared = replace(pipeline(), operators=[FlatMap("words", function=function, emits=Word)])
    said = []
    for world in (TwinPipeline(declared, partitions=1), SparkPipeline(declared, 1, spark=spark, root=tmp_path)):
        with pytest.raises(ProcessFunctionError, match=r"flat map function failed: words: ") as failed:
            world.checkpoint([Verse("!", DAY)])
        assert words in failed.value.what and "topic lines, partition 0, offset 0" in failed.value.what
        assert (failed.value.key, failed.value.place[:3]) == ("", ("lines", 0, 0))
        said.append(failed.value.what)
    assert said[0] == said[1]


def test_a_failed_record_emits_nothing_and_its_letter_has_the_raw_bytes() -> None:
    declared = replace(
        pipeline(),
        operators=[FlatMap("words", function=cries, emits=Word, on_error="dead_letter", sink=DeltaSink("w"))],
    )
    world = TwinPipeline(declared, partitions=1)
    made = world.checkpoint([Verse("!", DAY)])
    assert world.emitted("words", made) == []
    (letter,) = world.letters("words", made)
    assert (letter["offset"], letter["reason"]) == (0, "process_failed: ValueError")
    assert b'"text": "!"' in letter["value"]


def test_a_function_may_yield_nothing() -> None:
    world = TwinPipeline(replace(pipeline(), operators=[FlatMap("words", function=silent, emits=Word)]))
    ack = world.checkpoint([Verse("ant", DAY)]).ack("words")
    assert ack is not None
    assert (ack.read, ack.applied, ack.emitted) == (1, 1, 0)


def test_state_of_a_flat_map_cannot_be_read_and_the_error_names_operators_that_have_some() -> None:
    made = TwinPipeline(pipeline()).checkpoint([Verse("ant", DAY)])
    with pytest.raises(UsageError, match="words keeps no state") as refused:
        state_schema_of(made, "words")
    assert "seen, numbered, numbers" in refused.value.next
    assert made.plan.queries["words"] == {}


def test_a_flat_map_may_replace_and_be_replaced_where_there_is_no_state() -> None:
    """A fold with state cannot become a FlatMap under its uid; a FlatMap, which has none, may become a fold."""

    class Count(state.Keyed):
        n: int = state.count()

    fold, flat_map = Fold("words", key_by="text", state=Count), FlatMap("words", function=split, emits=Word)
    world = TwinPipeline(replace(pipeline(), operators=[fold]))
    world.checkpoint([Verse("ant", DAY)])
    world.pipeline = replace(pipeline(), operators=[flat_map])
    with pytest.raises(IncompatibleStateError, match=r"words.kind: fold became flat_map"):
        world.checkpoint([Verse("ant", DAY)])
    world = TwinPipeline(replace(pipeline(), operators=[flat_map]))
    world.checkpoint([Verse("ant", DAY)])
    world.pipeline = replace(pipeline(), operators=[fold])
    made = world.checkpoint([Verse("bee", DAY)])
    assert [(r["text"], r["n"]) for r in world.state("words", made)] == [("bee", 1)]


def test_a_renamed_flat_map_keeps_its_sink_and_its_dead_letters() -> None:
    world = TwinPipeline(pipeline(on_error="dead_letter"), partitions=1)
    world.checkpoint([Verse("ant", DAY), Verse("!", DAY)])
    words, *others = world.pipeline.operators
    assert isinstance(words, FlatMap)
    renamed = [replace(o, input="terms") if o.input == "words" else o for o in others]
    world.pipeline = replace(world.pipeline, operators=[replace(words, uid="terms", was="words"), *renamed])
    made = world.checkpoint([Verse("bee", DAY)])
    assert [r["word"] for r in world.emitted("terms", made)] == ["ant", "bee"]
    assert [r["offset"] for r in world.letters("terms", made)] == [1]
