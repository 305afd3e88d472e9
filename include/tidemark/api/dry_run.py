"""A verb that you may still call off: `.plan` shows its effect, `.commit()` executes it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class DryRun:
    """A verb that has only been planned. Nothing is written before `commit`.

    Attributes:
        verb: its name, as in `restore`.
        plan: its effect, with the keys that the dry run of the same command prints with `--json`.

    >>> end = w["flights"].savepoints.dispose("winter")
    >>> end
    <dry run of dispose: nothing was written; .plan shows the effect, .commit() executes it>
    >>> end.plan
    {'name': 'winter', 'checkpoint': 'chk-2', 'also_pinned_by': [], 'disposed': False, 'needed_by': []}
    """

    verb: str
    plan: Mapping[str, Any]
    _execute: Callable[[], Mapping[str, Any]]
    _done: Mapping[str, Any] | None = field(default=None, init=False)

    def commit(self) -> Mapping[str, Any]:
        """Executes the verb.

        It looks at the warehouse again, so its effect may differ from `plan` if another process has written meanwhile.
        A second call executes nothing and returns the same answer, unless the first one raised.

        Returns:
            The effect, with the keys that the same command prints with `--execute --json`.

        Raises:
            TidemarkError: as the verb raises it.
        """
        if self._done is None:
            self._done = self._execute()
        return self._done

    def __repr__(self) -> str:
        if self._done is not None:
            return f"<{self.verb}: committed>"
        return f"<dry run of {self.verb}: nothing was written; .plan shows the effect, .commit() executes it>"
