"""The JSON of the event that the product sends."""

import json
from typing import Any

from openlineage.client.serde import Serde

from tidemark.ports.observing import LineageEvent
from tidemark.telemetry.openlineage_columns import Naming
from tidemark.telemetry.openlineage_events import run_event

NAMING = Naming(jobs="tidemark", broker="broker:9092", warehouse="/w")


def sent(told: LineageEvent, naming: Naming = NAMING) -> dict[str, Any]:
    """Returns what a transport of OpenLineage serializes."""
    event: dict[str, Any] = json.loads(Serde.to_json(run_event(told, naming)))
    return event
