"""Shared by kinds that keep one value with its place, so that the order of records decides, not that of their arrival.

The place is (event time, topic, partition, offset). It is unique per record, so the result never depends on barriers.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from tidemark.model.core.offsets import PER_RECORD
from tidemark.model.core.types import FieldType
from tidemark.model.kinds.base.kind import Accumulators, FoldKind
from tidemark.model.kinds.base.python import FoldedRecord, OfKey, Placed, Row, not_null
from tidemark.model.kinds.base.sql import filter_sql, quote, record_path
from tidemark.model.portable_sql.dialects import DUCKDB, Dialect
from tidemark.model.schema.operator_schema import KeyColumn, StoredField

_NUMBER = ", 'path', \"_path\""
_PLACE = (
    ("at", FieldType("timestamp")),
    ("topic", FieldType("str")),
    ("partition", FieldType("int")),
    ("offset", FieldType("int")),
)
_PLACE_SQL = "'at', \"event_time\", 'topic', \"topic\", 'partition', CAST(\"partition\" AS BIGINT), 'offset', "
_BEFORE_ALL = (("at", "make_timestamptz(0)"), ("topic", "''"), ("partition", "0"), ("offset", "0"))
"""The place of imported state: before every future record."""


class PlacedValue(FoldKind):
    """The value with the least or the greatest (ranking value, place), kept as one struct.

    Attributes:
        function: `min` or `max`, which compare structs member by member.
    """

    function: ClassVar[str]

    def accumulators(self, field: StoredField) -> Accumulators:
        """See `StateKind`."""
        members = (*self.ranks(field), *_PLACE, ("value", field.over.with_null(True)))
        return ((field.name, FieldType("struct", nullable=True, fields=members)),)

    def ranks(self, field: StoredField) -> tuple[tuple[str, FieldType], ...]:
        """Returns (member, type) of the values that rank before the place does."""
        return ()

    def rank_paths(self, field: StoredField) -> tuple[str, ...]:
        """Returns the record path of each of `ranks`; records with a null there do not count."""
        return ()

    def required_paths(self, field: StoredField) -> tuple[str, ...]:
        """Returns the record paths that must not be null for a record to count."""
        return self.rank_paths(field)

    def imported_columns(self, field: StoredField) -> Iterator[tuple[str, FieldType]]:
        """See `StateKind`: the value, and `<field>__<member>` for each of `ranks`."""
        yield field.name, field.over.with_null(True)
        yield from ((f"{field.name}__{member}", of.with_null(True)) for member, of in self.ranks(field))

    def imported_values(self, field: StoredField, at_ms: int) -> Iterator[tuple[str, str]]:
        """See `StateKind`: before every record that may come, so that any later one is newer and none is earlier."""
        ranks = [(member, quote(f"{field.name}__{member}")) for member, _ in self.ranks(field)]
        column = quote(field.name)
        known_by = " AND ".join(f"{sql} IS NOT NULL" for _, sql in ranks) or f"{column} IS NOT NULL"
        yield field.name, f"CASE WHEN {known_by} THEN {DUCKDB.struct([*ranks, *_BEFORE_ALL, ('value', column)])} END"

    def exported_values(self, field: StoredField) -> Iterator[tuple[str, str]]:
        """See `StateKind`: the members that rank."""
        column = quote(field.name)
        yield from ((f"{field.name}__{member}", f"{column}.{quote(member)}") for member, _ in self.ranks(field))

    def partials(self, field: StoredField, only: str, *, emitted: bool) -> list[str]:
        """See `FoldKind`.

        For an emitted record, one number of the place combines the offset and the last number of `_path`, as in all
        releases: it is compared with those of other checkpoints, and within one source record the whole path decides.
        """
        where = filter_sql(only, *(f"{record_path(path)} IS NOT NULL" for path in self.required_paths(field)))
        pairs = zip(self.ranks(field), self.rank_paths(field), strict=True)
        place = "".join(f"'{member}', {record_path(path)}, " for (member, _), path in pairs) + _PLACE_SQL
        value = record_path(field.source)
        if not emitted:
            return [f"{self.function}(named_struct({place}\"offset\", 'value', {value})){where}"]
        kept = (
            f'named_struct({place}"offset" * {PER_RECORD} + element_at("_path", -1) % {PER_RECORD}, \'value\', {value})'
        )
        return [f'{self.function}_by({kept}, named_struct({place}"offset"{_NUMBER})){where}']

    def merges(self, field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect) -> list[str]:
        """See `FoldKind`."""
        return [f"{self.function}({quote(field.name)})"]

    def finish_value(self, field: StoredField, keys: Sequence[KeyColumn], dialect: Dialect) -> str:
        """See `FoldKind`."""
        return f'{quote(field.name)}."value"'

    @abstractmethod
    def pick(self, values: Sequence[Any]) -> Any:
        """Returns the least or the greatest of values, compared as in Spark; twin of `function`."""

    def fold(self, field: StoredField, of: OfKey, placed: Placed) -> list[Any]:
        """See `FoldKind`."""
        paths = self.rank_paths(field)
        counted = [r for _, r in placed if all(r.at(path) is not None for path in self.required_paths(field))]
        if not counted:
            return [None]
        ranked = [({"ranks": [r.at(p) for p in paths], "at": r.event_time, "place": [*r.position]}, r) for r in counted]
        best = self.pick([rank for rank, _ in ranked])
        record = next(r for rank, r in ranked if rank is best)
        return [self._placed_value(field, record)]

    def merge(self, field: StoredField, of: OfKey, n: int, values: Sequence[Any]) -> Any:
        """See `FoldKind`."""
        there = not_null(values)
        return self.pick(there) if there else None

    def value(self, field: StoredField, of: OfKey, row: Row) -> Any:
        """See `FoldKind`."""
        held = row[field.name]
        return None if held is None else held["value"]

    def _placed_value(self, field: StoredField, record: FoldedRecord) -> dict[str, Any]:
        pairs = zip(self.ranks(field), self.rank_paths(field), strict=True)
        return {member: record.at(path) for (member, _), path in pairs} | {
            "at": record.event_time,
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.kept_offset,
            "value": record.at(field.source),
        }


class OrderedValue(PlacedValue):
    """The value of the first or the last record by place."""

    def required_paths(self, field: StoredField) -> tuple[str, ...]:
        """See `PlacedValue`."""
        return (field.source,) if field.ignore_nulls else ()
