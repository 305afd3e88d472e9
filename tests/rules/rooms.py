"""The layers of the package. A module may import from its own room and from the rooms below it."""

from functools import cache

STANDS_ON: dict[str, str] = {
    "redaction": "",
    "model": "",
    "coordinator": "",
    "errors": "redaction",
    "extras": "errors",
    # Values: these rooms import only the standard library.
    "model.core": "errors",
    "model.portable_sql": "model.core",
    "model.schema": "model.portable_sql",
    "model.columns": "model.schema",
    "sql": "model.schema",
    "model.checkpoint": "model.columns",
    "model.state": "model.checkpoint sql",
    "model.retention": "model.checkpoint",
    "formats": "model.checkpoint",
    "sinks": "model.checkpoint",
    "declare": "formats sinks",
    # The reports that pages, REST, the command line and asset events show.
    "answers": "model.retention",
    "ports": "declare model.retention",
    "processing": "declare model.retention",
    # The protocol, independent of Spark, Kafka and Delta.
    "coordinator.records": "ports sql",
    "coordinator.plans": "coordinator.records model.state",
    "coordinator.checkpoints": "coordinator.plans",
    "coordinator.recovery": "coordinator.checkpoints",
    "coordinator.retention": "coordinator.recovery",
    "coordinator.publications": "coordinator.checkpoints",
    # Adapters to the outside world, independent of the coordinator; most are independent of each other.
    "engine": "ports processing model.state",
    "kafka": "ports",
    "storage": "ports",
    "tables": "storage processing",
    "readers": "tables model.state",
    "transfer": "readers",
    "publications": "readers kafka",
    "testing.twin": "readers extras",
    "testing": "testing.twin coordinator.recovery",
    # The composition of protocol and adapters, and the operations on it.
    "deadlines": "model.core",
    "embedded_services": "",
    "settings": "model.checkpoint deadlines embedded_services",
    "telemetry": "kafka settings",
    "environment": "settings storage telemetry extras",
    "context": "coordinator.checkpoints engine kafka readers environment",
    "glance": "context",
    "operations": "answers glance coordinator.retention coordinator.publications transfer publications",
    "reading": "operations",
    "api": "operations extras",
    "web": "operations",
    # Entry points.
    "jobs": "operations",
    "airflow.task_names": "",
    "airflow.run_times": "operations",
    "airflow": "airflow.task_names airflow.run_times reading jobs web",
    "airflow.ui": "airflow.task_names airflow.run_times web",
    "cli": "web extras",
    "devstack": "cli",
    # Loaders for a checkout.
    "plugins": "airflow.ui",
    "spark_jobs": "jobs",
    # Pipelines and DAGs of authors, which import public names only; see `imports`.
    "pipelines": "",
    "dags": "",
}
"""Each room and the rooms directly below it. Add a line for every new folder or module of `tidemark`."""

ONE_ROOM = {"state": "declare", "targets": "declare", "model.kinds": "model.schema"}
"""Modules and folders that count as part of another room. `tidemark.state` and `tidemark.targets`
are public names for parts of `declare`.
`model.kinds` and `model.schema` import each other: a stored field calls its kind, and a kind reads stored fields."""
DIVIDED = ("airflow", "coordinator", "model", "testing")
"""Packages whose subfolders are rooms of their own."""


def room_of(module: str) -> str:
    """The room of a dotted name: `tidemark.engine.fold.fold` is in `engine`; `tidemark.errors` is a room itself."""
    parts = module.split(".")
    if parts[0] != "tidemark" or len(parts) == 1:
        return parts[0]
    inner = ".".join(parts[1:3])
    name = inner if parts[1] in DIVIDED and (inner in STANDS_ON or inner in ONE_ROOM) else parts[1]
    return ONE_ROOM.get(name, name)


@cache
def rooms_below(room: str) -> frozenset[str]:
    """All rooms below a room, directly or through other rooms.

    Raises:
        KeyError: the table does not list the room.
    """
    right_below = STANDS_ON[room].split()
    return frozenset(right_below).union(*(rooms_below(other) for other in right_below))
