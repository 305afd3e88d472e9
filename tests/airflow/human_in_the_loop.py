"""Somebody who answers what a DAG run asks (Airflow's human in the loop), beside `dag.test()` in the same process."""

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def human_answers(
    option: str, looks: Callable[[Any], object] = lambda detail: None, *, questions: int = 1
) -> Iterator[None]:
    """Waits to be asked for as long as the block runs, looks at the question, and answers.

    Args:
        option: the answer. It is given even where looking fails: else the run would wait for ever.
        looks: takes the open question. What it raises, the block raises when it ends.
        questions: how many are asked.
    """
    over, failed = threading.Event(), list[BaseException]()

    def waits() -> None:
        try:
            answered = set[Any]()
            while len(answered) < questions:
                detail = _question(over, answered)
                answered.add(detail.ti_id)
                try:
                    looks(detail)
                finally:
                    _answer(detail.ti_id, option)
            while not over.wait(0.5):
                for ti_id in answered:
                    _answer_again(ti_id)
        except BaseException as error:  # told in the test's own thread
            failed.append(error)

    thread = threading.Thread(target=waits)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if failed:
        raise failed[0]


def _question(over: threading.Event, answered: Collection[Any]) -> Any:
    """The open question, once the task asks it: while the run lasts."""
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    while not over.wait(0.1):
        with create_session() as session:
            wanted = select(HITLDetail).join(TaskInstance, TaskInstance.id == HITLDetail.ti_id)
            open_ = session.scalars(wanted.where(TaskInstance.state == "awaiting_input")).all()
            found = [detail for detail in open_ if detail.ti_id not in answered]
            if found:
                session.expunge_all()
                return found[0]
    raise AssertionError("nobody was asked")


def _answer(ti_id: Any, option: str) -> None:
    """What the REST route does, by its own function."""
    from airflow.api_fastapi.core_api.datamodels.hitl import UpdateHITLDetailPayload
    from airflow.api_fastapi.core_api.routes.public.hitl import update_hitl_detail
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session

    class User:
        def get_id(self) -> str:
            return "1"

        def get_name(self) -> str:
            return "someone"

    with create_session() as session:
        ti = session.get(TaskInstance, ti_id)
        assert ti is not None
        payload = UpdateHITLDetailPayload(chosen_options=[option], params_input={})
        user: Any = User()
        update_hitl_detail(ti.dag_id, ti.run_id, ti.task_id, payload, user, session, map_index=ti.map_index)


def _answer_again(ti_id: Any) -> None:
    """Resumes a task that waits although it was answered.

    `DAG.test` runs in another thread, without the scheduler's locks. On a busy machine it has written the state of the
    task over that of the answer, and then waited for ever.
    """
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.trigger import handle_event_submit
    from airflow.triggers.base import TriggerEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        ti, detail = session.get(TaskInstance, ti_id), session.get(HITLDetail, ti_id)
        if ti is not None and detail is not None and ti.state == "awaiting_input" and detail.response_received:
            handle_event_submit(TriggerEvent(detail.as_resume_event_payload()), task_instance=ti, session=session)
