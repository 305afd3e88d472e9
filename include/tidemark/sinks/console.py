"""Rows as lines on the console, for developing a pipeline."""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from tidemark.model.checkpoint.messages import EmittedRow
from tidemark.model.core.json_text import json_record
from tidemark.sinks.sink import OUTBOX, Services, Sink


@dataclass(frozen=True)
class ConsoleSink(Sink):
    """Prints the rows of completed checkpoints to standard error: the sink, the id of the row, its fields as JSON.

    Standard output stays free for `--json`; in Airflow the lines are in the task log. After a crash some rows may be
    printed again, with the same ids. Characters that would control a terminal are escaped.

    >>> from tidemark.sinks import EmittedRow, Services
    >>> row = EmittedRow(id="trips/t1/chk-1/late/trips-0-4-0", fields={"bus": "7", "minutes": 12})
    >>> import contextlib, sys
    >>> with contextlib.redirect_stderr(sys.stdout):
    ...     ConsoleSink("late").write([row], "trips/t1/chk-1", Services())
    late trips/t1/chk-1/late/trips-0-4-0 {"bus":"7","minutes":12}
    1

    Attributes:
        name: name of the sink, unique in the pipeline; every line starts with it.
    """

    kinds = {"console": OUTBOX}

    def write(self, rows: Iterable[EmittedRow], commit_id: str, services: Services) -> int:
        """See `Sink`."""
        written = 0
        for row in rows:
            print(f"{self.name} {row.id} {_inert(json_record(row.fields).decode())}", file=sys.stderr)
            written += 1
        sys.stderr.flush()
        return written


def _inert(text: str) -> str:
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
