"""SQL over state and manifests: one read-only statement over views, which are opened only if it names them.

Relations: `<uid>` is the newest checkpoint's state, `<uid>_at(N)` that of checkpoint N; the others come from manifests.
DuckDB sees only registered relations and the files of the named states: no other file, network, extension or setting.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from tidemark.errors import NotFoundError, StoreError, UsageError
from tidemark.model.kinds.base.sql import DUCKDB_MACROS
from tidemark.readers.checkpoint_reader import View
from tidemark.readers.duckdb_session import (
    is_damage,
    message_of,
    open_connection,
    refuse_overflow,
    translate_duckdb_errors,
)

_SHOW_TABLES = re.compile(r"\s*show\s+(all\s+)?tables\s*;?\s*", re.IGNORECASE)
_ABSENT = re.compile(r"Table with name (.+?) does not exist")
_AT = "_at"


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """The relations that a statement may name.

    Attributes:
        uids: operators.
        state: returns the state of an operator at a checkpoint id, None = the newest; called if the statement names it.
        tables: other relations by name, created if the statement names them. A uid of the same name is reached by
            `_at`.
    """

    uids: Sequence[str]
    state: Callable[[str, int | None], View]
    tables: Mapping[str, Callable[[], pa.Table]]

    @property
    def names(self) -> list[str]:
        """All relations that a statement may read, as SQL writes them."""
        views = [*self.tables, *(u for u in self.uids if u not in self.tables)]
        return [*map(quote_name, views), *(f"{quote_name(u + _AT)}(N)" for u in self.uids)]


def quote_name(name: str) -> str:
    """Returns a name as SQL writes it, in double quotes if it needs them."""
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'


def run_statement(statement: str, catalogue: Catalogue) -> pa.Table:
    """Returns the rows of a statement, with distinct column names.

    Args:
        statement: one SELECT, WITH, FROM, VALUES, DESCRIBE, SUMMARIZE or SHOW, in DuckDB's dialect.
        catalogue: the relations that it may read.

    Raises:
        UsageError: it is another statement, or DuckDB refuses it; the message is DuckDB's.
        NotFoundError: it names a relation or a checkpoint that does not exist.
        StateOverflowError: a key's merged state does not fit; the message names the key.
        StoreError: files of a state that it names cannot be read.
    """
    if _SHOW_TABLES.fullmatch(statement):
        return pa.table({"name": catalogue.names})
    files: list[str] = []
    try:
        with open_connection() as connection:
            refuse_other_statements(connection.extract_statements(statement))
        found = _named(statement, catalogue)
        files += [path for view in found.states.values() for path in view.rows.files]
        with open_connection(files) as connection:
            _register(connection, found)
            connection.execute("SET lock_configuration = true")
            return _distinct(connection.sql(statement).to_arrow_table())
    except duckdb.Error as error:
        raise _translate(error, catalogue, files) from error


def refuse_other_statements(statements: Sequence[duckdb.Statement]) -> None:
    """Refuses everything but one statement that reads.

    Raises:
        UsageError: it is another statement, or none, or several.
    """
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        kinds = ", ".join(s.type.name for s in statements) or "nothing"
        raise UsageError(
            f"state is read by one SELECT, this is {kinds}", next="write one SELECT, WITH, DESCRIBE, SUMMARIZE or SHOW."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    """Returns the relations in a statement by name, states by view name, and uids with a checkpoint number."""

    tables: Mapping[str, pa.Table]
    states: Mapping[str, View]
    functions: Sequence[str]


def _named(statement: str, catalogue: Catalogue) -> _Named:
    words = words_of(statement)
    named = {word.lower() for word in words}
    states, functions = {}, []
    for uid in catalogue.uids:
        if uid.lower() in named and uid not in catalogue.tables:
            states[uid] = catalogue.state(uid, None)
        ids = _ids(words, uid)
        states |= {f"{uid}@{n}": catalogue.state(uid, n) for n in ids}
        functions += [uid] if ids else []
    tables = {name: made() for name, made in catalogue.tables.items() if name.lower() in named}
    return _Named(tables=tables, states=states, functions=functions)


def _register(connection: duckdb.DuckDBPyConnection, found: _Named) -> None:
    for name, table in found.tables.items():
        connection.register(name, table)
    for name, view in found.states.items():
        with translate_duckdb_errors(f"state of {name} cannot be read"):
            relation = view.rows.register(connection, f"rows of {name}")
            connection.execute(f'CREATE TEMP VIEW "{name}" AS {view.sql(relation)}')
    for uid in found.functions:
        macro = quote_name(f"{uid}{_AT}")
        connection.execute(f"CREATE TEMP MACRO {macro}(n) AS TABLE FROM query_table('{uid}@' || n)")


def _ids(words: Sequence[str], uid: str) -> list[int]:
    function, found = f"{uid}{_AT}".lower(), set()
    for at, word in enumerate(words):
        if word.lower() != function or words[at + 1 : at + 2] != ["("]:
            continue
        n = words[at + 2] if words[at + 3 : at + 4] == [")"] else ""
        if not n.isdecimal():
            raise UsageError(
                f"{function} takes the number of a checkpoint", next=f"write {quote_name(function)}(17) for chk-17."
            )
        found.add(int(n))
    return sorted(found)


def words_of(statement: str) -> list[str]:
    """Yields unquoted identifiers, keywords, numbers and operators, in order, without strings and comments."""
    raw = statement.encode()
    tokens = duckdb.tokenize(statement)
    ends = [at for at, _ in tokens[1:]] + [len(raw)]
    left_out = (duckdb.token_type.string_const, duckdb.token_type.comment)
    texts = [raw[at:end].decode().strip() for (at, kind), end in zip(tokens, ends, strict=True) if kind not in left_out]
    return [t[1:-1].replace('""', '"') if len(t) > 1 and t[0] == t[-1] == '"' else t for t in texts]


def _distinct(rows: pa.Table) -> pa.Table:
    names: list[str] = []
    for name in rows.column_names:
        tries = (name, *(f"{name}_{n}" for n in range(1, rows.num_columns + 1)))
        names.append(next(t for t in tries if t not in names))
    return rows.rename_columns(names)


def _translate(error: duckdb.Error, catalogue: Catalogue, files: Sequence[str]) -> Exception:
    refuse_overflow(error)
    message = message_of(error)
    names = f"name one of: {', '.join(catalogue.names)}."
    if isinstance(error, duckdb.CatalogException) and (absent := _ABSENT.search(message)):
        return NotFoundError(f"no view {absent[1]}", next=names)
    if isinstance(error, duckdb.PermissionException):
        return UsageError(f"SQL can read only state here: {message}", next=names)
    if is_damage(error, files):
        return StoreError(
            f"state cannot be read ({message})",
            next="restore the table's files from a backup of the warehouse, or read an older checkpoint.",
        )
    if isinstance(error, duckdb.IOException | duckdb.OutOfMemoryException):
        return StoreError(message, next="check disk and memory, then repeat the query.")
    return UsageError(message, next=f"correct the statement; {names}")


def connect(states: Mapping[str, View]) -> duckdb.DuckDBPyConnection:
    """Returns a connection in memory and in UTC, with a view of each state under the name of its operator.

    A query reads only the parts of the files that it needs. Unlike `run_statement`, the connection can do everything
    that DuckDB can.

    Raises:
        StoreError: DuckDB cannot read a state.
    """
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(DUCKDB_MACROS)
    _register(connection, _Named(tables={}, states=states, functions=()))
    return connection
