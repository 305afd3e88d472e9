"""Draws the graph of columns of a declaration, or of the one that a plan records.

The schemas say how an operator makes its keys and fields; `DeclaredColumns` has the rest. Dependencies that no function
can add are exact; a function that does not declare `reads=` may use any field that it gets.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tidemark.model.columns.column_graph import (
    AGGREGATION,
    CONDITIONAL,
    DIRECT,
    FILTER,
    GROUP_BY,
    IDENTITY,
    INDIRECT,
    JOIN,
    OUTPUT,
    PUBLICATION,
    ROWS,
    SINK,
    SORT,
    SOURCE,
    STATE,
    TRANSFORMATION,
    WINDOW,
    ColumnDataset,
    ColumnGraph,
    ColumnRef,
    Dependency,
    Influence,
)
from tidemark.model.columns.declared_columns import DeclaredColumns, OperatorColumns
from tidemark.model.kinds.base.placed import PlacedValue
from tidemark.model.schema.event_windows import END, START
from tidemark.model.schema.interval_joins import LEFT, MATCHED, RECORDS, RIGHT
from tidemark.model.schema.operator_schema import KeyColumn, OperatorSchema, StoredField

FUNCTION = "a function"
"""How a function of an author makes a column."""
CHANGELOG = "delta-changelog"
"""The kind of publication that has each column before and after a change."""


def draw_columns(schemas: Mapping[str, OperatorSchema], declared: DeclaredColumns) -> ColumnGraph:
    """Returns the columns of a pipeline and their dependencies.

    Args:
        schemas: the stored schema per uid.
        declared: the declaration behind them.
    """
    drawing = _Drawing(schemas, declared)
    for name, source in declared.sources.items():
        drawing.add(SOURCE, name, "", dict.fromkeys(source.fields, ""), place=source.table)
    for uid in schemas:
        if uid not in declared.operators and uid in declared.sources:
            drawing.add_broadcast(uid)
    for uid in _in_order(declared):
        if uid in schemas:
            drawing.add_operator(uid)
    for name, publication in declared.publications.items():
        if publication.uid in schemas:
            drawing.add_publication(name, publication.uid)
    return ColumnGraph(datasets=drawing.datasets, dependencies=drawing.dependencies)


def _in_order(declared: DeclaredColumns) -> Iterator[str]:
    """The operators, each after those whose rows it gets: a plan lists them by name."""
    waiting = dict(declared.operators)
    while waiting:
        missing = {output for operator in waiting.values() for output in operator.outputs}
        ready = [uid for uid, operator in waiting.items() if not missing.intersection(operator.inputs)]
        for uid in ready or list(waiting):
            yield uid
            del waiting[uid]


class _Drawing:
    """A graph under construction."""

    def __init__(self, schemas: Mapping[str, OperatorSchema], declared: DeclaredColumns) -> None:
        self._found: dict[tuple[str, str], ColumnDataset] = {}
        self.dependencies: dict[ColumnRef, tuple[Dependency, ...]] = {}
        self._schemas = schemas
        self._declared = declared
        self._writers = {output: uid for uid, of in declared.operators.items() for output in of.outputs}

    def add(self, kind: str, name: str, uid: str, columns: Mapping[str, str], *, place: str = "") -> None:
        """Adds a dataset; `columns` has the expression that makes each one."""
        self._found[kind, name] = ColumnDataset(kind=kind, name=name, uid=uid, place=place, columns=dict(columns))

    @property
    def datasets(self) -> tuple[ColumnDataset, ...]:
        """All datasets so far."""
        return tuple(self._found.values())

    def add_broadcast(self, uid: str) -> None:
        """Adds the state of a broadcast: the newest row of each key of its records."""
        schema = self._schemas[uid]
        names = [*(k.name for k in schema.keys), *(f.name for f in schema.fields)]
        state = self._dataset(STATE, uid, uid, dict.fromkeys(names, ""))
        event_time = self._declared.sources[uid].event_time
        latest = _on(INDIRECT, SORT, self._source(uid, event_time) if event_time else ())
        self._depend(state.rows, _on(INDIRECT, GROUP_BY, _each(self._source(uid, k.source) for k in schema.keys)))
        for key in schema.keys:
            self._depend(ColumnRef(STATE, uid, key.name), _on(DIRECT, IDENTITY, self._source(uid, key.source)))
        for f in schema.fields:
            self._depend(ColumnRef(STATE, uid, f.name), _on(DIRECT, IDENTITY, self._source(uid, f.source)), latest)

    def add_operator(self, uid: str) -> None:
        """Adds the state, the outputs and the sinks of an operator."""
        schema, operator = self._schemas[uid], self._declared.operators[uid]
        if schema.interval_join is not None:
            self._add_join(schema, operator)
        elif schema.has_function:
            self._add_function(schema, operator)
        else:
            self._add_fold(schema, operator)
        for output, of in operator.outputs.items():
            if of.sink:
                sink = self._dataset(SINK, of.sink, uid, dict.fromkeys(of.columns, ""))
                self._copy(sink, ColumnRef(OUTPUT, output, ROWS), {column: column for column in of.columns})

    def add_publication(self, name: str, uid: str) -> None:
        """Adds the target of a publication: the columns of the state, in a changelog before and after a change."""
        published = self._declared.publications[name]
        schema = self._schemas[uid]
        keys, fields = [k.name for k in schema.keys], [f.name for f in schema.fields]
        sides = ("before.", "after.") if published.kind == CHANGELOG else ("",)
        columns = {key: key for key in keys} | {f"{side}{name}": name for side in sides for name in fields}
        target = self._dataset(PUBLICATION, name, uid, dict.fromkeys(columns, ""), place=published.place)
        self._copy(target, ColumnRef(STATE, uid, ROWS), columns)

    # Operators

    def _add_fold(self, schema: OperatorSchema, operator: OperatorColumns) -> None:
        uid, (read, *_) = schema.uid, operator.inputs
        columns = {k.name: _key_text(k) for k in schema.keys} | {f.name: _field_text(f) for f in schema.fields}
        state = self._dataset(STATE, uid, uid, columns)
        times = self._times(uid)
        self._depend(
            state.rows,
            self._rows_of(operator),
            self._deciding(schema, read, GROUP_BY, (path for k in schema.own_keys for path in k.paths)),
            self._deciding(schema, read, FILTER, schema.where.paths if schema.where is not None else ()),
            _on(INDIRECT, WINDOW, times if schema.window is not None else ()),
            self._expiry(schema),
        )
        for key in schema.keys:
            at = ColumnRef(STATE, uid, key.name)
            if key.of_window:
                self._depend(at, _on(DIRECT, TRANSFORMATION, times))
            else:
                subtype = IDENTITY if key.inputs is None else TRANSFORMATION
                self._depend(at, *(self._fold_path(schema, read, path, subtype) for path in key.paths))
        for f in schema.fields:
            self._depend(ColumnRef(STATE, uid, f.name), *self._folded(schema, read, f, times))
        for output, of in operator.outputs.items():
            rows = ColumnRef(OUTPUT, output, ROWS)
            self._dataset(OUTPUT, output, uid, dict.fromkeys(of.columns, ""))
            if output == uid:
                self._copy(rows, state.rows, {column: column for column in of.columns if column in columns})
                continue
            # Late records as they came.
            self._copy(rows, self._input(read).rows, {column: column for column in of.columns}, by_path=read)
            self._depend(
                rows,
                _on(INDIRECT, WINDOW, times),
                self._deciding(schema, read, FILTER, schema.deciding_paths),
            )

    def _folded(
        self, schema: OperatorSchema, read: str, f: StoredField, times: Sequence[ColumnRef]
    ) -> Iterator[Iterable[Dependency]]:
        """What a field of a fold is computed from, and what chooses among the records of its key."""
        is_one = isinstance(f.state_kind, PlacedValue)
        ranks = {path for path, _ in f.others} if is_one else set()
        for path in filter(None, f.inputs):
            if path in ranks:
                yield self._deciding(schema, read, SORT, [path])
            if path not in ranks or path == f.source:
                yield self._fold_path(schema, read, path, IDENTITY if is_one else AGGREGATION)
        # Versions of a changed row are ordered by their positions, everything else by event time first.
        if is_one and not schema.has_row_keys:
            yield _on(INDIRECT, SORT, times)

    def _add_function(self, schema: OperatorSchema, operator: OperatorColumns) -> None:
        uid = schema.uid
        names = [f.name for f in schema.fields]
        own = [name for name in names if schema.timers is None or name != schema.timers.name]
        columns = {k.name: _key_text(k) for k in schema.keys} | dict.fromkeys(names, FUNCTION)
        state = ColumnRef(STATE, uid, ROWS)
        if schema.keeps_state:
            self._dataset(STATE, uid, uid, columns)
        emitted = [column for of in operator.outputs.values() for column in of.columns]
        times = self._times(uid) if operator.by_event_time else ()
        decide: list[Iterable[Dependency]] = [
            self._rows_of(operator),
            self._where(schema, operator),
            self._read(operator, operator.reads_of_rows([*own, *emitted]), INDIRECT, CONDITIONAL),
            _on(INDIRECT, SORT, times),
        ]
        behind: list[Iterable[Dependency]] = [_on(INDIRECT, ROWS, [state])] if schema.keeps_state else decide
        keys = self._keys_of_function(schema, operator)
        if schema.keeps_state:
            group = _on(INDIRECT, GROUP_BY, _each(refs for refs in keys.values()))
            self._depend(state, *decide, group, self._expiry(schema))
            for key in schema.keys:
                subtype = IDENTITY if key.inputs is None else TRANSFORMATION
                self._depend(ColumnRef(STATE, uid, key.name), _on(DIRECT, subtype, keys[key.name]))
            for name in names:
                made = self._read(operator, operator.reads_of(name), DIRECT, TRANSFORMATION)
                self._depend(ColumnRef(STATE, uid, name), made)
        for output, of in operator.outputs.items():
            rows = self._dataset(OUTPUT, output, uid, dict.fromkeys(of.columns, FUNCTION))
            self._depend(rows, *behind)
            for column in of.columns:
                made = self._read(operator, operator.reads_of(column), DIRECT, TRANSFORMATION)
                self._depend(ColumnRef(OUTPUT, output, column), made)

    def _add_join(self, schema: OperatorSchema, operator: OperatorColumns) -> None:
        uid, join, (left, right) = schema.uid, schema.interval_join, operator.inputs
        assert join is not None  # noqa: S101  (for the type checker)
        columns = {k.name: "" if k.of_window else f"{left}.{k.name}" for k in schema.keys}
        state = self._dataset(STATE, uid, uid, columns | {f.name: "" for f in schema.fields})
        times = self._times(uid)
        pairs = [(*self._record(left, one), *self._record(right, other)) for one, other in join.keys]
        decide = (_on(INDIRECT, JOIN, _each(pairs)), _on(INDIRECT, WINDOW, times))
        self._depend(state, self._rows_of(operator), *decide)
        for key, pair in zip(schema.own_keys, pairs, strict=True):
            self._depend(ColumnRef(STATE, uid, key.name), _on(DIRECT, IDENTITY, pair))
        for bound in (START, END):
            self._depend(ColumnRef(STATE, uid, bound), _on(DIRECT, TRANSFORMATION, times))
        for side, name in ((LEFT, left), (RIGHT, right)):
            whole = self._columns(self._input(name))
            self._depend(ColumnRef(STATE, uid, RECORDS[side]), _on(DIRECT, IDENTITY, whole))
        self._depend(ColumnRef(STATE, uid, MATCHED), *decide)
        for output, of in operator.outputs.items():
            rows = self._dataset(OUTPUT, output, uid, dict.fromkeys(of.columns, ""))
            self._depend(rows, _on(INDIRECT, ROWS, [state]))
            for column in of.columns:
                selected = self._read(operator, operator.reads_of(column), DIRECT, IDENTITY)
                self._depend(ColumnRef(OUTPUT, output, column), selected)

    # Parts of dependencies

    def _rows_of(self, operator: OperatorColumns) -> Iterable[Dependency]:
        """The rows of its inputs: whether they are there decides the rows of an operator."""
        inputs = [self._input(name).rows for name in operator.inputs]
        named = {name for reads in operator.reads.values() for name in reads}
        looked_up = [ColumnRef(STATE, uid, ROWS) for uid in operator.broadcasts if not operator.reads or uid in named]
        return _on(INDIRECT, ROWS, [*(ref for ref in inputs if ref.kind != SOURCE), *looked_up])

    def _where(self, schema: OperatorSchema, operator: OperatorColumns) -> Iterable[Dependency]:
        paths = () if schema.where is None else schema.where.paths
        return _on(INDIRECT, FILTER, _each(self._record(operator.inputs[0], path) for path in paths))

    def _expiry(self, schema: OperatorSchema) -> Iterable[Dependency]:
        """State that expires by event time does so by the watermark, to which every source contributes."""
        if not any(f.ttl is not None and f.ttl.clock == "event_time" for f in schema.fields):
            return ()
        sources = [name for name in self._declared.sources if name not in self._schemas]
        return _on(INDIRECT, FILTER, _each(self._event_time(name) for name in sources))

    def _deciding(self, schema: OperatorSchema, read: str, subtype: str, paths: Iterable[str]) -> Iterable[Dependency]:
        """Record fields, and fields of joined rows, that decide which records count."""
        for path in paths:
            for dependency in self._fold_path(schema, read, path, IDENTITY):
                if dependency.influence.type == DIRECT:
                    yield Dependency(dependency.on, Influence(INDIRECT, subtype))
                else:
                    yield dependency

    def _fold_path(self, schema: OperatorSchema, read: str, path: str, subtype: str) -> Iterable[Dependency]:
        """A path of the joined record: a field of the record, or one of a joined row and that which finds the row."""
        join = next((join for join in schema.joins if join.leads(path)), None)
        if join is None:
            yield from _on(DIRECT, subtype, self._record(read, path))
            return
        state = ColumnRef(STATE, join.uid, ROWS)
        row = self._columns(state, path.partition(".")[2])
        keys = [ColumnRef(STATE, join.uid, key.name) for key in self._schemas[join.uid].keys]
        yield from _on(DIRECT, subtype, row)
        yield from _on(INDIRECT, JOIN, [*_each(self._record(read, on) for on in join.on), *keys])
        yield from _on(INDIRECT, ROWS, [state])

    def _keys_of_function(self, schema: OperatorSchema, operator: OperatorColumns) -> dict[str, list[ColumnRef]]:
        """The fields that make each key column; of several inputs those of each."""
        if operator.keys:
            pairs = [(key, n) for n, key in enumerate(schema.own_keys)]
            return {
                key.name: _each(self._record(name, operator.keys[name][n]) for name in operator.inputs)
                for key, n in pairs
            }
        (name,) = operator.inputs
        return {key.name: _each(self._record(name, path) for path in key.paths) for key in schema.keys}

    def _read(
        self, operator: OperatorColumns, reads: Mapping[str, tuple[str, ...]] | None, kind: str, subtype: str
    ) -> Iterable[Dependency]:
        """What a function reads; everything that it gets, unless it says so."""
        names = (*operator.inputs, *operator.broadcasts)
        if reads is None:
            found = _each(self._columns(self._read_dataset(operator, name)) for name in names)
            return _on(kind, subtype, found, is_opaque=True)
        pairs = [(name, path) for name, paths in reads.items() if name in names for path in paths]
        return _on(
            kind, subtype, _each(self._columns(self._read_dataset(operator, name), path) for name, path in pairs)
        )

    def _read_dataset(self, operator: OperatorColumns, name: str) -> ColumnRef:
        return self._input(name) if name in operator.inputs else ColumnRef(STATE, name, ROWS)

    def _times(self, uid: str) -> list[ColumnRef]:
        """The fields with the event times of the records that an operator gets, through all operators before it."""
        found: dict[ColumnRef, None] = {}
        waiting, seen = [uid], set[str]()
        while waiting:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            for name in self._declared.operators[at].inputs:
                if name in self._writers:
                    waiting.append(self._writers[name])
                else:
                    found |= dict.fromkeys(self._event_time(name))
        return list(found)

    def _event_time(self, source: str) -> list[ColumnRef]:
        path = self._declared.sources[source].event_time
        return self._source(source, path) if path else []

    # Columns

    def _dataset(self, kind: str, name: str, uid: str, columns: Mapping[str, str], *, place: str = "") -> ColumnRef:
        """Adds a dataset whose columns depend on its rows; returns the node for them."""
        self.add(kind, name, uid, columns, place=place)
        rows = ColumnRef(kind, name, ROWS)
        for column in columns:
            self._depend(ColumnRef(kind, name, column), _on(INDIRECT, ROWS, [rows]))
        return rows

    def _copy(self, to: ColumnRef, of: ColumnRef, columns: Mapping[str, str], *, by_path: str = "") -> None:
        """Adds that columns are those of another dataset as they are, and rows its rows."""
        if of.kind != SOURCE:
            self._depend(to, _on(INDIRECT, ROWS, [of]))
        for column, name in columns.items():
            found = self._record(by_path, name) if by_path else [ColumnRef(of.kind, of.dataset, name)]
            self._depend(ColumnRef(to.kind, to.dataset, column), _on(DIRECT, IDENTITY, found))

    def _depend(self, column: ColumnRef, *parts: Iterable[Dependency]) -> None:
        added = dict.fromkeys((*self.dependencies.get(column, ()), *(one for part in parts for one in part)))
        self.dependencies[column] = tuple(added)

    def _input(self, name: str) -> ColumnRef:
        return ColumnRef(OUTPUT if name in self._writers else SOURCE, name, ROWS)

    def _source(self, name: str, path: str) -> list[ColumnRef]:
        return self._columns(ColumnRef(SOURCE, name, ROWS), path)

    def _record(self, name: str, path: str) -> list[ColumnRef]:
        """The columns of an input that a path of its record leads to."""
        return self._columns(self._input(name), path)

    def _columns(self, dataset: ColumnRef, path: str = "") -> list[ColumnRef]:
        """The columns of a dataset, or those that a path leads to, into or through: `place` has `place.city`."""
        found = self._found.get((dataset.kind, dataset.dataset))
        refs = [] if found is None else found.refs
        return [ref for ref in refs if not path or _touches(ref.name, path)]


def _on(kind: str, subtype: str, refs: Iterable[ColumnRef], *, is_opaque: bool = False) -> list[Dependency]:
    influence = Influence(kind, subtype, is_opaque)
    return [Dependency(ref, influence) for ref in refs]


def _each(parts: Iterable[Iterable[ColumnRef]]) -> list[ColumnRef]:
    return list(dict.fromkeys(ref for part in parts for ref in part))


def _touches(column: str, path: str) -> bool:
    return column == path or column.startswith(f"{path}.") or path.startswith(f"{column}.")


def _key_text(key: KeyColumn) -> str:
    return key.source if key.inputs is not None or key.of_window else ""


def _field_text(f: StoredField) -> str:
    """`sum(distance)`: the kind of a state field and its inputs; of an aggregate its expressions."""
    if f.aggregate is not None:
        return ", ".join(f.aggregate.partial)
    return f"{f.state_kind.shown}({', '.join(filter(None, f.inputs))})"
