"""SQL over state and manifests: one read-only statement over views that are opened only where it names them (Q3).

Relations: `<uid>` is the newest checkpoint's state, `<uid>_at(N)` that of checkpoint N; the others come from manifests.
DuckDB sees what is registered and the files of states that are named, and nothing else: no other file, no network, no
extension, no setting.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from tidemark.errors import NotFoundError, StoreError, UsageError
from tidemark.readers.checkpoint_reader import View
from tidemark.readers.duckdb_session import is_damage, message_of, opened, refuse_overflow, told
from tidemark.sql.fold_columns import DUCKDB_MACROS

_SHOW_TABLES = re.compile(r"\s*show\s+(all\s+)?tables\s*;?\s*", re.IGNORECASE)
_ABSENT = re.compile(r"Table with name (.+?) does not exist")
_AT = "_at"


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """What a statement may name.

    Attributes:
        uids: operators.
        state: the state of an operator at a checkpoint id, at the newest one for None; called where it is named.
        tables: other relations by name, made where they are named. A uid of the same name is reached by `_at`.
    """

    uids: Sequence[str]
    state: Callable[[str, int | None], View]
    tables: Mapping[str, Callable[[], pa.Table]]

    @property
    def names(self) -> list[str]:
        """Everything that a statement may read from, as it is written there."""
        views = [*self.tables, *(u for u in self.uids if u not in self.tables)]
        return [*map(written, views), *(f"{written(u + _AT)}(N)" for u in self.uids)]


def written(name: str) -> str:
    """A name as SQL writes it: in double quotes where it needs them."""
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'


def answer(statement: str, catalogue: Catalogue) -> pa.Table:
    """The rows of a statement; columns have distinct names.

    Args:
        statement: one SELECT, WITH, FROM, VALUES, DESCRIBE, SUMMARIZE or SHOW, in DuckDB's dialect.
        catalogue: what it may read.

    Raises:
        UsageError: it is something else, or DuckDB refuses it; the message is DuckDB's.
        NotFoundError: it names a relation that does not exist, or a checkpoint.
        StateOverflowError: a key's merged state does not fit; the message names the key.
        StoreError: files of a state that it names cannot be read.
    """
    if _SHOW_TABLES.fullmatch(statement):
        return pa.table({"name": catalogue.names})
    files: list[str] = []
    try:
        with opened() as connection:
            _refuse_others(connection.extract_statements(statement))
        found = _named(statement, catalogue)
        files += [path for view in found.states.values() for path in view.rows.files]
        with opened(files) as connection:
            _register(connection, found)
            connection.execute("SET lock_configuration = true")
            return _distinct(connection.sql(statement).to_arrow_table())
    except duckdb.Error as error:
        raise _told(error, catalogue, files) from error


def _refuse_others(statements: Sequence[duckdb.Statement]) -> None:
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        kinds = ", ".join(s.type.name for s in statements) or "nothing"
        raise UsageError(
            f"state is read by one SELECT, this is {kinds}", next="write one SELECT, WITH, DESCRIBE, SUMMARIZE or SHOW."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    """What a statement names: relations by name, states by the name of their view, uids of which it asks by number."""

    tables: Mapping[str, pa.Table]
    states: Mapping[str, View]
    functions: Sequence[str]


def _named(statement: str, catalogue: Catalogue) -> _Named:
    words = _words(statement)
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
        with told(f"state of {name} is not readable"):
            relation = view.rows.registered(connection, f"rows of {name}")
            connection.execute(f'CREATE TEMP VIEW "{name}" AS {view.sql(relation)}')
    for uid in found.functions:
        macro = written(f"{uid}{_AT}")
        connection.execute(f"CREATE TEMP MACRO {macro}(n) AS TABLE FROM query_table('{uid}@' || n)")


def _ids(words: Sequence[str], uid: str) -> list[int]:
    function, found = f"{uid}{_AT}".lower(), set()
    for at, word in enumerate(words):
        if word.lower() != function or words[at + 1 : at + 2] != ["("]:
            continue
        n = words[at + 2] if words[at + 3 : at + 4] == [")"] else ""
        if not n.isdecimal():
            raise UsageError(
                f"{function} takes the number of a checkpoint", next=f"write {written(function)}(17) for chk-17."
            )
        found.add(int(n))
    return sorted(found)


def _words(statement: str) -> list[str]:
    """Identifiers (unquoted), keywords, numbers and operators, in order; no strings, no comments."""
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


def _told(error: duckdb.Error, catalogue: Catalogue, files: Sequence[str]) -> Exception:
    refuse_overflow(error)
    message = message_of(error)
    names = f"name one of: {', '.join(catalogue.names)}."
    if isinstance(error, duckdb.CatalogException) and (absent := _ABSENT.search(message)):
        return NotFoundError(f"no view {absent[1]}", next=names)
    if isinstance(error, duckdb.PermissionException):
        return UsageError(f"state is all that SQL may read here: {message}", next=names)
    if is_damage(error, files):
        return StoreError(
            f"state is not readable ({message})",
            next="put the table's files back from a backup of the warehouse, or read an older checkpoint.",
        )
    if isinstance(error, duckdb.IOException | duckdb.OutOfMemoryException):
        return StoreError(message, next="look at the disk and the memory, then ask again.")
    return UsageError(message, next=f"mend the statement; {names}")


def connect(states: Mapping[str, View]) -> duckdb.DuckDBPyConnection:
    """A connection of the caller's, in memory and in UTC, with a view of each state under the name of its operator.

    A query reads only what it needs of the files. Unlike `answer`, the connection may do all that DuckDB can.

    Raises:
        StoreError: DuckDB cannot read a state.
    """
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(DUCKDB_MACROS)
    _register(connection, _Named(tables={}, states=states, functions=()))
    return connection
