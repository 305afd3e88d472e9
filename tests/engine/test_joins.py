"""Spark, its memory twin and DuckDB agree on folds that join broadcast states."""

import os
import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.join_cases import BUSES, NOON, Bus, Driver, Trip
from tests.support.spark import SparkPipeline, TwinPipeline
from tidemark import Broadcast, Fold, KafkaSource, state
from tidemark.errors import StateOverflowError


class Room(state.Keyed):
    """Texts over what is joined, and a history that a ttl cuts."""

    least: int | None = state.reduce("min(buses.seats - riders)")
    names: list[str] = state.distinct("drivers.name")
    recent: int | None = state.sum("buses.seats", ttl=timedelta(minutes=4))


JOINS = {"buses": "bus", "drivers": ("line", "bus")}
ROOMS = Fold("rooms", key_by=("buses.depot", "bus"), state=Room, input="records", join=JOINS)
DRIVERS = Broadcast("drivers", KafkaSource("drivers", Driver), key_by=("line", "bus"))
PIPELINE = replace(BUSES, operators=[*BUSES.operators, ROOMS], broadcast=[BUSES.broadcast[0], DRIVERS])


def _arrivals(chance: random.Random, rows: int) -> list[object]:
    """Records of one checkpoint: twenty trips per row that changes, deletes of both kinds, and some that are bad."""
    names, lines = ["a", "b", "ü", None], (1, 2)
    found: list[object] = []
    for _ in range(rows):
        bus = Bus(str(chance.choice(names)), chance.choice(["north", "south", None]), chance.randrange(50))
        found.append(("buses", chance.choice([bus, bus, None]), bus.bus))
        line, name = chance.choice(lines), chance.choice(names)
        found.append(("drivers", Driver(line, str(name), chance.choice(["Ada", "Bo", None])), f"{line}{name}"))
        for _ in range(20):
            at = NOON + timedelta(minutes=chance.randrange(-9, 9))
            trip = Trip(chance.choice(names), chance.choice(lines), chance.randrange(10), at)
            found.append(("records", trip, str(trip.line)))
        found += [("records", chance.choice([b"{", None]), str(chance.choice(lines))), ("buses", b"[]", "a")]
    chance.shuffle(found)
    return found


def test_spark_the_memory_twin_and_duckdb_agree(spark: SparkSession, tmp_path: Path) -> None:
    seed = int(os.environ.get("TIDEMARK_SEED", "0")) or random.randrange(2**32)
    print(f"TIDEMARK_SEED={seed}")
    chance = random.Random(seed)
    world, twin = TwinPipeline(PIPELINE), SparkPipeline(PIPELINE, spark=spark, root=tmp_path)
    # The first checkpoint has nothing to join: neither a state nor a run of it.
    trips = [("records", Trip("a", 1, 9, NOON), "1"), ("records", Trip(None, 2, 1, NOON), "2")]
    for records in (trips, _arrivals(chance, 4), _arrivals(chance, 2)):
        one, other = world.checkpoint(records), twin.checkpoint(records)
        assert [(a.uid, a.read, a.applied, a.dead_lettered, a.keys) for a in other.sealed.acks] == [
            (a.uid, a.read, a.applied, a.dead_lettered, a.keys) for a in one.sealed.acks
        ]
    for uid in ("crowded", "yards", "lines", "rooms"):
        assert twin.state(uid, other) == world.state(uid, one), uid
        assert twin.letters(uid, other) == world.letters(uid, one), uid
    # A dead letter keeps its bytes, although its record was good until the join.
    letter = next(x for x in twin.letters("rooms", other) if x["reason"] == "null_key")
    assert letter["key"] in (b"1", b"2")
    assert letter["value"].startswith(b'{"bus"')
    bounded = [replace(b, max_keys=1) for b in PIPELINE.broadcast]
    twin.pipeline = replace(PIPELINE, broadcast=bounded)
    rows = [("buses", Bus(name, "north", 1), name) for name in ("x", "y")]
    with pytest.raises(StateOverflowError, match="broadcast state buses has more than 1 keys"):
        twin.checkpoint([*rows, *trips])
