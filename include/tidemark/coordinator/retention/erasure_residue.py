"""The residue of an erasure: dead letters, sinks, topics, exports and operator lists that may still hold the key."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidemark.coordinator.records.publication_steps import PublicationSteps
from tidemark.coordinator.retention.erasure_search import Entry, KeyOccurrences, Searcher
from tidemark.model.checkpoint.manifest import Checkpoint
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.sinks.known_sinks import destination_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureResidue:
    """The places that an erasure does not reach and that may hold the key.

    Attributes:
        dead_letters: per table of dead letters of other operators, the number that belong to the key, if any.
        sinks: per sink table or outbox with the key columns, the number of rows of the key that other operators have
            emitted, if any.
        sinks_to_search: sink tables, and topics that are sent to, without the key columns; their content is unknown.
        topics: per topic, the end offset read, by partition. Records stay as long as Kafka retains them.
        exports: jobs that exported a restore point which held the key; copies of an export are recorded nowhere.
        lists: operators with operator state (`split_list`, `union_list`), which has no keys.
        publications: per publication of the operator its target, whose next step erases the key; older versions of a
            table hold it until the table is cleaned up.
    """

    dead_letters: Mapping[str, int]
    sinks: Mapping[str, int]
    sinks_to_search: tuple[str, ...]
    topics: Mapping[str, Mapping[int, int]]
    exports: tuple[str, ...]
    lists: tuple[str, ...]
    publications: Mapping[str, str]


def erasure_residue(found: KeyOccurrences, searcher: Searcher, reached: Collection[str] = ()) -> ErasureResidue:
    """Searches everything that an erasure does not rewrite.

    Args:
        found: the result of the search.
        searcher: reads the files.
        reached: further operators from which the same key is erased, with their dead letters and sinks.

    Raises:
        StoreError: a file cannot be read.
    """
    checkpoints = [e for e in found.entries if isinstance(e, Checkpoint)]
    columns = {} if found.schema is None else dict(zip((k.name for k in found.schema.keys), searcher.key, strict=True))
    uids = {*found.uids, *reached}
    letters = [a.dead_letters for c in checkpoints for a in c.sealed.acks if a.uid not in uids]
    told, untold = _sinks(checkpoints, columns)
    held = {int(name.removeprefix("chk-")) for name in found.by_entry if name.startswith("chk-")}
    return ErasureResidue(
        dead_letters=count_rows(searcher, letters, columns),
        sinks=_rows_of_others(searcher, told, found, frozenset(uids)),
        sinks_to_search=tuple(sorted(untold)),
        topics=_topics(checkpoints),
        exports=tuple(
            sorted(j.job for j in found.survey.jobs.known.values() if j.kind == "export" and j.checkpoint in held)
        ),
        lists=tuple(sorted({uid for c in checkpoints for uid in c.operator_states})),
        publications=PublicationSteps(searcher.coordinator.objects).places(found.uids),
    )


def _sinks(checkpoints: Iterable[Checkpoint], columns: Mapping[str, object]) -> tuple[list[StateHandle], set[str]]:
    """Handles of sinks whose rows have the key columns, and the names of the other sinks."""
    told, untold = list[StateHandle](), set[str]()
    for table in (table for c in checkpoints for table in c.sinks.values()):
        if table.keeps_rows and set(columns) <= {name for name, _ in table.columns}:
            told.append(table.handle)
        else:
            untold.add(table.path if table.keeps_rows else destination_of(table))
        if table.needs_delivery:
            untold.add(destination_of(table))
    return told, untold


def _rows_of_others(
    searcher: Searcher, handles: Sequence[StateHandle], found: KeyOccurrences, uids: frozenset[str]
) -> dict[str, int]:
    """Counts rows of the key in sinks that none of the operators has emitted, per table, if any."""
    if found.schema is None:
        return {}
    key = searcher.erased_key(found.schema, uids)
    rows = count_rows(searcher, handles, dict(zip(key.columns, key.values, strict=True)))
    files = {(s.path, f.path): f for handle in handles for s in handle if s.path in rows for f in searcher.files_of(s)}
    for (table, _), f in files.items():
        rows[table] -= searcher.files.rows_of(table, f, key)
    return {table: count for table, count in rows.items() if count}


def count_rows(searcher: Searcher, handles: Iterable[StateHandle], columns: Mapping[str, object]) -> dict[str, int]:
    """Counts the rows that hold values in these columns, per table, if any.

    Raises:
        StoreError: a file cannot be read.
    """
    found: dict[str, int] = {}
    seen: set[tuple[str, str]] = set()
    for segment in dict.fromkeys(s for handle in handles for s in handle):
        for f in searcher.files_of(segment):
            if (segment.path, f.path) not in seen:
                seen.add((segment.path, f.path))
                rows = searcher.files.mentions(segment.path, f, columns)
                found[segment.path] = found.get(segment.path, 0) + rows
    return {table: rows for table, rows in found.items() if rows}


def _topics(entries: Iterable[Entry]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for plan in _plans(entries):
        for tp, end in plan.ranges.ends.items():
            partitions = found.setdefault(tp.topic, {})
            partitions[tp.partition] = max(end, partitions.get(tp.partition, 0))
    return {topic: found[topic] for topic in sorted(found)}


def _plans(entries: Iterable[Entry]) -> Iterator[CheckpointPlan]:
    return (e.plan for e in entries if isinstance(e, Checkpoint))
