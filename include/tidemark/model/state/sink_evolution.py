"""Evolution of sinks: the changes of emitted fields that existing rows allow, and how to read these rows.

Nothing is rewritten. Changed columns start another table; rows of earlier tables are read in the new columns.
"""

from collections.abc import Mapping
from dataclasses import replace

from tidemark.model.checkpoint.sinks import Columns, SinkTable
from tidemark.model.core.types import column_type
from tidemark.model.state.evolution import Misfit, widens


def sink_misfits(uid: str, old: SinkTable, new: SinkTable) -> tuple[Misfit, ...]:
    """Yields the changes of a declared sink that existing rows do not allow.

    You may add or remove a field. A field that returns starts from the beginning, so only fields in both declarations
    are compared. Inside a field, at any depth, you may add fields to a dataclass, and give a decimal more digits.

    Args:
        uid: the operator that emits.
        old: the sink as the parent left it.
        new: the declared sink.
    """
    before = dict(old.columns)
    return tuple(
        Misfit(
            uid=uid,
            field=name,
            what=f"in sink {new.name} {_shown(before[name])} became {_shown(sql)}",
            remedy="keep the type, emit it under a new name, or emit it to a sink of another name",
        )
        for name, sql in new.columns
        if name in before and not widens(column_type(before[name]), column_type(sql))
    )


def evolved_sink(old: SinkTable, new: SinkTable, number: int) -> SinkTable:
    """Returns the sink of the next plan: the existing rows in the current columns.

    Args:
        old: the sink as the parent left it.
        new: the declared sink, which fits; its path is that of the timeline's first table.
        number: id of the planned checkpoint, which names a table with other columns.
    """
    if old.columns == new.columns:
        own = old.path == new.path or old.path.startswith(f"{new.path}~")
        path = old.path if own else new.path
        return replace(new, path=path, handle=old.handle, older=old.older, covered=old.covered)
    kept = {name for name, _ in new.columns}
    older: dict[str, Columns] = {}
    for path in dict.fromkeys(segment.path for segment in old.handle):
        older[path] = tuple((name, sql) for name, sql in old.columns_of(path) if name in kept)
    path = f"{new.path}~{number}"
    return replace(new, path=path, handle=old.handle, older=older, covered=old.covered)


def sources_of(table: SinkTable, path: str) -> Mapping[str, str]:
    """Returns the type of each declared column in a table of the sink; rows have null in the other columns."""
    there = dict(table.columns_of(path))
    return {name: there[name] for name, _ in table.columns if name in there}


def _shown(sql: str) -> str:
    return sql.replace("`", "")
