"""Ends a task whose attempt at a checkpoint exceeds the pipeline's `checkpoint_timeout`.

A task that makes several checkpoints has no timeout of its own: each checkpoint has. The store says when the attempt in
progress began, whichever process makes it, so nothing has to report to the task that waits.
"""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowTaskTimeout

if TYPE_CHECKING:
    from tidemark.context import Context

_log = logging.getLogger(__name__)
IDLE = 3
"""How many timeouts may pass without an attempt: planning, and the pauses between checkpoints, share them."""


@contextmanager
def attempts_watched(opened: "Context", pipeline: str, timeout: timedelta) -> Iterator[None]:
    """Raises in the block once an attempt takes longer than the timeout. Does nothing outside of the main thread.

    Args:
        opened: the context that reads the store.
        pipeline: the pipeline's name.
        timeout: the longest time of an attempt.

    Raises:
        AirflowTaskTimeout: as Airflow's own timeout of a task does.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(number: int, frame: FrameType | None) -> None:
        if done.is_set():
            return  # the block has ended while the watch was looking
        raise AirflowTaskTimeout(f"an attempt at a checkpoint of {pipeline} took longer than {timeout}")

    done = threading.Event()
    before = signal.signal(signal.SIGALRM, expire)
    watch = threading.Thread(target=_watch, args=(opened, pipeline, timeout, done), name="attempt-watch", daemon=True)
    watch.start()
    try:
        yield
    finally:
        done.set()
        watch.join()
        signal.signal(signal.SIGALRM, before)


def _watch(opened: "Context", pipeline: str, timeout: timedelta, done: threading.Event) -> None:
    longest, since_ms = timeout.total_seconds() * 1000, opened.clock.now_ms()
    last_ms, wait_ms = since_ms, longest
    while not done.wait(wait_ms / 1000):
        now_ms = opened.clock.now_ms()
        try:
            begun_ms = _begun_ms(opened, pipeline)
        except Exception as error:  # noqa: BLE001  (nothing else ends a task that hangs)
            _log.warning("the attempt in progress is not known: %s", error)
            begun_ms = None
        if begun_ms is None or begun_ms < since_ms:  # an earlier try began it, and its process may be dead
            left = last_ms + IDLE * longest - now_ms
        else:
            last_ms = max(last_ms, min(begun_ms, now_ms))
            left = begun_ms + longest - now_ms
        if left <= 0:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
            return
        wait_ms = min(left, longest) + 1


def _begun_ms(opened: "Context", pipeline: str) -> int | None:
    """When the attempt in progress began; None if there is none."""
    from tidemark.coordinator.records.states import OpenPlan

    coordinator = opened.coordinator(pipeline)
    found = coordinator.open_plan()
    if not isinstance(found, OpenPlan) or found.attempt == 0:
        return None
    revoked = coordinator.objects.outcome(found.plan.slot, found.attempt - 1)
    return None if revoked is None else revoked.at_ms
