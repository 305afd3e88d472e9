"""Rides of buses, by a function that a test can hold in every task. `$topic` and `$folder` are replaced by the test."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tidemark
from tidemark import Fold, KafkaSource, Pipeline, Process, state

FOLDER = Path("$folder")
PATIENCE = 120.0


@dataclass(frozen=True)
class Ride:
    """One record."""

    bus: str
    miles: int


class Bus(state.Keyed):
    """Per bus."""

    rides: int = state.value(0)
    farthest: int = state.value(0)


class Miles(state.Keyed):
    """Per bus as well."""

    rides: int = state.count()
    miles: int = state.sum("miles")


def ride(bus: str, rides: Iterator[Ride], remembered: Bus) -> None:
    """Says that its process has begun, and goes on when it may."""
    (FOLDER / f"began-{os.getpid()}").write_text(str(tidemark.__file__))
    until = time.monotonic() + PATIENCE
    while not (FOLDER / "go").exists() and time.monotonic() < until:
        time.sleep(0.05)
    for each in rides:
        remembered.rides += 1
        remembered.farthest = max(remembered.farthest, each.miles)


rides = Pipeline(
    name="rides",
    source=KafkaSource("$topic", Ride),
    operators=[
        Process("buses", key_by="bus", state=Bus, function=ride),
        Fold("miles", key_by="bus", state=Miles),
    ],
)
