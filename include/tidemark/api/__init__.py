"""The Python API: what the command line does, as objects. `tidemark.open()` is where you start.

    Warehouse           every pipeline of a warehouse
    PipelineHistory     one of them: its checkpoints, and the verbs
    CompletedCheckpoint facts of a checkpoint
    StateTable          the state of an operator at a checkpoint
    SinkRows            the rows of a sink at a checkpoint
    PipelineSavepoints, PipelineTimelines, PipelineRetention   `.savepoints`, `.timelines`, `.retention` of a pipeline
    DryRun              a verb that has not been executed; `.commit()` executes it

The requests that verbs take are exported here too. Reading needs neither Spark, Airflow, Kafka nor the pipeline's file.
"""

from tidemark.api.checkpoints import CompletedCheckpoint
from tidemark.api.dry_run import DryRun
from tidemark.api.history import PipelineHistory
from tidemark.api.lookups import At
from tidemark.api.retention import PipelineRetention
from tidemark.api.savepoints import PipelineSavepoints, Savepoint
from tidemark.api.sinks import SinkRows
from tidemark.api.state import StateTable
from tidemark.api.timelines import PipelineTimelines, Timeline
from tidemark.api.warehouse import Warehouse, open
from tidemark.coordinator.recovery.backfill import BackfillRequest
from tidemark.coordinator.recovery.restore_request import RestoreRequest
from tidemark.operations.dead_letters.redriving import LetterFilter, RedriveRequest
from tidemark.ports import PlanRequest

__all__ = [
    "At",
    "BackfillRequest",
    "CompletedCheckpoint",
    "DryRun",
    "LetterFilter",
    "PipelineHistory",
    "PipelineRetention",
    "PipelineSavepoints",
    "PipelineTimelines",
    "PlanRequest",
    "RedriveRequest",
    "RestoreRequest",
    "Savepoint",
    "SinkRows",
    "StateTable",
    "Timeline",
    "Warehouse",
    "open",
]
