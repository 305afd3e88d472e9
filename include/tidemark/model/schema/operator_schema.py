"""The stored schema of one operator: key columns, state fields, and the columns that store each field.

It is bound from a declaration (`declare.operators`), written to every manifest, and read from there, so that you can
read state without the code that created it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from tidemark.errors import UsageError
from tidemark.model.core.canonical import checksum
from tidemark.model.core.ttl import Clock, Ttl
from tidemark.model.core.types import FieldType, type_from_json, type_to_json
from tidemark.model.portable_sql import custom_aggregate as aggregates
from tidemark.model.portable_sql.custom_aggregate import Aggregate
from tidemark.model.portable_sql.record_expression import RecordExpression
from tidemark.model.schema.event_windows import END, START, StoredWindow
from tidemark.model.schema.interval_joins import StoredJoin, join_from_json
from tidemark.model.schema.lookup_joins import Join

if TYPE_CHECKING:
    from tidemark.model.kinds.base.kind import FoldKind, StateKind
    from tidemark.model.kinds.base.process_kind import ProcessKind

# Finds a kind by its name in declarations and manifests.
KNOWN: "dict[str, type[StateKind]]" = {}
"""The class of every kind by name; filled as their files are loaded, completely by `kinds.registry`."""


@cache
def state_kind(name: str) -> "StateKind":
    """Returns the kind with a name.

    Raises:
        UsageError: this release has no such kind.
    """
    # The file of a kind has its name. It is imported on first use, because it needs the schema module that calls this
    # function, and because most commands need no kind.
    home = f"tidemark.model.kinds.{name}"
    if name not in KNOWN and name.isidentifier():
        try:
            import_module(home)
        except ModuleNotFoundError as error:
            if error.name != home:
                raise
    if name not in KNOWN:
        import_module("tidemark.model.kinds.registry")
        raise UsageError(
            f"this release has no kind of state called {name}; there are {', '.join(sorted(KNOWN))}",
            next="use the release of Tidemark that wrote this state.",
        )
    return KNOWN[name]()


def fold_kind(name: str) -> "FoldKind":
    """Returns the kind of a field of a fold."""
    from tidemark.model.kinds.base.kind import FoldKind

    found = state_kind(name)
    assert isinstance(found, FoldKind)  # noqa: S101  (for the type checker: an operator has fields of its own kinds only)
    return found


def process_kind(name: str) -> "ProcessKind":
    """Returns the kind of a field of a process."""
    from tidemark.model.kinds.base.process_kind import ProcessKind

    found = state_kind(name)
    assert isinstance(found, ProcessKind)  # noqa: S101  (for the type checker: see `fold_kind`)
    return found


def with_state(schemas: "Mapping[str, OperatorSchema]") -> "dict[str, OperatorSchema]":
    """Returns the schemas of the operators that keep state, by uid, in the same order."""
    return {uid: schema for uid, schema in schemas.items() if schema.keeps_state}


KEY_GROUPS = 128
"""Key groups of a new operator; `_key_group` is only the sort prefix inside a file."""
OperatorKind = Literal["fold", "process", "flat_map"]
ACCESS_COLUMNS = (("_first_at", FieldType("int", nullable=True)), ("_last_at", FieldType("int", nullable=True)))
"""In every row: first and last access in milliseconds on the operator's clock; first is null if it equals last."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A key column.

    Attributes:
        name: its name in the table.
        source: the record path it comes from, or the text of an expression.
        type: its type, never null.
        inputs: of an expression, the record fields in it and their types; None = `source` is a path.
        of_window: whether it is a bound of the record's window, and `source` only says which windows; of an interval
            join also its side and its position, which are in the joined record.
    """

    name: str
    source: str
    type: FieldType
    inputs: tuple[tuple[str, FieldType], ...] | None = None
    of_window: bool = False

    @property
    def expression(self) -> RecordExpression | None:
        """The expression that makes the column; None if it is a field of the record, or a bound of its window."""
        return None if self.inputs is None or self.of_window else RecordExpression(self.source, self.inputs)

    @property
    def paths(self) -> tuple[str, ...]:
        """The record paths that it is made from."""
        return (self.source,) if self.inputs is None else tuple(path for path, _ in self.inputs)


@dataclass(frozen=True, kw_only=True)
class StoredField:
    """A state field bound to the record type. It has no slots, so that its columns, used often, are computed once.

    Attributes:
        name: name of the field.
        kind: name of its kind; see `model.kinds`.
        source: record path, empty for `count` and for fields of a process.
        over: type of the record field; for a process, type of the value, the element or the entry's value.
        type: type of the finished value.
        ignore_nulls: see `StateDescriptor`.
        limit: see `StateDescriptor`.
        initial: see `StateDescriptor`; None, a bool, a number, a text, or the JSON text of a value of another type.
        ttl: see `StateDescriptor`.
        aggregate: of `aggregate` and `reduce`: the expressions and types, bound to the record.
        options: see `StateDescriptor`.
        others: further record paths that it is computed from, and their types.
        was: see `StateDescriptor`; only in declarations, never in manifests.
    """

    name: str
    kind: str
    source: str
    over: FieldType
    type: FieldType
    ignore_nulls: bool = False
    limit: int = 1000
    initial: Any = None
    ttl: Ttl | None = None
    aggregate: Aggregate | None = None
    options: tuple[tuple[str, str], ...] = ()
    others: tuple[tuple[str, FieldType], ...] = ()
    was: str = field(default="", compare=False)

    @property
    def state_kind(self) -> "StateKind":
        """Its kind.

        Raises:
            UsageError: this release does not have it.
        """
        return state_kind(self.kind)

    @property
    def fold_kind(self) -> "FoldKind":
        """The kind of a field of a fold; raises as `state_kind`."""
        return fold_kind(self.kind)

    @property
    def process_kind(self) -> "ProcessKind":
        """The kind of a field of a process; raises as `state_kind`."""
        return process_kind(self.kind)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The record paths that it is computed from."""
        return self.state_kind.inputs(self)

    @property
    def exact(self) -> bool:
        """Whether regrouping gives equal bits; false for floating-point sums and means."""
        return self.state_kind.is_exact(self)

    @property
    def is_cut(self) -> bool:
        """Whether history is cut before operands are combined: a field of a fold with a ttl of the whole value."""
        if self.ttl is None or not self.ttl.hides:
            return False
        return not (self.state_kind.is_process or self.state_kind.expires_by_element)

    @cached_property
    def accumulators(self) -> tuple[tuple[str, FieldType], ...]:
        """The columns of the table that hold the field, in order; for a map those of an entry."""
        return self.state_kind.accumulators(self)

    @cached_property
    def columns(self) -> tuple[tuple[str, FieldType], ...]:
        """The accumulators, and if a ttl needs it, the column that cuts them off from older rows."""
        return (
            (*self.accumulators, (f"{self.name}__cut", FieldType("bool", nullable=True)))
            if self.is_cut
            else self.accumulators
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How to read a folder of tables that an earlier schema has written.

    Attributes:
        folder: `<pipeline>/state/<uid>/<timeline>-<n>`, relative to the warehouse.
        fields: the form of each current field in that folder, by its current name; omitted if it is not there.
        has_entries: whether its rows have `_field`.
    """

    folder: str
    fields: Mapping[str, StoredField]
    has_entries: bool


@dataclass(frozen=True, slots=True)
class OperatorSchema:
    """Keys and fields of one operator, in declaration order.

    Attributes:
        uid: the operator.
        keys: its key columns, and behind them those of its window: rows merge by all of them.
        fields: its state fields.
        key_groups: number of key groups.
        kind: rows of a `fold` are operands, values and tombstones per key; rows of a `process` are values and
            tombstones, per key and per entry of a map. A `flat_map` has no rows, no keys and no fields.
        clock: the clock of access times.
        deletes: whether a fold takes records without a value as deletes of the key in the message key.
        joins: the joins of a fold; paths of keys and fields may go through them.
        older: folders that a handle may name with other columns than those of this schema (`model.state.evolution`).
        patched: of a fold, id of the checkpoint that patched its state, until a compaction has absorbed that; 0 = none.
        where: the condition of the records that the operator takes; None = it takes all.
        changes: whether its records are changes of rows (`RecordFormat.has_changes`).
        window: the windows of a fold, or the life of the rows of an interval join; None = it has one row per key.
        keeps_late: whether records whose window has closed are rows of an output, instead of dead letters.
        co_inputs: the inputs of a process that has several; see `model.schema.united_records`.
        was: the previous uid of the state; only in declarations, never in manifests.
    """

    uid: str
    keys: tuple[KeyColumn, ...]
    fields: tuple[StoredField, ...]
    key_groups: int = KEY_GROUPS
    kind: OperatorKind = "fold"
    clock: Clock = "event_time"
    deletes: bool = False
    joins: tuple[Join, ...] = ()
    older: tuple[Layout, ...] = ()
    patched: int = 0
    where: RecordExpression | None = None
    changes: bool = False
    window: StoredWindow | None = None
    keeps_late: bool = False
    co_inputs: tuple[str, ...] = field(default=(), compare=False)
    was: str = field(default="", compare=False)

    @property
    def own_keys(self) -> tuple[KeyColumn, ...]:
        """The key columns without those of a window: key groups, erasures and point reads go by them."""
        return self.keys if self.window is None else tuple(k for k in self.keys if not k.of_window)

    @property
    def found_by(self) -> tuple[KeyColumn, ...]:
        """The columns that find all stored rows of a row: its key, and its window unless the bounds may differ."""
        return self.keys if self.window is None or self.window.has_row_per_window else self.own_keys

    @property
    def has_row_keys(self) -> bool:
        """Whether the message key of each record is its key, and the order of positions that of its versions."""
        return self.changes and self.kind == "fold"

    @property
    def keeps_state(self) -> bool:
        """Whether the operator has state. Without any, its handle is empty in every checkpoint."""
        return self.kind != "flat_map"

    @property
    def has_function(self) -> bool:
        """Whether it passes its records to a function of the author."""
        return self.kind != "fold"

    @property
    def emits(self) -> bool:
        """Whether it may emit: its function does, or its windows close."""
        return self.has_function or self.window is not None

    @property
    def fingerprint(self) -> str:
        """sha256 over the JSON form without what no table depends on: equal fingerprints share tables."""
        return checksum(replace(self, older=(), patched=0, where=None, keeps_late=False, co_inputs=()).to_json())

    @property
    def declared(self) -> "OperatorSchema":
        """The schema without what the first plan freezes of its windows."""
        return self if self.window is None else replace(self, window=self.window.declared)

    def layout(self, table: str) -> Layout | None:
        """Returns how to read a table named by a segment; None if it has the columns of this schema."""
        folder = table.rpartition("/")[0]
        return next((found for found in self.older if found.folder == folder), None)

    @property
    def maps(self) -> tuple[StoredField, ...]:
        """The fields that store a row per entry."""
        return tuple(f for f in self.fields if f.state_kind.is_stored_by_entry)

    @property
    def timers(self) -> StoredField | None:
        """The timers of a process, an entry per name: the time at which it fires (adr/0056); None = it has none."""
        return next((f for f in self.fields if f.options == OF_TIMERS), None)

    @property
    def shadows(self) -> bool:
        """Whether a row of a fold may hide older rows: a tombstone of a delete, or a row of a patch."""
        return self.deletes or bool(self.patched)

    @property
    def is_plain(self) -> bool:
        """Whether rows of a key merge in any order: a fold without rows that hide others and without a cut by ttl."""
        return self.kind == "fold" and not self.shadows and not any(f.is_cut for f in self.fields)

    @property
    def bounded_columns(self) -> tuple[str, ...]:
        """The columns of a run that get a minimum and maximum in the log: the keys and the key group."""
        return (*(k.name for k in self.keys), "_key_group")

    @property
    def is_portable(self) -> bool:
        """Whether engines other than Spark can merge the rows: no aggregate is declared `spark_only`."""
        return not any(f.aggregate is not None and f.aggregate.spark_only for f in self.fields)

    def joined_by(self, paths: Iterable[str]) -> tuple[Join, ...]:
        """Returns the joins that the record paths go through."""
        return tuple(join for join in self.joins if any(join.leads(path) for path in paths))

    @property
    def is_decided_by_joins(self) -> bool:
        """Whether its key or its condition is joined: then a record alone does not show whether it is applied."""
        return bool(self.several_inputs or self.joined_by(self.deciding_paths))

    @property
    def interval_join(self) -> StoredJoin | None:
        """The keys and distances of an interval join; None if it is none."""
        return self.window if isinstance(self.window, StoredJoin) else None

    @property
    def several_inputs(self) -> tuple[str, ...]:
        """The names of its inputs if it has several; otherwise empty."""
        return self.co_inputs if self.interval_join is None else self.interval_join.inputs

    @property
    def deciding_paths(self) -> tuple[str, ...]:
        """The record paths in its key and its condition."""
        found = tuple(path for k in self.keys for path in k.paths)
        return found if self.where is None else (*found, *self.where.paths)

    def to_json(self) -> dict[str, Any]:
        """Returns the form for manifests; without joins and patches it is the form of releases that had none."""
        joins = [{"uid": join.uid, "on": list(join.on)} for join in self.joins]
        added: dict[str, Any] = {"joins": joins} if joins else {}
        added |= {"patched": self.patched} if self.patched else {}
        added |= {"changes": True} if self.changes else {}
        added |= {} if self.where is None else {"where": self.where.to_json(type_to_json)}
        added |= {} if self.window is None else {"window": self.window.to_json()}
        added |= {"keeps_late": True} if self.keeps_late else {}
        added |= {"co_inputs": list(self.co_inputs)} if self.co_inputs else {}
        return added | {
            "uid": self.uid,
            "kind": self.kind,
            "clock": self.clock,
            "deletes": self.deletes,
            "key_groups": self.key_groups,
            "keys": [_key_to_json(k) for k in self.keys],
            "fields": [_field_to_json(f) for f in self.fields],
            "older": [_layout_to_json(found) for found in self.older],
        }

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "OperatorSchema":
        """The inverse of `to_json`."""
        return cls(
            uid=body["uid"],
            kind=body["kind"],
            clock=body["clock"],
            deletes=body["deletes"],
            key_groups=body["key_groups"],
            keys=tuple(map(_key_from_json, body["keys"])),
            fields=tuple(_field_from_json(f) for f in body["fields"]),
            joins=tuple(Join(j["uid"], tuple(j["on"])) for j in body.get("joins", ())),
            older=tuple(_layout_from_json(found) for found in body["older"]),
            patched=body.get("patched", 0),
            where=RecordExpression.from_json(body["where"], type_from_json) if "where" in body else None,
            changes=body.get("changes", False),
            window=_window_from_json(body["window"]) if "window" in body else None,
            keeps_late=body.get("keeps_late", False),
            co_inputs=tuple(body.get("co_inputs", ())),
        )


def _window_from_json(body: dict[str, Any]) -> StoredWindow:
    return join_from_json(body) if body["kind"] == StoredJoin.kind else StoredWindow.from_json(body)


def _key_to_json(k: KeyColumn) -> dict[str, Any]:
    """Returns the form for manifests; that of a record field is the one of releases that had no expressions."""
    inputs = {} if k.inputs is None else {"inputs": [[path, type_to_json(of)] for path, of in k.inputs]}
    of_window = {"of_window": True} if k.of_window else {}
    return {"name": k.name, "source": k.source, "type": type_to_json(k.type), **inputs, **of_window}


def _key_from_json(body: dict[str, Any]) -> KeyColumn:
    inputs = body.get("inputs")
    of = None if inputs is None else tuple((path, type_from_json(t)) for path, t in inputs)
    return KeyColumn(body["name"], body["source"], type_from_json(body["type"]), of, body.get("of_window", False))


def _layout_to_json(found: Layout) -> dict[str, Any]:
    fields = {name: _field_to_json(f) for name, f in found.fields.items()}
    return {"folder": found.folder, "fields": fields, "has_entries": found.has_entries}


def _layout_from_json(body: dict[str, Any]) -> Layout:
    fields = {name: _field_from_json(f) for name, f in body["fields"].items()}
    return Layout(folder=body["folder"], fields=fields, has_entries=body["has_entries"])


def _field_to_json(f: StoredField) -> dict[str, Any]:
    """Returns the form for manifests; attributes of few kinds are omitted if the field does not have them."""
    options = {"options": dict(f.options)} if f.options else {}
    others = {"others": [[path, type_to_json(of)] for path, of in f.others]} if f.others else {}
    return {
        "name": f.name,
        "kind": f.kind,
        "source": f.source,
        "over": type_to_json(f.over),
        "type": type_to_json(f.type),
        "ignore_nulls": f.ignore_nulls,
        "limit": f.limit,
        "initial": f.initial,
        "ttl": None if f.ttl is None else f.ttl.to_json(),
        "aggregate": None if f.aggregate is None else aggregates.to_json(f.aggregate, type_to_json),
        **options,
        **others,
    }


def _field_from_json(body: dict[str, Any]) -> StoredField:
    return StoredField(
        name=body["name"],
        kind=body["kind"],
        source=body["source"],
        over=type_from_json(body["over"]),
        type=type_from_json(body["type"]),
        ignore_nulls=body["ignore_nulls"],
        limit=body["limit"],
        initial=body["initial"],
        ttl=None if body["ttl"] is None else Ttl.from_json(body["ttl"]),
        aggregate=None if body["aggregate"] is None else aggregates.from_json(body["aggregate"], type_from_json),
        options=tuple(body.get("options", {}).items()),
        others=tuple((path, type_from_json(of)) for path, of in body.get("others", ())),
    )


def window_columns(window: StoredWindow) -> tuple[KeyColumn, KeyColumn]:
    """Returns the columns of a window, which follow those of the key."""
    bound = FieldType("timestamp")
    start, end = (KeyColumn(name, f"{name} of {window.shown}", bound, (), of_window=True) for name in (START, END))
    return start, end


OF_TIMERS = (("holds", "timers"),)
"""The options of the map that holds the timers of a process; no map of an author has any."""
RUN_COLUMNS = (("_kind", "STRING"), ("_changed", "BIGINT"), ("_key_group", "INT"))


def run_columns(schema: OperatorSchema) -> tuple[tuple[str, str], ...]:
    """Returns the columns of an operator's `runs` and `base` tables, before the partition columns.

    A process with maps also has `_field`: null in the row of a key, the field's name in the row of an entry.
    """
    keys = tuple((k.name, k.type.sql) for k in schema.keys)
    held = tuple((name, t.sql) for f in schema.fields for name, t in f.columns)
    if schema.kind == "process":
        return (*keys, *((("_field", "STRING"),) if schema.maps else ()), *held, *RUN_COLUMNS)
    return (*keys, *held, *((name, t.sql) for name, t in ACCESS_COLUMNS), *RUN_COLUMNS)
