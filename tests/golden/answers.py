"""What a warehouse answers: every state of every checkpoint, dead letters and sinks, as JSON."""

import json
import tarfile
from pathlib import Path
from typing import Any

from tidemark.context import Context
from tidemark.operations import reads

PIPELINE = "shop"
ANSWERS = "answers.json"
WAREHOUSE = "warehouse.tar.xz"


def answers_of(context: Context) -> dict[str, Any]:
    """By checkpoint: `state` by uid, rows in order of keys; `dead_letters` by uid; `emitted` by sink."""
    found = {}
    for checkpoint in reads.list_checkpoints(context, PIPELINE):
        states = {uid: reads.read_state(context, PIPELINE, uid, checkpoint=checkpoint.id) for uid in checkpoint.handles}
        found[checkpoint.plan.name] = {
            "state": {uid: plain(rows.to_pylist(maps_as_pydicts="strict")) for uid, rows in states.items()},
            "dead_letters": {a.uid: a.dead_letters.rows for a in checkpoint.sealed.acks},
            "emitted": {table.name: table.handle.rows for table in checkpoint.sinks.values()},
        }
    return found


def plain(rows: list[dict[str, Any]]) -> Any:  # noqa: ANN401
    """Rows as JSON has them, in order of their first column."""
    return json.loads(json.dumps(sorted(rows, key=lambda r: str(r["customer"])), default=str))


def unpack_warehouse(release: Path, folder: Path) -> Path:
    """Unpacks the warehouse of a release into a new folder below one, and returns it.

    Args:
        release: folder of the release in this package.
        folder: the parent of the new folder.
    """
    target = folder / "warehouse"
    with tarfile.open(release / WAREHOUSE) as archive:
        # The argument `filter` came with Python 3.11.4.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(target)  # noqa: S202  (written by ours)
    return target
