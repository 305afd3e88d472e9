"""How DAG runs ended: what failed and why, what retention freed, and which DAG a run belongs to."""

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.dagrun import DagRun
from airflow.models.task_state_store import TaskStateStoreModel
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancehistory import TaskInstanceHistory
from airflow.models.xcom import XComModel
from sqlalchemy import select
from sqlalchemy.orm import Session

from tidemark.airflow.task_names import COMPLETE, PLAN, TASK_ERROR
from tidemark.airflow.ui.access import may_on
from tidemark.airflow.ui.action_dags import known_dag
from tidemark.answers.run_outcomes import (
    RedriveOutcome,
    RunOutcome,
    RunOwner,
    StateEffect,
    SweptPipeline,
    TaskFailure,
    WrittenFork,
)

RESULT = "return_value"
"""Airflow's key of what a task returns."""
FAILED = ("failed", "up_for_retry")
WRITERS = ("patch", "transform")
"""The kinds of DAGs that write the states of a fork."""
Errors = Mapping[tuple[str, int], Mapping[str, Any]]
"""What failed tries have stored, by task and map index."""
MOST = 50
"""Failed tries in one answer."""


def describe_run(dag_id: str, run_id: str, session: Session) -> RunOutcome | None:
    """How far a run is, or how it ended; None if Airflow knows no such run."""
    run = session.scalar(select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id))
    if run is None:
        return None
    known = known_dag(dag_id, session)
    kind = None if known is None else known.kind
    skipped = select(TaskInstance.task_id).where(
        TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id, TaskInstance.state == "skipped"
    )
    covered = [str(x["covered_by"]) for x in _results(dag_id, run_id, PLAN, session) if x.get("covered_by")]
    return RunOutcome(
        kind=kind,
        state=str(run.state),
        completed=_completed(dag_id, run_id, session) if kind == "checkpoint" else [],
        covered_by=covered[0] if covered else None,
        skipped=sorted(set(session.scalars(skipped))),
        failures=list_failures(dag_id, run_id, session),
        swept=[_swept(facts) for facts in _results(dag_id, run_id, "sweep", session)] if kind == "retention" else [],
        redrive=_redrive(dag_id, run_id, session) if kind == "redrive" else None,
        written=_written(dag_id, run_id, kind, session) if kind in WRITERS else None,
    )


def find_owner(run_id: str, dag_id: str, user: GetUserDep, session: Session) -> RunOwner:
    """The DAG of a run: `dag_id` if it has one of this name, else the only one that has.

    Args:
        run_id: the origin of a checkpoint.
        dag_id: the DAG that made it, as far as is known; may be empty.
        user: sees no DAG that they may not read.
        session: of Airflow's database.
    """
    runs = session.scalars(select(DagRun).where(DagRun.run_id == run_id).limit(MOST)).all()
    found = [run for run in runs if may_on("GET", run.dag_id, user, session)]
    same = [run for run in found if run.dag_id == dag_id] or found
    if len(same) != 1:
        return RunOwner(dag_id=None, state=None, may_fail=False)
    owner = same[0].dag_id
    return RunOwner(dag_id=owner, state=str(same[0].state), may_fail=may_on("PUT", owner, user, session))


def list_failures(dag_id: str, run_id: str, session: Session) -> list[TaskFailure]:
    """Failed tries of a run, the newest first. A try has stored its error unless it was killed."""
    stored = _errors(dag_id, run_id, session)
    # Airflow archives a try as soon as it waits for the next one, so it may be in both tables.
    found = {_key(one): (one, False) for one in _failed(TaskInstanceHistory, dag_id, run_id, session)}
    found |= {_key(one): (one, one.state == "failed") for one in _failed(TaskInstance, dag_id, run_id, session)}
    tries = sorted(found.values(), key=lambda x: (x[1], _ended(x[0]), x[0].try_number), reverse=True)
    return [_failure(one, stored, is_final=is_final) for one, is_final in tries[:MOST]]


def _failed(model: Any, dag_id: str, run_id: str, session: Session) -> list[Any]:  # noqa: ANN401
    wanted = select(model).where(model.dag_id == dag_id, model.run_id == run_id, model.state.in_(FAILED))
    return list(session.scalars(wanted))


def _key(one: Any) -> tuple[str, int, int]:  # noqa: ANN401
    return one.task_id, one.map_index, one.try_number


def _ended(one: Any) -> float:  # noqa: ANN401
    return float(one.end_date.timestamp()) if one.end_date else 0.0


def _failure(one: Any, stored: Errors, *, is_final: bool) -> TaskFailure:  # noqa: ANN401
    newest = stored.get((one.task_id, one.map_index), {})
    # The newest failed try replaces the errors of those before it.
    known = newest if newest.get("try") == one.try_number else {}
    return TaskFailure(
        task=one.task_id,
        map_index=one.map_index,
        try_number=one.try_number,
        is_final=is_final,
        error=known.get("error"),
        what=known.get("what"),
        safe=known.get("safe") or None,
        next=known.get("next") or None,
    )


def _errors(dag_id: str, run_id: str, session: Session) -> Errors:
    model = TaskStateStoreModel
    wanted = select(model).where(model.dag_id == dag_id, model.run_id == run_id, model.key == TASK_ERROR)
    return {(one.task_id, one.map_index): json.loads(one.value) for one in session.scalars(wanted)}


def _completed(dag_id: str, run_id: str, session: Session) -> list[str]:
    return [str(name) for facts in _results(dag_id, run_id, COMPLETE, session) for name in facts.get("completed") or ()]


def _results(dag_id: str, run_id: str, task: str, session: Session) -> Iterator[Mapping[str, Any]]:
    """What the instances of a task returned, in order; nothing if a backend of Airflow stores it elsewhere."""
    model = XComModel
    wanted = (
        select(model.value)
        .where(model.dag_id == dag_id, model.run_id == run_id, model.task_id == task, model.key == RESULT)
        .order_by(model.map_index)
    )
    for value in session.scalars(wanted):
        facts = json.loads(value) if isinstance(value, str) and value.startswith("{") else value
        if isinstance(facts, Mapping):
            yield facts


def _swept(facts: Mapping[str, Any]) -> SweptPipeline:
    return SweptPipeline(
        pipeline=str(facts.get("pipeline")),
        released=list(facts.get("released") or ()),
        disposed=list(facts.get("disposed") or ()),
        deleted_files=int(facts.get("deleted_files") or 0),
        deleted_bytes=int(facts.get("deleted_bytes") or 0),
        waiting_files=int(facts.get("waiting_files") or 0),
        waiting_bytes=int(facts.get("waiting_bytes") or 0),
    )


def _redrive(dag_id: str, run_id: str, session: Session) -> RedriveOutcome | None:
    """What task `plan` counted, and the request of task `redrive`."""
    counted = next(_results(dag_id, run_id, PLAN, session), None)
    if counted is None or "letters" not in counted:
        return None
    asked = next(_results(dag_id, run_id, "redrive", session), counted)
    return RedriveOutcome(
        letters=int(counted["letters"]),
        applied=counted.get("applied"),
        refused=dict(counted.get("refused") or {}),
        request=asked.get("request"),
    )


def _written(dag_id: str, run_id: str, kind: str, session: Session) -> WrittenFork | None:
    """The result of the task that writes, else that of the dry run; None if it has not ended."""
    results = chain(_results(dag_id, run_id, kind, session), _results(dag_id, run_id, PLAN, session))
    facts = next(results, None)
    if facts is None:
        return None
    made = facts.get("checkpoint")
    return WrittenFork(
        pipeline=str(facts.get("pipeline")),
        source=str(facts.get("from")),
        timeline=str(facts.get("timeline")),
        savepoint=str(facts.get("savepoint")),
        checkpoint=None if made is None else str(made),
        states=[StateEffect(uid=uid, counts=dict(counts)) for uid, counts in (facts.get("states") or {}).items()],
    )
