"""Changes of database rows as Debezium writes them: the record is the row after the change.

`from tidemark.formats import debezium` gives the fields of the change that are not in the row: `debezium.before()`,
`debezium.op()` and `debezium.ts()`, as defaults of fields.

The meaning of a change event is that of Debezium's documentation (data change events of its connectors).
"""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, fields, make_dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Self, get_type_hints

from tidemark.errors import DeclarationError
from tidemark.formats.avro import Avro
from tidemark.formats.envelope import epoch_ms, origin_type
from tidemark.formats.json import Json
from tidemark.formats.json_schema import JsonSchema
from tidemark.formats.record_format import FAULT, GOOD, ROW_KEY, BadRecord, RecordFormat, fields_of
from tidemark.model.checkpoint.dead_letters import Reason
from tidemark.model.core.origins import Origin, origins_of, without_origins
from tidemark.model.core.types import FieldType
from tidemark.model.schema.registry_schemas import Schemas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FAMILY = "debezium"
_BEFORE, _OP, _TS = "debezium.before", "debezium.op", "debezium.ts"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEAST_MS, _MOST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 0001 to 9999."""
_TS_PATH = "source.ts_ms"
_FITS = f"_found.source.ts_ms BETWEEN {_LEAST_MS} AND {_MOST_MS}"
_ROWS = ("c", "r", "u")
"""Operations that leave a row: create, read of a snapshot, update."""
_TEXT = FieldType("str", nullable=True)
_SOURCE = FieldType("struct", fields=(("ts_ms", FieldType("int")),))
_HEAD = FieldType("struct", nullable=True, fields=(("op", _TEXT),))
_WRAPPED_HEAD = FieldType("struct", fields=(("op", _TEXT), ("payload", _HEAD)))


def before() -> Any:  # noqa: ANN401
    """Returns the default of an optional field with the row before the change: a dataclass with columns of the row.

    It is null for an inserted row and for a row of a snapshot. PostgreSQL logs whole old rows only with
    `REPLICA IDENTITY FULL`.
    """
    return Origin(_BEFORE, ("struct",), nullable=True)


def op() -> Any:  # noqa: ANN401
    """Returns the default of a `str` field with the operation: `c` create, `u` update, `r` read of a snapshot."""
    return Origin(_OP, ("str",))


def ts() -> Any:  # noqa: ANN401
    """Returns the default of a `datetime` field with the time of the change in the database, in UTC (`source.ts_ms`).

    Clocks of databases may go back, for instance after a failover. Tidemark orders changes by their positions.
    """
    return Origin(_TS, ("timestamp",))


@dataclass(frozen=True)
class Debezium(RecordFormat):
    """Change events of Debezium; fields of the record are columns of the row after the change.

    Events of `Json` may be inside `schema` and `payload`, or not; those of `Avro` and `JsonSchema` are framed.

    A delete (`op` is `d`) and a tombstone are deletes of the row that the message key names: operators with
    `deletes=True` apply them, all others filter them. A truncate names no row, so it is a dead letter with the reason
    `unsupported_op`, and so is every unknown operation.

    A `Fold` keys by the message key, so `key_by` names the columns of the primary key. It has `latest` and `first`
    only, in the order of positions. A message key with other columns is a dead letter with the reason `bad_key`.

    Attributes:
        inner: the format of the whole event, and of the message key: `Json()`, `Avro()` or `JsonSchema()`, as the
            converter of the connector writes it.

    >>> from dataclasses import dataclass
    >>> from tidemark import KafkaSource, formats
    >>> from tidemark.formats import debezium
    >>> @dataclass(frozen=True)
    ... class Customer:
    ...     id: int
    ...     email: str | None
    ...     change: str = debezium.op()
    >>> source = KafkaSource("shop.public.customers", Customer, format=formats.Debezium())
    >>> event = b'{"before": null, "after": {"id": 4, "email": "a@b"}, "source": {}, "op": "c", "ts_ms": 7}'
    >>> source.format.decode_one(event, source.schema)
    {'id': 4, 'email': 'a@b', 'change': 'c'}
    """

    inner: RecordFormat = field(default=Json())

    name = "debezium"
    has_changes = True
    reasons = (*Json.reasons[:4], Reason.UNSUPPORTED_OP.value, *Json.reasons[4:])

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Json | Avro | JsonSchema):
            raise DeclarationError(
                f"Debezium(inner={self.inner!r})",
                next="name the format of the converter: Json(), Avro(), JsonSchema().",
            )
        if isinstance(self.inner, Avro) and self.inner.schema is not None:
            raise DeclarationError(
                "Debezium(inner=Avro(schema=...)): message keys have a schema of their own",
                next="leave schema= out: the registry has the schemas of keys and values.",
            )

    @property
    def needs_schemas_of(self) -> str | None:
        """See `RecordFormat`."""
        return self.inner.needs_schemas_of

    def bind_schemas(self, schemas: Schemas) -> Self:
        """See `RecordFormat`."""
        return replace(self, inner=self.inner.bind_schemas(schemas))

    def render(self, raw: bytes) -> bytes:
        """See `RecordFormat`."""
        return self.inner.render(raw)

    def bind(self, record: type) -> FieldType:
        """See `RecordFormat`.

        Raises:
            DeclarationError: a field has a type that the inner format, or an event, cannot fill; no field is a column.
        """
        own = origins_of(record, _FAMILY)
        row = without_origins(record, _FAMILY) if own else record
        found = {name: origin_type(record, name, origin) for name, origin in own.items()}
        for name, of in found.items():
            if of.origin == _BEFORE and not of.nullable:
                raise DeclarationError(
                    f"{record.__name__}.{name}: an inserted row has no row before",
                    next="declare it as a dataclass or None.",
                )
        if len(own) == len(fields(record)):
            raise DeclarationError(f"{record.__name__} has no column of the row", next="declare columns as fields.")
        columns = dict(self._bound(row, record, found))
        if not own:
            return FieldType("struct", fields=tuple(columns.items()))
        return FieldType("struct", fields=tuple((f.name, (found | columns)[f.name]) for f in fields(record)))

    def _bound(self, row: type, record: type, own: Mapping[str, FieldType]) -> tuple[tuple[str, FieldType], ...]:
        """Returns the fields of the row, bound by the inner format inside an event."""
        hints = get_type_hints(record, include_extras=True)
        made: list[tuple[str, Any, Any]] = [("op", str, field()), ("after", row | None, field(default=None))]
        made += [("before", hints[name], field(default=None)) for name, of in own.items() if of.origin == _BEFORE][:1]
        event = make_dataclass("Event", made, frozen=True)
        after = dict(self.inner.bind(event).fields)["after"]
        return after.fields

    @property
    def has_expressions(self) -> bool:
        """Events in JSON have them, others are decoded in Spark's Python workers."""
        return isinstance(self.inner, Json)

    def decode(self, raw: "DataFrame", record: FieldType) -> "DataFrame":
        """See `RecordFormat`; adds `_row_key` too. The order of the checks is that of `decode_one`."""
        from tidemark.formats.json_sql import Decoder, is_sealed_sql, is_text_sql, parsed_sql

        decoder = Decoder(_event_of(record), root=("_event", "$"))
        checks = {
            "value IS NULL": Reason.NULL_VALUE.value,
            f"NOT ({is_text_sql()})": Reason.INVALID_UTF8.value,
            f"_parsed IS NULL OR NOT {is_sealed_sql('_parsed')}": Reason.MALFORMED_JSON.value,
            "NOT startswith(schema_of_variant(_outer), 'OBJECT<')": Reason.NOT_AN_OBJECT.value,
            _is_no_text("_outer_op"): Reason.WRONG_TYPE.at("op"),
            "_is_inside AND NOT startswith(schema_of_variant(_payload), 'OBJECT<')": Reason.WRONG_TYPE.at("payload"),
            _is_no_text("_own_op"): Reason.WRONG_TYPE.at("op"),
            "_op <=> 'd'": Reason.NULL_VALUE.value,
            f"coalesce(_op NOT IN {_ROWS}, true)": Reason.UNSUPPORTED_OP.value,
        }
        tests = " ".join(f"WHEN {test} THEN '{reason}'" for test, reason in checks.items())
        return (
            raw.selectExpr("*", f"{parsed_sql()} AS _parsed", f"key AS {ROW_KEY}")
            .selectExpr("*", f"{_member('_parsed', '$[0]')} AS _outer")
            .selectExpr(
                "*",
                f"{_member('_outer', '$.op')} AS _outer_op",
                f"{_member('_outer', '$.payload')} AS _payload",
                f"coalesce(schema_of_variant({_member('_outer', '$.payload')}) != 'VOID', false) AS _is_inside",
            )
            .selectExpr(
                "*",
                "CASE WHEN _is_inside THEN _payload ELSE _outer END AS _event",
                f"CASE WHEN _is_inside THEN {_member('_payload', '$.op')} ELSE _outer_op END AS _own_op",
            )
            .selectExpr("*", "try_variant_get(_own_op, '$', 'string') AS _op", *decoder.variants)
            .selectExpr("*", *decoder.json_types)
            .selectExpr("*", *decoder.values)
            .selectExpr("*", f"{decoder.fields_reason} AS _misfit", f"{decoder.record} AS _found")
            .selectExpr("*", f"CASE {tests} ELSE {_misfit_sql(record)} END AS {FAULT}", f"{_row_sql(record)} AS {GOOD}")
        )

    def decode_one(self, value: bytes | None, record: FieldType) -> dict[str, Any]:
        """See `RecordFormat`."""
        if value is None:
            raise BadRecord(Reason.NULL_VALUE.value)
        is_wrapped, done = self._operation(value)
        if done == "d":
            raise BadRecord(Reason.NULL_VALUE.value)
        if done not in _ROWS:
            raise BadRecord(Reason.UNSUPPORTED_OP.value)
        event = _event_of(record)
        found = _decoded(self.inner, value, _wrapped(event) if is_wrapped else event)
        found = found["payload"] if is_wrapped else found
        made: dict[str, Any] = {}
        for name, of in record.fields:
            if of.origin == _OP:
                made[name] = done
            elif of.origin == _TS:
                made[name] = _time(found["source"]["ts_ms"])
            else:
                made[name] = found["before"] if of.origin == _BEFORE else found["after"][name]
        return made

    def _operation(self, value: bytes) -> tuple[bool, str | None]:
        """Whether an event is inside a payload, and its operation."""
        if not isinstance(self.inner, Json):
            return False, _decoded(self._inner_of_heads, value, _HEAD)["op"]
        head = _decoded(self.inner, value, _WRAPPED_HEAD)
        return head["payload"] is not None, (head["payload"] or head)["op"]

    @cached_property
    def _inner_of_heads(self) -> RecordFormat:
        """A second instance, because a format of Avro holds the readers of one record type."""
        made = copy(self.inner)
        vars(made).pop("_readers", None)
        return made

    def encode(self, record: object) -> bytes:
        """See `RecordFormat`; a change without an operation creates the row."""
        given = dict(fields_of(record))
        declared = {} if isinstance(record, Mapping) else origins_of(type(record), _FAMILY)
        named = {origin.name: given.pop(name) for name, origin in declared.items()}
        found = {name: None if isinstance(value, Origin) else value for name, value in named.items()}
        at = found.get(_TS)
        ms = 0 if at is None else epoch_ms(at)
        event = {"before": found.get(_BEFORE), "after": given, "source": {"ts_ms": ms}, "op": found.get(_OP) or "c"}
        return self.inner.encode(event)

    def freeze(self) -> Mapping[str, str]:
        """See `RecordFormat`; the options of the inner format begin with `inner.`."""
        inner = {f"{_INNER}{name}": text for name, text in self.inner.freeze().items()}
        return {"format": self.name, **inner}

    @classmethod
    def thaw(cls, options: Mapping[str, str], format_of: Callable[[Mapping[str, str]], RecordFormat | None]) -> Any:  # noqa: ANN401
        """See `RecordFormat`."""
        inner = format_of({name.removeprefix(_INNER): text for name, text in options.items()})
        return None if inner is None else cls(inner)


_INNER = "inner."


def _decoded(inner: RecordFormat, value: bytes, struct: FieldType) -> dict[str, Any]:
    try:
        return inner.decode_one(value, struct)
    except BadRecord as error:
        reason, colon, path = str(error).partition(": ")
        own = path.removeprefix("payload.").removeprefix("after.")
        raise BadRecord(f"{reason}{colon}{own}") from error


def _member(variant: str, path: str) -> str:
    return f"try_variant_get({variant}, '{path}', 'variant')"


def _is_no_text(variant: str) -> str:
    return f"schema_of_variant({variant}) NOT IN ('STRING', 'VOID')"


def _misfit_sql(record: FieldType) -> str:
    """Returns the reason of a field, with the path from the row on; then that of a time that no datetime holds."""
    own = "regexp_replace(_misfit, '^([a-z_]+: )after[.]', '$1')"
    if all(of.origin != _TS for _, of in record.fields):
        return own
    return f"coalesce({own}, CASE WHEN NOT {_FITS} THEN '{Reason.OUT_OF_RANGE.at(_TS_PATH)}' END)"


def _row_sql(record: FieldType) -> str:
    """Returns the record as a struct of a decoded event."""
    known = {
        _OP: "_op",
        _TS: f"timestamp_millis(CASE WHEN {_FITS} THEN _found.source.ts_ms END)",
        _BEFORE: "_found.before",
    }
    fields = (f"'{name}', {known.get(of.origin) or f'_found.after.`{name}`'}" for name, of in record.fields)
    return f"named_struct({', '.join(fields)})"


def _time(ms: int) -> datetime:
    if not _LEAST_MS <= ms <= _MOST_MS:
        raise BadRecord(Reason.OUT_OF_RANGE.at(_TS_PATH))
    return _EPOCH + timedelta(milliseconds=ms)


@cache
def _event_of(record: FieldType) -> FieldType:
    """The struct of a whole event, as far as a record needs it."""
    own = {of.origin: of for _, of in record.fields if of.origin}
    row = tuple((name, of) for name, of in record.fields if not of.origin)
    found = [("after", FieldType("struct", fields=row))]
    found += [("before", own[_BEFORE].with_origin(""))] if _BEFORE in own else []
    found += [("source", _SOURCE)] if _TS in own else []
    return FieldType("struct", fields=tuple(found))


@cache
def _wrapped(event: FieldType) -> FieldType:
    return FieldType("struct", fields=(("payload", event),))
