"""What a user may start for a pipeline, and how the DAG runs that they start have ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFacts:
    """A DAG that carries out an action: whether it is paused, and what the user may do about that."""

    dag_id: str
    is_paused: bool
    may_unpause: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineActions:
    """The actions that a user may start, by name, each with its DAG.

    `may_dispose` says whether they may dispose of savepoints, abort a checkpoint and withdraw a redrive, which needs no
    DAG run.
    """

    pipeline: str
    may_dispose: bool
    dags: Mapping[str, ActionFacts]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailure:
    """A failed try of a task.

    `error` is the class of the error, such as `TargetChangedError`; null for a try of an earlier release. All four
    texts are null if the task could not store them, as when killed.
    """

    task: str
    map_index: int
    try_number: int
    is_final: bool
    error: str | None
    what: str | None
    safe: str | None
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptPipeline:
    """What a retention run released and freed."""

    pipeline: str
    released: Sequence[str]
    disposed: Sequence[str]
    deleted_files: int
    deleted_bytes: int
    waiting_files: int
    waiting_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveOutcome:
    """The dead letters of a redrive, as its DAG run counted them.

    Attributes:
        letters: how many there are.
        applied: how many the current code would apply; null if an earlier try of the run had asked for the redrive.
        refused: how many it would reject again, by reason.
        request: number of the request; null for a dry run.
    """

    letters: int
    applied: int | None
    refused: Mapping[str, int]
    request: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateEffect:
    """The effect of a transform or a patch on the state of one operator: counts by name, such as `inserted`."""

    uid: str
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFork:
    """The fork that a transform or a patch has made; after a dry run, the one that it would make.

    Attributes:
        pipeline: its pipeline.
        source: the checkpoint whose states were read.
        timeline: the fork.
        savepoint: the savepoint that pins the fork's first checkpoint.
        checkpoint: that checkpoint; null after a dry run.
        states: the effect on each operator whose state is written.
    """

    pipeline: str
    source: str
    timeline: str
    savepoint: str
    checkpoint: str | None
    states: Sequence[StateEffect]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """How far a DAG run is, or how it ended.

    Attributes:
        kind: the action of the DAG, such as `restore`; null for any other DAG.
        state: Airflow's state of the run.
        completed: checkpoints that the run has published, also those that an earlier run had planned.
        covered_by: the checkpoint that had covered the interval of the run already, so that it made none.
        skipped: tasks that were skipped: the last task of a dry run.
        failures: failed tries, the newest first.
        swept: what retention did, per pipeline.
        redrive: the dead letters of a redrive, or of its dry run; null before its task `plan` has counted them.
        written: of a transform or a patch, as soon as its dry run has ended.
    """

    kind: str | None
    state: str
    completed: Sequence[str]
    covered_by: str | None
    skipped: Sequence[str]
    failures: Sequence[TaskFailure]
    swept: Sequence[SweptPipeline]
    redrive: RedriveOutcome | None
    written: WrittenFork | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOwner:
    """The DAG of a run; null if Airflow knows no such run, several DAGs have one, or the user may not see it."""

    dag_id: str | None
    state: str | None
    may_fail: bool
