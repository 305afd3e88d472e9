"""Broadcast state as process functions see it: the record of every key, shared by all calls."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tidemark.declare.sources import Broadcast
from tidemark.errors import DeclarationError, StateOverflowError
from tidemark.processing.shapes import record_shape
from tidemark.processing.value_codec import codec_of


def broadcast_records(broadcast: Broadcast, rows: Iterable[Mapping[str, Any]]) -> dict[Any, Any]:
    """Returns instances of the broadcast's record by key; a key of several columns is a tuple.

    Args:
        broadcast: the declaration.
        rows: its resolved state in stored form, timestamps with their zone; `max_keys + 1` rows are enough.

    Raises:
        StateOverflowError: there are more than `max_keys` keys.
    """
    shape = record_shape(broadcast.source.record)
    load = codec_of(shape).copy
    names = [name for name, _ in broadcast.source.schema.fields]
    keys = tuple(broadcast.key_by)
    found: dict[Any, Any] = {}
    for row in rows:
        if len(found) == broadcast.max_keys:
            raise too_large(broadcast)
        held = load({name: row[name] for name in names})
        key = tuple(getattr(held, name) for name in keys)
        found[key if len(key) > 1 else key[0]] = held
    return found


def too_large(broadcast: Broadcast) -> StateOverflowError:
    """Returns the error for a broadcast state with more keys than its declaration allows."""
    return StateOverflowError(
        f"broadcast state {broadcast.uid} has more than {broadcast.max_keys} keys",
        safe="every completed checkpoint is intact; nothing was published.",
        next="raise max_keys if it fits the memory of every worker, or fold the topic and join downstream.",
    )


def checked_rows(broadcast: Broadcast, rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Returns the rows of a foreign table if each key has one row and no required field is null.

    Raises:
        DeclarationError: the rows do not fit the declaration.
        StateOverflowError: there are more than `max_keys` rows.
    """
    if len(rows) > broadcast.max_keys:
        raise too_large(broadcast)
    for name, of in broadcast.source.schema.fields:
        if (not of.nullable or name in broadcast.key_by) and any(row[name] is None for row in rows):
            raise misfit(broadcast, f"{name} is null in some row")
    for key, count in Counter(tuple(row[name] for name in broadcast.key_by) for row in rows).most_common(1):
        if count > 1:
            raise misfit(broadcast, f"{count} rows have the key ({', '.join(map(str, key))})")
    return rows


def misfit(broadcast: Broadcast, why: str) -> DeclarationError:
    """Returns the error for a foreign table that does not match its declaration."""
    return DeclarationError(
        f"broadcast state {broadcast.uid} does not fit its table: {why}",
        next="correct the table, or declare record and key_by to match it, then run the pipeline again.",
    )
