"""Log lines by structlog, which is imported with the first line: most commands write none, and the import is slow."""

from collections.abc import Callable
from typing import Any


class LazyLogger:
    """structlog's logger of this package: `warning("event", name=value, ...)` and the other levels."""

    def __init__(self) -> None:
        self._pending: Callable[[], None] | None = None

    def configure_by(self, configure: Callable[[], None] | None) -> None:
        """Sets the function that configures structlog before the next line; None = it stays as it is."""
        self._pending = configure

    def __getattr__(self, level: str) -> Callable[..., Any]:
        """Returns the method of structlog's logger for a level."""
        import structlog

        pending, self._pending = self._pending, None
        if pending is not None:
            pending()
        found: Callable[..., Any] = getattr(structlog.get_logger("tidemark"), level)
        return found


log = LazyLogger()
