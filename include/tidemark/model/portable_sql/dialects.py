"""The differences between the SQL of engines: lambdas, structs, quotes. Everything else is the same text.

Identifiers are in double quotes (ANSI); `Dialect.text` converts a text to the form of an engine.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from tidemark.model.core.types import FieldType

DUCKDB_MACROS = "CREATE OR REPLACE TEMP MACRO raise_error(message) AS error(message)"
"""Set up once per connection of DuckDB; other engines have `raise_error` or drop the branch."""


_LOW = 2**32 - 1
"""The lower half of a 64-bit integer."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The spelling of one engine.

    Attributes:
        name: `spark` or `duckdb`.
    """

    name: Literal["spark", "duckdb"]

    def transform(self, array: str, var: str, body: str) -> str:
        """Returns `body` of each element `var` of an array."""
        return f"{self._of('transform', 'list_transform')}({array}, {self._lambda(var, body)})"

    def transform_values(self, entries: str, var: str, body: Callable[[str], str]) -> str:
        """Returns a map with another value of each entry; `body` makes it of the expression of the value."""
        if self.name == "spark":
            return f"transform_values({entries}, ({var}_key, {var}) -> {body(var)})"
        pair = self.struct([("key", f"{var}.key"), ("value", body(f"{var}.value"))])
        made = f"map_from_entries({self.transform(f'map_entries({entries})', var, pair)})"
        return f"CASE WHEN {entries} IS NULL THEN NULL ELSE {made} END"

    def filter(self, array: str, var: str, condition: str) -> str:
        """Returns the elements `var` of an array for which a condition holds."""
        return f"{self._of('filter', 'list_filter')}({array}, {self._lambda(var, condition)})"

    def reduce(self, array: str, variables: tuple[str, str], body: str) -> str:
        """Returns the elements of an array combined from left to right by `body`; null if it is null or empty.

        Args:
            array: its elements have the type of `body`.
            variables: names of the combined value so far, and of the next element.
            body: an expression over the two.
        """
        if self.name == "spark":
            rest = f"slice({array}, 2, greatest(size({array}), 1))"
            return f"reduce({rest}, get({array}, 0), ({', '.join(variables)}) -> {body})"
        return f"list_reduce(nullif({array}, []), lambda {', '.join(variables)}: {body})"

    def struct(self, fields: Sequence[tuple[str, str]]) -> str:
        """Returns a struct of (name, expression) pairs."""
        if self.name == "spark":
            pairs = ", ".join(f"'{name}', {sql}" for name, sql in fields)
            return f"named_struct({pairs})"
        return "{" + ", ".join(f"'{name}': {sql}" for name, sql in fields) + "}"

    def exact_sum(self, column: str) -> tuple[str, str]:
        """Returns the sum of a BIGINT column, and the condition that it fits 64 bits, for any grouping of its parts.

        DuckDB adds in 128 bits. Spark's only wider integer is a decimal, whose sums cost ten times those of longs, so
        the upper and lower halves are added separately; that is exact for fewer than 2^31 rows of a key.
        """
        if self.name == "duckdb":
            return f"CAST(sum({column}) AS BIGINT)", f"sum({column}) BETWEEN {-(2**63)} AND {2**63 - 1}"
        low = f"sum({column} & {_LOW})"
        high = f"(sum(shiftright({column}, 32)) + shiftright({low}, 32))"
        return f"(shiftleft({high}, 32) | ({low} & {_LOW}))", f"{high} BETWEEN {-(2**31)} AND {2**31 - 1}"

    def or_empty(self, array: str) -> str:
        """Returns an array, empty if it is null."""
        return f"coalesce({array}, {self._of('array()', '[]')})"

    def array(self, items: str) -> str:
        """Returns an array of expressions, which are separated by commas."""
        return f"array({items})" if self.name == "spark" else f"[{items}]"

    def from_base64(self, text: str) -> str:
        """Returns bytes from their base64."""
        return f"{self._of('unbase64', 'from_base64')}('{text}')"

    def decode_utf8(self, value: str) -> str:
        """Returns the text of bytes."""
        return f"CAST({value} AS STRING)" if self.name == "spark" else f"decode({value})"

    def type(self, of: FieldType) -> str:
        """Returns a stored type in the form for a cast."""
        if self.name == "spark":
            return of.sql
        if of.element is not None:
            inner = self.type(of.element)
            return f"{inner}[]" if of.key is None else f"MAP({self.type(of.key)}, {inner})"
        if of.kind == "struct":
            return "STRUCT(" + ", ".join(f'"{name}" {self.type(t)}' for name, t in of.fields) + ")"
        return "TIMESTAMPTZ" if of.kind == "timestamp" else of.sql

    def instant(self, ms: int | str) -> str:
        """Returns the time at milliseconds since the epoch."""
        return f"timestamp_millis({ms})" if self.name == "spark" else f"make_timestamptz(({ms}) * 1000)"

    def millis(self, at: str) -> str:
        """Returns the milliseconds since the epoch of a time, rounded down."""
        return f"{self._of('unix_millis', 'epoch_ms')}({at})"

    def rows_of(self, first: str, last: str, step: int) -> str:
        """Returns an expression of SELECT that gives a row for each number from `first` to `last`, both included."""
        if self.name == "spark":
            return f"explode(sequence({first}, {last}, {step}L))"
        return f"unnest(generate_series({first}, {last}, {step}))"

    def parameter(self, name: str) -> str:
        """Returns a named parameter."""
        return f"{self._of(':', '$')}{name}"

    def text(self, sql: str) -> str:
        """Returns a whole text in the engine's quotes.

        Names are on an allow-list and literals contain no double quotes, so the replacement is exact.
        """
        return sql.replace('"', "`") if self.name == "spark" else sql

    def _of(self, spark: str, duckdb: str) -> str:
        return spark if self.name == "spark" else duckdb

    def _lambda(self, var: str, body: str) -> str:
        return f"{var} -> {body}" if self.name == "spark" else f"lambda {var}: {body}"


SPARK = Dialect("spark")
DUCKDB = Dialect("duckdb")
