"""Erasure of a key: the request, the records that it blocks, and the revised manifests (adr/0015)."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidemark.model.checkpoint.codec import ADDED
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.checkpoint.redrive import Redrive
from tidemark.model.core.offsets import OffsetCoverage, TopicPartition
from tidemark.model.core.types import column_type
from tidemark.model.schema.key_groups import group_of
from tidemark.model.schema.operator_schema import KeyColumn, OperatorSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRecord:
    """`erasures/<n>.json`: an erased key; plans made after it block the records of the key.

    Attributes:
        number: ascending from 1.
        uids: the operators that it is erased from, under all names that they have had.
        key: texts of the key columns, in order, as `state show --key` takes them.
        ends: per partition the offset up to which, exclusive, records of the key do not count; see `reached`.
        forever: whether no record of the key ever counts.
        owner: the requester.
        at_ms: clock of the writer, for people.
        reached: the same offsets by topic id: a topic that was recreated since blocks nothing. None in records of
            release 0.1, where `ends` counts for every topic of the name.
        columns: name and SQL type of the columns that hold the key in the rows of a FlatMap; empty = the key columns of
            the operators.
    """

    number: int
    uids: tuple[str, ...]
    key: tuple[str, ...]
    ends: Mapping[TopicPartition, int]
    forever: bool
    owner: str
    at_ms: int
    write_id: str
    reached: OffsetCoverage | None = field(default=None, metadata=ADDED)
    columns: tuple[tuple[str, str], ...] = field(default=(), metadata=ADDED)

    def covers(self, reached: OffsetCoverage) -> bool:
        """Whether it blocks everything read up to those offsets; release 0.1 does not record the topic ids."""
        return self.forever or (self.reached is not None and self.reached.contains(reached))

    def ends_of(self, topic_ids: Mapping[str, str]) -> Mapping[TopicPartition, int] | None:
        """Returns per partition the exclusive end of the offsets at which records are dropped; None = all."""
        if self.forever:
            return None
        return self.ends if self.reached is None else self.reached.ends(topic_ids)


def keyed_by(schema: OperatorSchema, columns: Sequence[tuple[str, str]]) -> OperatorSchema:
    """Returns the schema of an operator with the columns that hold a key as its key columns.

    They are its own ones without those of a window; of an operator without keys, columns of its rows, with their SQL
    types.
    """
    if schema.window is not None:
        return replace(schema, keys=schema.own_keys, window=None, co_inputs=schema.several_inputs)
    keys = tuple(KeyColumn(name, name, column_type(sql).with_null(False)) for name, sql in columns)
    return replace(schema, keys=keys) if keys else schema


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureEnd:
    """`erasures/<n>.end.json`: the key is not stored anywhere any more.

    Attributes:
        restore_points: names of the restore points that the last call revised.
        files: number of files that it rewrote.
        rows: rows of the key that these contained.
        at_ms: clock of the writer, for people.
    """

    number: int
    restore_points: tuple[str, ...]
    files: int
    rows: int
    at_ms: int
    write_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedKey:
    """A key in the form of an operator's rows.

    Attributes:
        columns: key columns.
        values: one per column.
        groups: its `_key_group` in each state of the operator; a transform may have written some to another number.
        uids: the operators whose rows are meant, in a sink that others may have written to; empty = any.
        has_several_names: whether records name the key differently, because the operator has several inputs: then a
            dead letter belongs to the key whichever member has its value.
    """

    columns: tuple[str, ...]
    values: tuple[object, ...]
    groups: tuple[int, ...]
    uids: frozenset[str] = frozenset()
    has_several_names: bool = False

    @classmethod
    def of(
        cls,
        schema: OperatorSchema,
        values: tuple[object, ...],
        uids: frozenset[str] = frozenset(),
        numbers: Collection[int] = (),
    ) -> "ErasedKey":
        """Returns the key of an operator; `numbers`: of key groups that its states have."""
        columns = tuple(k.name for k in schema.keys)
        schemas = [replace(schema, key_groups=number) for number in {schema.key_groups, *numbers}]
        groups = tuple(sorted({group_of(found, values) for found in schemas}))
        several = bool(schema.several_inputs)
        return cls(columns=columns, values=values, groups=groups, uids=uids, has_several_names=several)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedKey:
    """Records of a key that an operator does not count.

    Attributes:
        uid: the operator.
        key: one value per key column.
        ends: per partition the offset up to which, exclusive; None = all of them.
        columns: of a FlatMap, the columns of its rows that hold the key: it counts the records, and emits no such row.
    """

    uid: str
    key: tuple[object, ...]
    ends: Mapping[TopicPartition, int] | None
    columns: tuple[str, ...] = ()

    def blocks(self, key: Sequence[object], topic: str, partition: int, offset: int) -> bool:
        """Whether a record is dropped."""
        if tuple(key) != self.key:
            return False
        return self.ends is None or offset < self.ends.get(TopicPartition(topic, partition), 0)


Blocked = Callable[[CheckpointPlan], Sequence[BlockedKey]]
"""The keys whose records a plan drops."""


def blocked_in_letters(blocked: Blocked, plan: CheckpointPlan, redrive: Redrive) -> list[BlockedKey]:
    """Returns the keys whose redriven dead letters are dropped, also of topics that were recreated since.

    The offsets of an erasure belong to a topic id, and a letter has that of the topic from which it was read.
    """
    ids = sorted({(rows.partition.topic, rows.topic_id) for rows in redrive.rows})
    older = [
        replace(plan, topic_ids={**plan.topic_ids, topic: id_})
        for topic, id_ in ids
        if plan.topic_ids.get(topic) != id_
    ]
    return [key for each in (plan, *older) for key in blocked(each)]


def none_blocked(plan: CheckpointPlan) -> Sequence[BlockedKey]:
    """No blocked keys, if nothing was ever erased."""
    return ()
