"""Airflow's own options of a DAG that Tidemark creates: those that a user may set, next to those that it needs itself.

Every option is added to Tidemark's own and replaces none: its tags are how the pages find a DAG, its callbacks abort
plans and count failures, and its retries execute one plan.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from airflow.sdk import BaseOperator

from tidemark.airflow.failure_callbacks import keep_error
from tidemark.errors import DeclarationError

Callback = Callable[[Any], None]
Callbacks = Callback | Sequence[Callback] | None
"""One callback of Airflow's, or several."""

_ORDER = "omit it: the tasks of a checkpoint run in their order, one run at a time"
_RESTART = "give restart= instead: every retry is the next attempt at one plan"
_TIMEOUT = "set checkpoint_timeout of the Pipeline instead"
_FIXED = "omit it: Tidemark sets it for each of its tasks"
PROTECTED: dict[str, str] = {
    "depends_on_past": f"{_ORDER}, and a failed run would block all later ones",
    "ignore_first_depends_on_past": _ORDER,
    "wait_for_downstream": _ORDER,
    "wait_for_past_depends_before_skipping": _ORDER,
    "trigger_rule": _ORDER,
    "max_active_runs": _ORDER,
    "catchup": "omit it: past intervals run if you backfill them",
    "start_date": "give start= instead",
    "end_date": "give end= instead",
    "schedule": "give schedule= instead",
    "tags": "give tags= instead",
    "retries": _RESTART,
    "retry_delay": _RESTART,
    "retry_exponential_backoff": _RESTART,
    "max_retry_delay": _RESTART,
    "retry_policy": _RESTART,
    "execution_timeout": _TIMEOUT,
    "dagrun_timeout": _TIMEOUT,
    "do_xcom_push": "omit it: the tasks pass ids to each other by XCom",
    "multiple_outputs": "omit it: the tasks pass ids to each other by XCom",
    "inlets": _FIXED,
    "outlets": _FIXED,
    "task_id": _FIXED,
    "doc_md": "give doc_md= to the DAG instead",
    "dag": _FIXED,
    "task_group": _FIXED,
    "params": _FIXED,
    "default_args": _FIXED,
    "start_from_trigger": _FIXED,
    "start_trigger_args": _FIXED,
}
"""The entries of `default_args` that would break the protocol of a checkpoint, each with what to do instead."""
TASK_CALLBACKS = ("on_failure_callback", "on_success_callback")
"""Callbacks that Tidemark's tasks have too."""
ERROR_CALLBACKS = ("on_failure_callback", "on_retry_callback")
"""Callbacks after a failed try; Tidemark's own stores the error for the pages."""


class SharedOptions(TypedDict, total=False):
    """Airflow's options that every kind of DAG takes.

    Attributes:
        default_args: arguments of all tasks, as Airflow's `default_args`; callbacks are added to Tidemark's own.
        tags: further tags; Tidemark's pages find a DAG by its own ones.
        pool: the pool of all tasks (default: as `default_args`, or Airflow's default pool).
    """

    default_args: Mapping[str, Any]
    tags: Sequence[str]
    pool: str | None


def check_default_args(given: Mapping[str, Any]) -> None:
    """Refuses arguments of tasks that would break the protocol, and those that no task has.

    Raises:
        DeclarationError: names the first such argument.
    """
    known = inspect.signature(BaseOperator.__init__).parameters
    for name in given:
        if name in PROTECTED:
            raise DeclarationError(f"default_args may not set {name}", next=f"{PROTECTED[name]}.")
        if name not in known:
            raise DeclarationError(f"default_args: no task of Airflow takes {name!r}", next="correct the name.")


def join_tags(own: Sequence[str], more: Sequence[str]) -> list[str]:
    """Returns Tidemark's tags, then further ones, each once.

    Raises:
        DeclarationError: `more` is one text, which would become a tag for each letter.
    """
    if isinstance(more, str):
        raise DeclarationError(f"tags={more!r}", next=f"give a list: tags=[{more!r}].")
    return list(dict.fromkeys([*own, *more]))


def join_callbacks(own: Callbacks, more: Callbacks) -> list[Callback]:
    """Returns Tidemark's callbacks, then further ones. Airflow calls each, even if an earlier one raises."""
    return [*_listed(own), *_listed(more)]


def _listed(callbacks: Callbacks) -> list[Callback]:
    if callbacks is None:
        return []
    found = list(callbacks) if isinstance(callbacks, Sequence) else [callbacks]
    for one in found:
        if not callable(one):
            raise DeclarationError(f"{one!r} is no callback", next="give a function of Airflow's context, or a list.")
    return found


def shared_arguments(own_tags: Sequence[str], options: SharedOptions) -> dict[str, Any]:
    """Returns `tags` and `default_args` of a DAG, from Tidemark's own and the user's.

    Args:
        own_tags: Tidemark's own.
        options: the user's.

    Raises:
        DeclarationError: an option is invalid.
        TypeError: there is no such option.
    """
    for name in options:
        if name not in SharedOptions.__annotations__:
            raise TypeError(f"unexpected option {name!r}; the options are {', '.join(SharedOptions.__annotations__)}")
    defaults = dict(options.get("default_args") or {})
    check_default_args(defaults)
    pool = options.get("pool")
    if pool is not None:
        defaults["pool"] = pool
    for name in ERROR_CALLBACKS:
        defaults[name] = join_callbacks(keep_error, defaults.get(name))
    return {"tags": join_tags(own_tags, options.get("tags") or ()), "default_args": defaults}
