"""Callbacks of a user, of a DAG and of its tasks; they note that they were called."""

from typing import Any

CALLS: list[str] = []
"""Cleared by the test that reads it."""


def task_succeeded(context: Any) -> None:
    """Of each task."""
    CALLS.append(f"success {context['task'].task_id}")


def task_failed(context: Any) -> None:
    """Of each task."""
    CALLS.append(f"failure {context['task'].task_id}")


def run_succeeded(context: Any) -> None:
    """Of the DAG."""
    CALLS.append("run success")


def run_failed(context: Any) -> None:
    """Of the DAG."""
    CALLS.append("run failure")


def broken(context: Any) -> None:
    """Of the DAG."""
    CALLS.append("broken")
    raise ValueError("this callback is broken")
