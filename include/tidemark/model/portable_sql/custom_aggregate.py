"""An author's own aggregates: partial, merge and finish as texts of the portable SQL subset.

A partial is one aggregate function of a scalar expression over the record, so its merge is known: counts and sums are
added, and of least values the least is taken. So the state is the same wherever barriers cut. `spark_only` accepts any
Spark SQL; the author then guarantees that it is associative.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tidemark.errors import DeclarationError
from tidemark.model.core.names import checked_field
from tidemark.model.core.types import FieldType, field_type
from tidemark.model.portable_sql.expressions import Typed, type_expression
from tidemark.model.portable_sql.syntax import NotPortable, names_in, parse

MERGES = {"count": "sum", "sum": "sum", "min": "min", "max": "max", "bool_and": "bool_and", "bool_or": "bool_or"}
"""Aggregate functions of a partial, and the function that merges the results of each."""
_CALL = re.compile(r"\s*([A-Za-z_]+)\s*\((.*)\)\s*", re.DOTALL)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_PLACE = re.compile(r"'(?:[^']|'')*'|(?<![\w.`])(?P<name>[A-Za-z][A-Za-z0-9_]*)(?![\w`]|\s*\()|\w+")
_INT = FieldType("int", nullable=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """The computation of a field of kind `aggregate` or `reduce`.

    Attributes:
        accumulators: name and type of each, in order; stored as `<field>__<name>`, null if nothing was folded.
        partial: per accumulator an aggregate over the records of a key in one batch.
        merge: per accumulator an aggregate over its partials.
        finish: an expression over the merged accumulators.
        inputs: record fields in the partials, and their types; empty until it is bound to a record.
        spark_only: whether the texts are unchecked Spark SQL.
    """

    accumulators: tuple[tuple[str, FieldType], ...]
    partial: tuple[str, ...]
    merge: tuple[str, ...]
    finish: str
    inputs: tuple[tuple[str, FieldType], ...] = ()
    spark_only: bool = False

    @property
    def exact(self) -> bool:
        """Whether regrouping gives equal bits: no accumulator adds floating-point numbers."""
        floats = [n for n, (_, of) in enumerate(self.accumulators) if of.kind == "float"]
        return not any(self.spark_only or call_of(self.merge[n])[0] == "sum" for n in floats)


def call_of(text: str) -> tuple[str, str]:
    """Returns (aggregate function, its argument) of a partial or a merge.

    Raises:
        NotPortable: it is not a single call of one of `MERGES`.
    """
    found = _CALL.fullmatch(text)
    if found is None or found[1].lower() not in MERGES:
        raise NotPortable(f"not a single aggregate function of an expression; there are {', '.join(MERGES)}")
    return found[1].lower(), found[2].strip()


def partial_sql(text: str, inputs: Mapping[str, FieldType], sql: Callable[[str], str], where: str = "") -> Typed:
    """Returns a partial as an aggregate expression, and its type.

    Args:
        text: the partial.
        inputs: types of record fields.
        sql: returns the SQL of a record field.
        where: a FILTER clause, or nothing.

    Raises:
        NotPortable: it is not in the subset.
    """
    function, argument = call_of(text)
    if function == "count" and argument in ("*", "1"):
        return Typed(f"count(1){where}", _INT)
    found = type_expression(parse(argument), inputs, sql)
    of = found.type
    if of is None or not of.is_ordered:
        raise NotPortable(f"{function} of {'NULL' if of is None else 'a ' + of.kind}")
    if function == "count":
        return Typed(f"count({found.sql}){where}", _INT)
    if function.startswith("bool_"):
        if of.kind != "bool":
            raise NotPortable(f"{function} of a {of.kind}")
        return Typed(f"{function}({found.sql}){where}", of)
    if function == "sum":
        return _sum(found.sql, of, where)
    return Typed(f"{function}({found.sql}){where}", of)


def merge_sql(function: str, column: str, of: FieldType) -> str:
    """Returns the aggregate that merges an accumulator's column; for integers a wide sum, which the caller checks."""
    if function == "sum" and of.kind == "int":
        return f"sum(CAST({column} AS DECIMAL(38,0)))"
    return _sum(column, of, "").sql if function == "sum" else f"{function}({column})"


def finish_sql(made: Aggregate, sql: Callable[[str], str]) -> Typed:
    """Returns the finish as an expression over merged accumulators, and its type."""
    return type_expression(parse(made.finish), dict(made.accumulators), sql)


def declared_aggregate(
    accumulator: Mapping[str, Any],
    partial: Mapping[str, str],
    merge: Mapping[str, str] | None,
    finish: str,
    *,
    spark_only: bool,
) -> Aggregate:
    """Returns the aggregate that `state.aggregate` declares.

    Raises:
        DeclarationError: texts and accumulators do not match, or a text is not in the subset.
    """
    where, names = "state.aggregate", list(accumulator)
    for said, texts in (("partial", partial), ("merge", merge if merge is not None or spark_only else accumulator)):
        if texts is None or set(texts) != set(names):
            raise DeclarationError(
                f"{where}: {said} of {sorted(texts or ())}, accumulators {sorted(names)}",
                next="give one text for each accumulator.",
            )
    made = Aggregate(
        accumulators=tuple((checked_field(n), field_type(t, where).with_null(True)) for n, t in accumulator.items()),
        partial=tuple(partial[n] for n in names),
        merge=tuple(_merge_of(n, partial[n]) if merge is None else merge[n] for n in names),
        finish=finish,
        spark_only=spark_only,
    )
    return checked_syntax(where, made)


def declared_reduce(text: str) -> Aggregate:
    """Returns the aggregate that `state.reduce` declares; its one accumulator gets the field's type.

    Raises:
        DeclarationError: the text is not in the subset, or it counts, so its result has another type than its input.
    """
    made = Aggregate(
        accumulators=(("value", _INT),), partial=(text,), merge=(_merge_of("value", text),), finish="value"
    )
    checked_syntax("state.reduce", made)
    if call_of(text)[0] == "count":
        raise DeclarationError(f"state.reduce({text!r}) counts", next="use state.count() or state.aggregate.")
    return made


def _merge_of(name: str, partial: str) -> str:
    function = _CALL.fullmatch(partial)
    return f"{MERGES.get(function[1].lower(), 'sum') if function else 'sum'}({name})"


def checked_syntax(where: str, made: Aggregate) -> Aggregate:
    """Returns the aggregate if its texts are in the subset, as far as this can be checked without a record.

    Raises:
        DeclarationError: a text is not; the message names it.
    """
    names = [name for name, _ in made.accumulators]
    if not names:
        raise DeclarationError(f"{where}: no accumulator", next="declare at least one, as in accumulator={'n': int}.")
    if made.spark_only:
        _refuse_quotes(where, (*made.partial, *made.merge, made.finish))
        return made
    for name, partial, merge in zip(names, made.partial, made.merge, strict=True):
        with _portable(f"{where}, accumulator {name}"):
            function, argument = call_of(partial)
            if (function, argument) not in (("count", "*"), ("count", "1")):
                parse(argument)
            agrees = call_of(merge) == (MERGES[function], name)
        if not agrees:
            raise DeclarationError(
                f"{where}: merge of {name} is {merge!r}", next=f"{function} is merged by {MERGES[function]}({name})."
            )
    with _portable(f"{where}, finish"):
        unknown = names_in(parse(made.finish)) - set(names)
    if unknown:
        raise DeclarationError(
            f"{where}, finish: unknown accumulator {', '.join(sorted(unknown))}", next=f"there are {', '.join(names)}."
        )
    return made


def bound(where: str, made: Aggregate, record: FieldType, declared: FieldType) -> Aggregate:
    """Returns the aggregate over a record type.

    Raises:
        DeclarationError: a name is not a field, types do not match, or the annotation has another type.
    """
    if made.spark_only:
        named = {name for text in made.partial for name in _NAME.findall(text)}
        return replace(
            made, inputs=tuple((name, of.stored.with_null(True)) for name, of in record.fields if name in named)
        )
    inputs: dict[str, FieldType] = {}
    for text in made.partial:
        argument = call_of(text)[1]
        for name in names_in(parse(argument)) if argument != "*" else ():
            found = record.at(name)
            if found is None:
                raise DeclarationError(f"{where}: the record has no field {name!r}", next="name a field of the record.")
            inputs[name] = found.stored.with_null(True)
    for text, (name, of) in zip(made.partial, made.accumulators, strict=True):
        at = f"{where}, accumulator {name}"
        with _portable(at):
            got = partial_sql(text, inputs, str).type
        if got is None or not _fits(got, of):
            raise _wrong(f"{at}: {text}", got, of)
    with _portable(f"{where}, finish"):
        got = finish_sql(made, str).type
    if got != declared.with_null(True):
        raise _wrong(f"{where}: finish {made.finish!r}", got, declared)
    return replace(made, inputs=tuple(sorted(inputs.items())))


def substitute_names(text: str, names: Sequence[str], sql: Callable[[str], str]) -> str:
    """Replaces names in a text of Spark SQL, except in literals and function names."""

    def put(found: re.Match[str]) -> str:
        name = found["name"]
        return sql(name) if name in names else found[0]

    return _PLACE.sub(put, text)


def _refuse_quotes(where: str, texts: Sequence[str]) -> None:
    for text in texts:
        if '"' in text or "\\" in text:
            raise DeclarationError(f"{where}: {text!r}", next="write texts without double quotes and backslashes.")


def to_json(made: Aggregate, of: Callable[[FieldType], Any]) -> dict[str, Any]:
    """Returns the form for manifests; `of` returns that of a type."""
    return {
        "accumulators": [[name, of(t)] for name, t in made.accumulators],
        "partial": list(made.partial),
        "merge": list(made.merge),
        "finish": made.finish,
        "inputs": [[name, of(t)] for name, t in made.inputs],
        "spark_only": made.spark_only,
    }


def from_json(body: Mapping[str, Any], of: Callable[[Any], FieldType]) -> Aggregate:
    """The inverse of `to_json`."""
    return Aggregate(
        accumulators=tuple((name, of(t)) for name, t in body["accumulators"]),
        partial=tuple(body["partial"]),
        merge=tuple(body["merge"]),
        finish=body["finish"],
        inputs=tuple((name, of(t)) for name, t in body["inputs"]),
        spark_only=body["spark_only"],
    )


def _sum(sql: str, of: FieldType, where: str) -> Typed:
    if of.kind == "decimal":
        wide = replace(of, digits=38)
        return Typed(f"CAST(sum(CAST({sql} AS {wide.sql})){where} AS {wide.sql})", wide)
    if of.kind not in ("int", "float"):
        raise NotPortable(f"sum of a {of.kind}")
    return Typed(f"sum({sql}){where}", of)


def _fits(got: FieldType, of: FieldType) -> bool:
    """Whether a partial has its accumulator's type; sums of decimals have 38 digits."""
    return got == of or (got.kind == of.kind == "decimal" and got.scale == of.scale and of.digits == 38)


def _wrong(what: str, got: FieldType | None, wanted: FieldType) -> DeclarationError:
    found = "NULL" if got is None else got.sql
    return DeclarationError(f"{what} is {found}, declared {wanted.sql}", next="correct the declared type.")


@contextmanager
def _portable(where: str) -> Iterator[None]:
    """Translates a text outside the subset into a refused declaration."""
    try:
        yield
    except NotPortable as error:
        raise DeclarationError(
            f"{where}: {error}", next="write it in the portable subset, or set spark_only=True."
        ) from error
