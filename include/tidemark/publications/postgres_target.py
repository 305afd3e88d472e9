"""A table of PostgreSQL as the target of a publication: rows and progress change in one transaction.

The row of `tidemark_publications` is the fence. A step locks it, and requires the step before; a publisher that was
overtaken finds another step there, and its transaction ends without an effect.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.sql import SQL, Composable, Identifier

from tidemark.errors import StoreError, TargetChangedError
from tidemark.model.retention.publication_records import Replaceable
from tidemark.ports.publishing import Difference, Published, StatePart, Step
from tidemark.publications.json_rows import Convert, from_json, to_json

PROGRESS = "tidemark_publications"
_CONNECT_SECONDS = 10
_LONGEST_PAUSE_MS = 600_000
_SAFE = "the table has the step as a whole or not at all; every checkpoint is intact."

_TYPES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int8, "smallint"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_int32, "integer"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_float32, "real"),
    (pa.types.is_float64, "double precision"),
    (pa.types.is_string, "text"),
    (pa.types.is_binary, "bytea"),
    (pa.types.is_date, "date"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresTarget:
    """See `ports.publishing.PublicationTarget`.

    Attributes:
        url: the database; libpq's variables fill in missing parts.
        table: the table, with or without a schema.
        application: id of the publication, `tidemark/<pipeline>/<name>`.
        keys: names of the key columns.
        columns: of the resolved state, key columns included.
    """

    url: str
    table: str
    application: str
    keys: Sequence[str]
    columns: pa.Schema

    def newest_step(self) -> int:
        """See `ports.publishing.PublicationTarget`."""
        with self._transaction() as cursor:
            found = self._progress(cursor)
        return 0 if found is None else found[0]

    def apply(self, step: Step, difference: Callable[[], Difference]) -> Published:
        """See `ports.publishing.PublicationTarget`."""
        with self._transaction() as cursor:
            if self._has(cursor, step):
                return self._had(cursor)
        found = difference()
        with self._transaction() as cursor:
            self._lock(cursor)
            if self._has(cursor, step):
                return self._had(cursor)
            if self._progress(cursor) != (step.previous, step.previous_lineage) or self._misfit(cursor):
                raise self._changed()
            deleted = sum(self._delete(cursor, keys) for keys in (found.deletes, found.erased))
            deleted += self._delete(cursor, found.upserts.select(list(self.keys)))
            size = self._copy(cursor, self._name, [found.upserts])
            self._advance(cursor, step)
        return Published(version=str(step.checkpoint), inserted=found.upserts.num_rows, deleted=deleted, bytes=size)

    def replace(self, step: Step, parts: Sequence[StatePart], replaces: Replaceable) -> Published:
        """See `ports.publishing.PublicationTarget`. After a crash all parts are read again: nothing was kept."""
        with self._transaction() as cursor:
            self._lock(cursor)
            if self._has(cursor, step):
                return self._had(cursor)
            progress = self._progress(cursor)
            there = self._there(cursor)
            if there:
                self._refuse_rows(progress, step, replaces)
            cursor.execute(SQL("DELETE FROM {}").format(self._name)) if there else self._create(cursor)
            deleted = cursor.rowcount if there else 0
            self._fit(cursor, there)
            inserted, size = 0, 0
            for part in parts:
                for table in part.read():
                    inserted += table.num_rows
                    size += self._copy(cursor, self._name, [table])
            self._advance(cursor, step)
        return Published(version=str(step.checkpoint), inserted=inserted, deleted=deleted, bytes=size)

    def drop(self, step: Step) -> Published:
        """See `ports.publishing.PublicationTarget`."""
        with self._transaction() as cursor:
            self._lock(cursor)
            progress = self._progress(cursor)
            if progress is None:
                return Published(version="")
            if not self._has(cursor, step):
                self._advance(cursor, step)
            return self._had(cursor)

    def rows(self) -> tuple[int, pa.Table]:
        """See `ports.publishing.PublicationTarget`."""
        names = SQL(", ").join(map(Identifier, self.columns.names))
        with self._transaction() as cursor:
            found = self._progress(cursor)
            cursor.execute(SQL("SELECT {} FROM {}").format(names, self._name))
            loads = [_from_value(field.type) for field in self.columns]
            read: list[list[Any]] = [[load(value) for load, value in zip(loads, row, strict=True)] for row in cursor]
        arrays = [pa.array([row[n] for row in read], field.type) for n, field in enumerate(self.columns)]
        return 0 if found is None else found[0], pa.Table.from_arrays(arrays, schema=self.columns)

    @contextmanager
    def _transaction(self) -> "Iterator[psycopg.Cursor[Any]]":
        """One transaction; errors of the database become errors of Tidemark."""
        try:
            with (
                psycopg.connect(self.url, connect_timeout=_CONNECT_SECONDS) as connection,
                connection.cursor() as cursor,
            ):
                yield cursor
        except psycopg.DataError as error:
            raise StoreError(
                f"PostgreSQL refuses a value for {self.table}: {_first_line(error)}",
                safe=_SAFE,
                next="correct the value by a patch of a savepoint, or publish another field.",
            ) from error
        except psycopg.Error as error:
            raise StoreError(
                f"PostgreSQL did not take {self.table}: {_first_line(error)}",
                safe=_SAFE,
                next="check the database and the rights of the user; the next publication continues.",
            ) from error

    @property
    def _parts(self) -> tuple[str | None, str]:
        schema, _, table = self.table.rpartition(".")
        return schema or None, table

    @property
    def _name(self) -> Composable:
        schema, table = self._parts
        return Identifier(table) if schema is None else Identifier(schema, table)

    @property
    def _progress_name(self) -> Composable:
        schema, _ = self._parts
        return Identifier(PROGRESS) if schema is None else Identifier(schema, PROGRESS)

    def _lock(self, cursor: "psycopg.Cursor[Any]") -> None:
        """Makes one transaction at a time work on this publication, until its end."""
        # A publisher that was paused in the middle holds up others for as long.
        cursor.execute(f"SET LOCAL idle_in_transaction_session_timeout = {_LONGEST_PAUSE_MS}")
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (self.application,))
        cursor.execute(
            SQL(
                "CREATE TABLE IF NOT EXISTS {} (publication text PRIMARY KEY, target text NOT NULL,"
                " step bigint NOT NULL, lineage text NOT NULL, checkpoint bigint NOT NULL, timeline text NOT NULL,"
                " published_at timestamp with time zone NOT NULL)"
            ).format(self._progress_name)
        )

    def _progress(self, cursor: "psycopg.Cursor[Any]") -> tuple[int, str] | None:
        """Step and lineage of the newest step that the table has."""
        if not self._is_table(cursor, PROGRESS):
            return None
        wanted = SQL("SELECT step, lineage FROM {} WHERE publication = %s").format(self._progress_name)
        found = cursor.execute(wanted, (self.application,)).fetchone()
        return None if found is None else (int(found[0]), str(found[1]))

    def _advance(self, cursor: "psycopg.Cursor[Any]", step: Step) -> None:
        cursor.execute(
            SQL(
                "INSERT INTO {} AS p VALUES (%s, %s, %s, %s, %s, %s, now()) ON CONFLICT (publication) DO UPDATE SET"
                " target = EXCLUDED.target, step = EXCLUDED.step, lineage = EXCLUDED.lineage,"
                " checkpoint = EXCLUDED.checkpoint, timeline = EXCLUDED.timeline, published_at = now()"
            ).format(self._progress_name),
            (self.application, self.table, step.number, step.lineage, step.checkpoint, step.timeline),
        )

    def _has(self, cursor: "psycopg.Cursor[Any]", step: Step) -> bool:
        progress = self._progress(cursor)
        return progress is not None and progress[0] >= step.number

    def _had(self, cursor: "psycopg.Cursor[Any]") -> Published:
        wanted = SQL("SELECT checkpoint FROM {} WHERE publication = %s").format(self._progress_name)
        found = cursor.execute(wanted, (self.application,)).fetchone()
        return Published(version="" if found is None else str(found[0]))

    def _is_table(self, cursor: "psycopg.Cursor[Any]", name: str) -> bool:
        schema, _ = self._parts
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", (_quoted(schema, name),))
        found = cursor.fetchone()
        return bool(found and found[0])

    def _there(self, cursor: "psycopg.Cursor[Any]") -> dict[str, str]:
        """The columns of the table with their types; none if there is no table."""
        schema, table = self._parts
        if not self._is_table(cursor, table):
            return {}
        cursor.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (_quoted(schema, table),),
        )
        return dict(cursor.fetchall())

    def _misfit(self, cursor: "psycopg.Cursor[Any]") -> bool:
        there = self._there(cursor)
        return any(there.get(name) != kind for name, kind in self._types.items())

    @property
    def _types(self) -> dict[str, str]:
        return {field.name: _type(field.type) for field in self.columns}

    def _create(self, cursor: "psycopg.Cursor[Any]") -> None:
        columns = [SQL("{} {}").format(Identifier(n), SQL(kind)) for n, kind in self._types.items()]
        columns.append(SQL("PRIMARY KEY ({})").format(SQL(", ").join(map(Identifier, self.keys))))
        cursor.execute(SQL("CREATE TABLE {} ({})").format(self._name, SQL(", ").join(columns)))

    def _fit(self, cursor: "psycopg.Cursor[Any]", there: dict[str, str]) -> None:
        """Brings the columns of an empty table to those of the state; columns of others stay if they may be null."""
        for name, kind in self._types.items() if there else ():
            if there.get(name) == kind:
                continue
            if name in there:
                cursor.execute(SQL("ALTER TABLE {} DROP COLUMN {}").format(self._name, Identifier(name)))
            added = SQL("ALTER TABLE {} ADD COLUMN {} {}")
            cursor.execute(added.format(self._name, Identifier(name), SQL(kind)))

    def _delete(self, cursor: "psycopg.Cursor[Any]", keys: pa.Table) -> int:
        if not keys.num_rows:
            return 0
        staged = Identifier("tidemark_keys")
        columns = SQL(", ").join(map(Identifier, self.keys))
        cursor.execute(
            SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} LIMIT 0").format(
                staged, columns, self._name
            )
        )
        self._copy(cursor, staged, [keys])
        same = SQL(" AND ").join(SQL("t.{0} = k.{0}").format(Identifier(key)) for key in self.keys)
        cursor.execute(SQL("DELETE FROM {} AS t USING {} AS k WHERE {}").format(self._name, staged, same))
        deleted = cursor.rowcount
        cursor.execute(SQL("DROP TABLE {}").format(staged))
        return deleted

    def _copy(self, cursor: "psycopg.Cursor[Any]", into: Composable, tables: Iterable[pa.Table]) -> int:
        """Copies rows; returns the number of bytes that were sent, as far as it is known."""
        size = 0
        for table in tables:
            names, types = table.column_names, [field.type for field in table.schema]
            converts = [_to_value(of) for of in types]
            text = SQL("COPY {} ({}) FROM STDIN").format(into, sql.SQL(", ").join(map(Identifier, names)))
            with cursor.copy(text) as copy:
                copy.set_types([_type(of) for of in types])
                for batch in table.to_batches(max_chunksize=10_000):
                    size += batch.nbytes
                    columns = [column.to_pylist(maps_as_pydicts="strict") for column in batch.columns]
                    for row in zip(*columns, strict=True):
                        copy.write_row([convert(value) for convert, value in zip(converts, row, strict=True)])
        return size

    def _refuse_rows(self, progress: tuple[int, str] | None, step: Step, replaces: Replaceable) -> None:
        _, pipeline, name = self.application.split("/")
        if progress is None and replaces is not Replaceable.ANY:
            raise TargetChangedError(
                f"there is a table {self.table} that this publication has not made",
                safe="the table was left alone.",
                next="name another table in the pipeline file, remove that table, or:"
                f" tidemark publication rebuild {pipeline} {name} --replace",
            )
        if replaces is Replaceable.UNTOUCHED and progress != (step.previous, step.previous_lineage):
            raise self._changed()

    def _changed(self) -> TargetChangedError:
        _, pipeline, name = self.application.split("/")
        return TargetChangedError(
            f"MIRROR_CHANGED: {self.table} has another step, another rebuild, or other columns than {name} left there",
            safe="the table was left alone; every checkpoint is intact.",
            next=f"tidemark publication rebuild {pipeline} {name}    (replaces all rows of the table).",
        )


def _quoted(schema: str | None, name: str) -> str:
    return ".".join(f'"{part}"' for part in chain([schema] if schema else [], [name]))


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _type(of: pa.DataType) -> str:
    """Returns the type of a column; structs, maps, and lists of them are `jsonb`."""
    if pa.types.is_timestamp(of):
        return "timestamp with time zone" if of.tz else "timestamp without time zone"
    if pa.types.is_decimal(of):
        return f"numeric({of.precision},{of.scale})"
    if pa.types.is_list(of):
        inner = _type(of.value_type)
        return "jsonb" if inner == "jsonb" or inner.endswith("[]") else f"{inner}[]"
    return next((name for test, name in _TYPES if test(of)), "jsonb")


def _to_value(of: pa.DataType) -> Convert:
    """Returns the function that turns Python values of a column into those that PostgreSQL takes."""
    return to_json(of) if _type(of) == "jsonb" else lambda value: value


def _from_value(of: pa.DataType) -> Convert:
    """Returns the function that turns values of PostgreSQL into Python values of a column."""
    return from_json(of) if _type(of) == "jsonb" else lambda value: value
