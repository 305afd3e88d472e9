"""The picture of the house: which room stands on which. A module imports from its own room and from rooms below it."""

from functools import cache

STANDS_ON: dict[str, str] = {
    "redaction": "",
    "model": "",
    "coordinator": "",
    "errors": "redaction",
    # Values: the standard library and nothing else.
    "model.core": "errors",
    "model.portable_sql": "model.core",
    "model.schema": "model.portable_sql",
    "sql": "model.schema",
    "model.checkpoint": "model.schema",
    "model.state": "model.checkpoint sql",
    "model.retention": "model.checkpoint",
    "formats": "model.checkpoint",
    "sinks": "model.checkpoint",
    "declare": "formats sinks",
    # What Tidemark reports: to pages and REST, on the command line, in asset events.
    "answers": "model.retention",
    "ports": "declare model.retention",
    "processing": "declare",
    # The protocol: it knows neither Spark nor Kafka nor Delta.
    "coordinator.records": "ports sql",
    "coordinator.plans": "coordinator.records model.state",
    "coordinator.checkpoints": "coordinator.plans",
    "coordinator.recovery": "coordinator.checkpoints",
    "coordinator.retention": "coordinator.recovery",
    # The outside world, each part blind to the others and to the coordinator.
    "engine": "ports processing model.state",
    "kafka": "ports",
    "storage": "ports",
    "tables": "storage processing",
    "readers": "tables model.state",
    "transfer": "readers",
    "testing.twin": "readers",
    "testing": "testing.twin coordinator.checkpoints",
    # Where both meet.
    "settings": "model.checkpoint",
    "telemetry": "kafka settings",
    "environment": "settings storage telemetry",
    "context": "coordinator.checkpoints engine kafka tables environment",
    "operations": "answers context coordinator.retention transfer",
    "reading": "operations",
    "api": "operations",
    "web": "operations",
    # What starts it, each blind to the others.
    "airflow": "reading",
    "cli": "web",
    "devstack": "cli",
    "plugins": "web",
    "spark_jobs": "operations",
    # What authors write: public names only, see `imports`.
    "pipelines": "",
    "dags": "",
}
"""Every room, and the rooms right below it. A new folder or module of `tidemark` gets a line."""

ONE_ROOM = {"state": "declare", "model.kinds": "model.schema"}
"""What belongs to a room elsewhere. `state` is where authors look for it. A field of a schema asks its kind, and a kind
reads the schema's fields."""
DIVIDED = ("coordinator", "model", "testing")
"""Packages whose folders are rooms."""


def room_of(module: str) -> str:
    """The room of a dotted name: `tidemark.engine.fold.fold` is in `engine`, `tidemark.errors` is one."""
    parts = module.split(".")
    if parts[0] != "tidemark" or len(parts) == 1:
        return parts[0]
    inner = ".".join(parts[1:3])
    name = inner if parts[1] in DIVIDED and (inner in STANDS_ON or inner in ONE_ROOM) else parts[1]
    return ONE_ROOM.get(name, name)


@cache
def rooms_below(room: str) -> frozenset[str]:
    """All rooms that a room stands on, through others as well.

    Raises:
        KeyError: a room that the table does not have.
    """
    right_below = STANDS_ON[room].split()
    return frozenset(right_below).union(*(rooms_below(other) for other in right_below))
