"""Several outputs of an operator: declaration, Spark beside the twin, topics, manifests and lineage."""

import os
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support.openlineage_sent import sent
from tests.support.several_outputs import (
    DAY,
    EMITS,
    Alarm,
    Beat,
    Belated,
    OutputsOracle,
    beats,
    pipeline,
    watch,
    watcher,
)
from tests.support.spark import SparkPipeline, TwinPipeline
from tidemark import DeltaSink, FlatMap, Fold, KafkaSink, Process, state
from tidemark.answers.checkpoint_facts import changed_assets, checkpoint_facts
from tidemark.coordinator.checkpoints.loop import list_undelivered
from tidemark.errors import DeclarationError
from tidemark.model.checkpoint import codec
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.ports.observing import LineageEvent


def test_spark_gives_the_rows_of_the_twin_and_of_plain_lists(spark: SparkSession, tmp_path: Path) -> None:
    seed = int(os.environ.get("TIDEMARK_SEED", "0")) or random.randrange(2**32)
    print(f"TIDEMARK_SEED={seed}")
    chance, oracle = random.Random(seed), OutputsOracle(partitions=2)
    twin, world = TwinPipeline(pipeline()), SparkPipeline(pipeline(), spark=spark, root=tmp_path)
    for count in (8, 5):
        records = beats(chance, count)
        oracle.checkpoint(records)
        one, other = twin.checkpoint(records), world.checkpoint(records)
        assert checkpoint_facts(one).emitted == checkpoint_facts(other).emitted
    for uid in ("watch", "watch.late", "part.late"):
        assert world.emitted(uid, other) == twin.emitted(uid, one) != []
    for late in (True, False):
        for uid in ("late_sizes", "parted_late_sizes") if late else ("alarm_sizes", "parted_alarm_sizes"):
            assert world.state(uid, other) == twin.state(uid, one) == oracle.sizes(late=late)


@dataclass(frozen=True)
class Loud(Alarm):
    """A class derived from that of the first output."""


class Seen(state.Keyed):
    """Counts."""

    n: int = state.count()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "two outputs of one class": ({"emits": {"a": Alarm, "b": Alarm}, "sinks": {}}, "two outputs of the class Alarm"),
    "a sink of no output": ({"sinks": {"later": DeltaSink("x")}}, "sinks={'later': ...}: no such output"),
    "sink= beside several outputs": ({"sink": DeltaSink("x")}, "sink= is given, but emits= names outputs"),
    "sinks= beside one output": ({"emits": Alarm}, "sinks= names outputs, but emits= does not"),
    "no output": ({"emits": {}, "sinks": {}}, "emits= names no output"),
    "no dataclass": ({"emits": {"a": int}, "sinks": {}}, "int"),
    "a name with a dot": ({"emits": {"a.b": Alarm}, "sinks": {}}, "field name refused: 'a.b'"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("declare", [Process, FlatMap])
def test_outputs_that_do_not_fit_are_refused_where_they_are_declared(case: str, declare: Any) -> None:
    options, words = WRONG[case]
    declared = {"emits": EMITS, "sinks": {"late": DeltaSink("late")}, "function": watch, **options}
    if declare is Process:
        declared |= {"key_by": "who", "state": watcher().state}
    with pytest.raises(Exception, match=".") as refused:
        declare("watch", **declared)
    assert words in str(refused.value)
    assert "Next: " in str(refused.value)


def test_an_unknown_output_lists_those_there_are() -> None:
    behind = Fold("behind", input="watch.alarms", key_by="who", state=Seen)
    with pytest.raises(DeclarationError, match=r"unknown input 'watch.alarms'") as refused:
        replace(pipeline(), operators=[watcher(), behind])
    assert "records, watch, watch.late" in refused.value.next


def test_an_output_and_an_operator_cannot_share_a_uid() -> None:
    with pytest.raises(DeclarationError, match=r"share the uid watch.late"):
        replace(pipeline(), operators=[watcher(), Fold("watch.late", key_by="who", state=Seen)])


def test_a_row_of_a_derived_class_belongs_to_the_output_of_its_own_class() -> None:
    def both(beat: Beat) -> Any:
        yield Loud(beat.who, 1)
        yield Alarm(beat.who, 2)

    emits = {"alarms": Alarm, "loud": Loud}
    sinks = {"alarms": DeltaSink("alarms"), "loud": DeltaSink("loud")}
    world = TwinPipeline(replace(pipeline(), operators=[FlatMap("part", function=both, emits=emits, sinks=sinks)]))
    made = world.checkpoint([Beat("a", [], DAY)])
    assert [(r["size"], r["_path"]) for r in world.emitted("part", made)] == [(2, [0])]
    assert [(r["size"], r["_path"]) for r in world.emitted("part.loud", made)] == [(1, [0])]


BEATS = [Beat("a", [1, 7, 2], DAY), Beat("b", [9], DAY)]


def test_a_manifest_names_outputs_only_if_there_are_several() -> None:
    single = watcher(emits={"alarms": Alarm, "late": Belated}, sinks={})
    one = TwinPipeline(replace(pipeline(), operators=[single])).checkpoint(BEATS)
    (ack,) = one.sealed.acks
    assert codec.to_json(ack)["outputs"] == {"watch.late": {"emitted": 2, "sink": codec.to_json(ack.sink)}}
    assert codec.from_json(Checkpoint, codec.to_json(one), "manifest").outputs == one.outputs
    only = Process("watch", key_by="who", state=single.state, function=nothing, emits=Alarm)
    (ack,) = TwinPipeline(replace(pipeline(), operators=[only])).checkpoint(BEATS).sealed.acks
    assert "outputs" not in codec.to_json(ack)


def nothing(who: str, beats: Any, heard: Any) -> None:
    """Yields nothing."""


def test_each_output_is_sent_to_its_topic_and_waits_in_its_own_outbox() -> None:
    sinks = {
        "alarms": KafkaSink("alarms", "alarms", key_by="who"),
        "late": KafkaSink("late", "late", key_by="who", guarantee="at_least_once"),
    }
    world = TwinPipeline(replace(pipeline(), operators=[watcher(sinks=sinks)]), partitions=1)
    world.checkpoint(BEATS)
    late = world.sender.arrived["late"]
    assert [(m.id.split("/")[-2:], m.key) for m in late] == [
        (["watch.late", "beats-0-0-0"], b"a"),
        (["watch.late", "beats-0-0-1"], b"a"),
    ]
    assert "alarms" not in world.sender.arrived
    (due,) = list_undelivered(world.coordinator)
    assert (due.uid, due.table.name, due.records) == ("watch", "alarms", 2)


def test_lineage_and_assets_name_the_table_of_every_output() -> None:
    sinks = {"alarms": DeltaSink("alarms"), "late": KafkaSink("late", "late", key_by="who")}
    made = TwinPipeline(replace(pipeline(), operators=[watcher(sinks=sinks)])).checkpoint(BEATS)
    event = sent(LineageEvent.of(made, 1))
    outputs: Any = event["outputs"]
    told = [
        (o["facets"]["tidemark_table"]["uid"], o["outputFacets"]["outputStatistics"]["rowCount"])
        for o in outputs
        if o.get("outputFacets")
    ]
    assert told == [("watch", 2), ("watch", 2), ("watch.late", 2)]
    assert [(o["name"], [*o["facets"]]) for o in outputs if not o.get("outputFacets")] == [
        ("late", ["columnLineage", "schema"])
    ]
    run: Any = event["run"]
    assert run["facets"]["tidemark_result"]["emitted"] == {"watch": 2, "watch.late": 2}
    assert list(changed_assets(made)) == ["beats/state/watch", "beats/sinks/alarms", "beats/sinks/late"]
    assert checkpoint_facts(made).emitted == {"watch": 2, "watch.late": 2}


def test_both_outputs_are_redriven_and_a_letter_becomes_rows_of_both() -> None:
    """Redriving is asked for by operator; its sinks are those of all outputs behind it."""
    from tidemark.declare.arrival import arrival_reasons, sinks_behind

    assert sinks_behind(pipeline(), "watch") == ["watch", "watch.late"]
    assert sinks_behind(pipeline(), "part") == ["part.late"]
    assert arrival_reasons(pipeline(), "part") == [
        "sizes is a state.list of parted_alarm_sizes, which reads it",
        "sizes is a state.list of parted_late_sizes, which reads it",
    ]


def test_a_renamed_operator_keeps_the_rows_of_every_sink() -> None:
    world = TwinPipeline(replace(pipeline(), operators=[watcher()]), partitions=1)
    world.checkpoint(BEATS)
    world.pipeline = replace(world.pipeline, operators=[replace(watcher(), uid="guard", was="watch")])
    made = world.checkpoint(BEATS)
    assert [r["_uid"] for r in world.emitted("guard", made)] == ["watch"] * 2 + ["guard"] * 2
    assert [r["_uid"] for r in world.emitted("guard.late", made)] == ["watch.late"] * 2 + ["guard.late"] * 2


def test_a_plan_names_inputs_and_leads_from_an_output_to_its_source() -> None:
    plan = TwinPipeline(pipeline()).checkpoint(BEATS).plan
    assert plan.inputs["late_sizes"] == "watch.late"
    assert [plan.source_of(uid) for uid in ("watch", "watch.late", "late_sizes", "part.late")] == ["records"] * 4
    without = replace(pipeline(), operators=[Fold("seen", key_by="who", state=Seen)])
    assert "inputs" not in codec.to_json(TwinPipeline(without).checkpoint(BEATS).plan)
