"""A verb that you may still call off: `.plan` says what it would do, `.commit()` does it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class DryRun:
    """A verb that has only been planned. Nothing is written before `commit`.

    Attributes:
        verb: its name, as in `restore`.
        plan: what it would do, in the words of the same command's dry run with `--json`.

    >>> end = w["flights"].savepoints.dispose("winter")
    >>> end
    <dry run of dispose: nothing was written; .plan shows what it would do, .commit() does it>
    >>> end.plan
    {'name': 'winter', 'checkpoint': 'chk-2', 'also_pinned_by': [], 'disposed': False, 'needed_by': []}
    """

    verb: str
    plan: Mapping[str, Any]
    _execute: Callable[[], Mapping[str, Any]]
    _done: Mapping[str, Any] | None = field(default=None, init=False)

    def commit(self) -> Mapping[str, Any]:
        """Executes the verb.

        It looks at the warehouse again, so it may do other things than `plan` says if another process has written
        meanwhile. A second call executes nothing and returns the same answer, unless the first one raised.

        Returns:
            What was done, in the words of the same command with `--execute --json`.

        Raises:
            TidemarkError: as the verb raises it; the error says what is safe.
        """
        if self._done is None:
            self._done = self._execute()
        return self._done

    def __repr__(self) -> str:
        if self._done is not None:
            return f"<{self.verb}: committed>"
        return f"<dry run of {self.verb}: nothing was written; .plan shows what it would do, .commit() does it>"
