"""Publications: the checkpoint that each target has, and how far it is behind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tidemark.answers.run_outcomes import TaskFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationStatus:
    """A publication.

    Attributes:
        publication: its name.
        uid: the operator.
        kind: kind of the target.
        place: where the state goes.
        state: `new` = nothing was published yet; `begun` = a step is not done; `removed` = it is no longer declared,
            and still pins its checkpoint; `dropped` = it was ended.
        checkpoint: name of the checkpoint that the target has.
        version: the target's own name for its rows.
        behind: number of completed checkpoints of the live timeline that the target does not have yet; at most 1,000,
            and 0 if it was dropped.
        published_at: when the last step was done.
    """

    publication: str
    uid: str
    kind: str
    place: str
    state: Literal["new", "current", "behind", "begun", "removed", "dropped"]
    checkpoint: str | None
    version: str | None
    behind: int
    published_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationTask:
    """The task of a DAG that publishes, in its newest run.

    Attributes:
        dag_id: the DAG.
        is_paused: whether it is paused.
        run_id: its newest run; null if it has none.
        state: Airflow's state of the task in that run; null while it waits to be scheduled.
        failure: its newest failed try in that run; null if there is none, or if you may not read the task's logs.
    """

    dag_id: str
    is_paused: bool
    run_id: str | None
    state: str | None
    failure: TaskFailure | None


Verdict = Literal["UP_TO_DATE", "PUBLISHING", "BEHIND", "FAILING", "BLOCKED", "NOT_STARTED", "DROPPED"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationLag(PublicationStatus):
    """A publication, and how far its target is behind the live timeline.

    Attributes:
        verdict: `BLOCKED` needs a person; `FAILING` = the newest try failed; `PUBLISHING` = a step is under way;
            `NOT_STARTED` = declared, and nothing was published yet.
        why: the reason, in one line.
        newest: name of the newest checkpoint of the live timeline.
        as_of: logical time of the checkpoint that the target has.
        records: records that the missing checkpoints have read; null while the server still reads the history.
        late_ms: time since the first of those was completed; 0 if none is missing, null as for `records`.
        task: the task that publishes; null if Airflow knows none.
    """

    verdict: Verdict
    why: str
    newest: str | None
    as_of: str | None
    records: int | None
    late_ms: int | None
    task: PublicationTask | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFacts:
    """A step of a publication.

    Attributes:
        publication: its name.
        uid: the operator.
        place: where the state went.
        mode: `difference`, `rebuild` or `drop`.
        checkpoint: name of the checkpoint that the target has.
        timeline: its timeline.
        version: the target's own name for its rows.
        inserted: rows written for keys that are in the state.
        deleted: rows that were deleted or replaced.
        bytes: bytes written.
        published_at: when it was done.
    """

    publication: str
    uid: str
    place: str
    mode: str
    checkpoint: str
    timeline: str
    version: str
    inserted: int
    deleted: int
    bytes: int
    published_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationDetails:
    """A publication with its last steps.

    Attributes:
        status: the publication.
        steps: its last steps, newest first: `version` is the one to read as of `checkpoint`.
        views: statements that make a view of the target, by engine; none if it is no Delta table, or has no rows yet.
    """

    status: PublicationStatus
    steps: Sequence[PublishedFacts]
    views: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationCheck:
    """A comparison of a target with the state of its checkpoint.

    Attributes:
        publication: its name.
        checkpoint: name of the checkpoint that the target has.
        rows: keys in the state.
        missing: keys that only the state has.
        extra: keys that only the target has.
        different: keys with other values. Floating-point sums and means may differ in their last bits.
        equal: whether there are none of these.
    """

    publication: str
    checkpoint: str
    rows: int
    missing: int
    extra: int
    different: int
    equal: bool
