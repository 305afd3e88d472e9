"""Evolution of stored schemas: the changes of a declaration that the existing state allows.

`compare_schemas` says what carries over and what does not fit; `evolve_schema` returns the stored schema of the next
checkpoint, including how to read the tables of earlier ones. Nothing is rewritten: readers map rows (`sql.resolve`),
and a later compaction writes them in the new columns.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from tidemark.model.checkpoint.segments import OperatorList, OperatorState
from tidemark.model.core.types import FieldType
from tidemark.model.schema.operator_schema import Layout, OperatorSchema, StoredField, run_columns

_FREE = ("name", "over", "type", "limit", "initial", "ttl", "was")
"""Properties of a field that may change or have a rule of their own; the others define what the field aggregates."""
_FREE_OF_OPERATORS = (
    "uid", "keys", "fields", "key_groups", "kind", "clock", "deletes", "joins", "older", "patched", "where", "changes",
    "was",
)  # fmt: skip
_NEW_NAME = "declare it under a new name"
_NEW_UID = "give the operator a new uid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """A change that the stored state does not allow.

    Attributes:
        uid: the operator.
        field: the affected part: a field name, or `key`, `kind`, `clock`, `deletes`, `key groups`; empty for all of it.
        what: old and new, in words.
        remedy: what you can do instead.
    """

    uid: str
    field: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{'.'.join(filter(None, (self.uid, self.field)))}: {self.what} ({self.remedy})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """The mapping of an operator's fields from one stored schema to the next.

    Attributes:
        carried: the old field that each new field continues; added fields are left out.
        misfits: changes that do not fit; if there are any, ignore `carried`.
    """

    carried: Mapping[str, str]
    misfits: tuple[Misfit, ...]


def compare_schemas(old: OperatorSchema, new: OperatorSchema) -> Evolution:
    """Compares a new declaration with stored state.

    Args:
        old: the stored schema of the state.
        new: the declared schema; `was` of its fields names renamed ones.
    """
    if old == new:
        return Evolution(carried={f.name: f.name for f in new.fields}, misfits=())
    carried, misfits = _carried(old, new)
    before = {f.name: f for f in old.fields}
    misfits = [*_of_operator(old, new), *misfits]
    if old.kind == new.kind:
        pairs = [(before[carried[f.name]], f) for f in new.fields if f.name in carried]
        misfits += [m for was, f in pairs for m in (*_of_field(new.uid, was, f), *_of_joins(old, was, new, f))]
    return Evolution(carried=carried, misfits=tuple(misfits))


def with_frozen_window(old: OperatorSchema, new: OperatorSchema) -> OperatorSchema:
    """Returns a declared schema with the windows as they are stored, if they are the same.

    The UTC offsets of windows in a time zone may differ, because each machine has its own release of the time zone
    data. Those of the first plan count for ever, so that no row changes its window.
    """
    if old.window is None or new.window is None or old.window == new.window or old.window.shown != new.window.shown:
        return new
    return replace(new, window=old.window)


@dataclass(frozen=True, slots=True)
class ReplacedStates:
    """State that a timeline does not take over from its parent, because a transform writes it (ADR 0076).

    Attributes:
        uids: declared operators whose state is written instead; their declarations may differ from it in any way.
        read: operators of the parent whose state is read for that, so they need not be declared any more.
        key_groups: the number of key groups of the written state; 0 = as before.
    """

    uids: frozenset[str] = frozenset()
    read: frozenset[str] = frozenset()
    key_groups: int = 0


NOTHING_REPLACED = ReplacedStates()


def with_stored_choices(old: OperatorSchema | None, new: OperatorSchema, replaced: ReplacedStates) -> OperatorSchema:
    """Returns a declared schema with what the first plan chose for a state: key groups, and bounds of its windows.

    Args:
        old: the stored schema of the state; None = it has none yet.
        new: the declared schema.
        replaced: of a transform, which may write the state to another number of key groups.
    """
    found, stored = (new, new.key_groups) if old is None else (with_frozen_window(old, new), old.key_groups)
    number = (replaced.key_groups if new.uid in replaced.uids else 0) or stored
    return found if found.key_groups == number else replace(found, key_groups=number)


def evolve_schema(old: OperatorSchema, new: OperatorSchema, folders: Sequence[str]) -> OperatorSchema:
    """Returns the stored schema of the next checkpoint, as in its manifest.

    Args:
        old: the stored schema of the state.
        new: the declared schema, which fits.
        folders: folders of the tables in the state's handle.
    """
    carried = compare_schemas(old, new).carried
    known = {layout.folder: layout for layout in old.older}
    if not _has_columns_of(old, new, carried):
        own = {f.name: f for f in old.fields}
        for folder in folders:
            known.setdefault(folder, Layout(folder=folder, fields=own, has_entries=bool(old.maps)))
    older = []
    for folder in dict.fromkeys(folders):
        if folder in known:
            there = known[folder].fields
            fields = {name: there[was] for name, was in carried.items() if was in there}
            older.append(replace(known[folder], fields=fields))
    clock = new.clock if _expires(new) else old.clock
    made, of_state = plain(new), (tuple(older), clock, old.patched)
    if (made.older, made.clock, made.patched) == of_state:
        return made
    return replace(made, older=of_state[0], clock=clock, patched=old.patched)


def carried_lists(uid: str, old: OperatorState, new: OperatorState) -> tuple[OperatorState, list[Misfit]]:
    """Returns the declared lists of an operator with their current elements, and the changes that do not fit.

    The rules are those of keyed state: an added list is empty, an undeclared one is dropped, a renamed one continues,
    and the type of elements may widen.

    Args:
        uid: the operator.
        old: the lists as the parent left them.
        new: the declared lists, without elements; `was` of a list names a renamed one.
    """
    stored, declared = {x.name: x for x in old.lists}, {x.name for x in new.lists}
    misfits: list[Misfit] = []
    lists: list[OperatorList] = []
    taken: list[str] = []
    for x in new.lists:
        origin = x.name if x.name in stored or not x.was or not old else x.was
        why = _no_rename(origin, stored, declared, taken) if origin != x.name else ""
        if why:
            misfits.append(Misfit(uid=uid, field=x.name, what=why, remedy="correct was=, or remove it"))
            continue
        taken.append(origin)
        before = stored.get(origin, replace(x, elements=()))
        misfits += _of_list(uid, before, x)
        lists.append(replace(x, elements=before.elements, was=""))
    return OperatorState(lists=tuple(lists), tasks=old.tasks), misfits


def _of_list(uid: str, old: OperatorList, new: OperatorList) -> Iterable[Misfit]:
    if old.mode is not new.mode:
        yield Misfit(
            uid=uid, field=new.name, what=f"{old.mode.value} list became {new.mode.value} list", remedy=_NEW_NAME
        )
    elif not widens(old.element, new.element):
        what = f"elements {_type(old.element)} became {_type(new.element)}"
        yield Misfit(uid=uid, field=new.name, what=what, remedy=f"keep the type, or {_NEW_NAME}")


def plain(schema: OperatorSchema) -> OperatorSchema:
    """Returns a declared schema as in manifests: without previous names."""
    if not schema.was and not any(f.was for f in schema.fields):
        return schema
    return replace(schema, was="", fields=tuple(replace(f, was="") for f in schema.fields))


def shares_tables(old: OperatorSchema, new: OperatorSchema) -> bool:
    """Whether rows of a new schema may go to the tables of the old one: the columns and fields are the same."""
    return old.uid == new.uid and _has_columns_of(old, new, compare_schemas(old, new).carried)


def widens(old: FieldType, new: FieldType) -> bool:
    """Whether every value of a stored type is also one of another type, except for fields that a dataclass got since.

    An added field must have a default or allow null. An Enum may get members, and a text with a form, or one of an
    Enum, may become any text; not the other way round.
    """
    if old.kind != new.kind or (old.nullable and not new.nullable) or not _allows_texts_of(old, new):
        return False
    if old.kind == "decimal":
        return old.scale == new.scale and old.digits <= new.digits
    if old.key is not None and new.key is not None and not _is_same_key(old.key, new.key):
        return False
    there, here = dict(old.fields), dict(new.fields)
    added = [of for name, of in new.fields if name not in there]
    if not set(there) <= set(here) or not all(of.nullable or of.default is not None for of in added):
        return False
    elements = [] if old.element is None or new.element is None else [(old.element, new.element)]
    return all(widens(was, now) for was, now in (*((of, here[name]) for name, of in old.fields), *elements))


def _allows_texts_of(old: FieldType, new: FieldType) -> bool:
    if new.members:
        return set(old.members) <= set(new.members) if old.members else False
    return new.form in ("", old.form) and (old.key is None) == (new.key is None)


def _is_same_key(old: FieldType, new: FieldType) -> bool:
    """Whether a key column or the key of a map finds the stored rows: an Enum may have got members."""
    return old.sql == new.sql and old.form == new.form and widens(old.bare, new.bare)


def _expires(schema: OperatorSchema) -> bool:
    """Whether its clock matters; without a ttl, access times continue as stored."""
    return any(f.ttl is not None for f in schema.fields)


def _has_columns_of(old: OperatorSchema, new: OperatorSchema, carried: Mapping[str, str]) -> bool:
    return run_columns(old) == run_columns(new) and dict(carried) == {f.name: f.name for f in new.fields}


def _carried(old: OperatorSchema, new: OperatorSchema) -> tuple[dict[str, str], list[Misfit]]:
    stored, declared = {f.name for f in old.fields}, {f.name for f in new.fields}
    carried: dict[str, str] = {}
    misfits: list[Misfit] = []
    for f in new.fields:
        if f.name in stored:
            carried[f.name] = f.name
        elif f.was:
            why = _no_rename(f.was, stored, declared, carried.values())
            if why:
                misfits.append(Misfit(uid=new.uid, field=f.name, what=why, remedy="correct was=, or remove it"))
            else:
                carried[f.name] = f.was
    return carried, misfits


def _no_rename(was: str, stored: Iterable[str], declared: Iterable[str], taken: Iterable[str]) -> str:
    if was not in stored:
        return f"was={was!r} names no stored field; there are {', '.join(sorted(stored))}"
    if was in declared:
        return f"was={was!r} is also declared"
    return f"was={was!r} is given for two fields" if was in taken else ""


def _of_operator(old: OperatorSchema, new: OperatorSchema) -> list[Misfit]:
    found: list[tuple[str, str, str]] = []
    if old.kind != new.kind:
        found.append(("kind", f"{old.kind} became {new.kind}", _NEW_UID))
    if not _has_keys_of(old, new):
        found.append(("key", f"{_keys(old)} became {_keys(new)}", _NEW_UID))
    elif (was := _on(old, _key_paths(old))) != (now := _on(new, _key_paths(new))):
        found.append(("key", f"joined on {was} became joined on {now}", _NEW_UID))
    if old.key_groups != new.key_groups:
        found.append(("key groups", f"{old.key_groups} became {new.key_groups}", _NEW_UID))
    if old.clock != new.clock and _expires(new):
        remedy = f"declare the ttl with clock={old.clock!r}, or {_NEW_UID}"
        found.append(("clock", f"{old.clock} became {new.clock}", remedy))
    if old.deletes and not new.deletes:
        found.append(("deletes", "True became False, but deletes are stored", "keep deletes=True, or " + _NEW_UID))
    if old.has_row_keys != new.has_row_keys:
        what = "message keys of changes became" if old.has_row_keys else "fields of the record became"
        found.append(("key", f"{what} {'message keys of changes' if new.has_row_keys else 'fields of it'}", _NEW_UID))
    for name in (f.name for f in fields(OperatorSchema) if f.name not in _FREE_OF_OPERATORS):
        if getattr(old, name) != getattr(new, name):
            found.append((name, f"{getattr(old, name)!r} became {getattr(new, name)!r}", _NEW_UID))
    return [Misfit(uid=new.uid, field=field, what=what, remedy=remedy) for field, what, remedy in found]


def _of_field(uid: str, old: StoredField, new: StoredField) -> Iterable[Misfit]:
    was, now = _aggregate(old), _aggregate(new)
    if was != now:
        what = f"{_words(old, was, now)} became {_words(new, now, was)}"
        yield Misfit(uid=uid, field=new.name, what=what, remedy=_NEW_NAME)
    elif not (widens(*_overs(old, new)) and widens(old.type.with_null(False), new.type.with_null(False))):
        types = f"{_type(old.over)} became {_type(new.over)}" if old.over != new.over else ""
        types = types or f"{_type(old.type)} became {_type(new.type)}"
        yield Misfit(uid=uid, field=new.name, what=types, remedy=f"keep the type, or {_NEW_NAME}")


def _of_joins(old: OperatorSchema, was: StoredField, new: OperatorSchema, now: StoredField) -> Iterable[Misfit]:
    before, after = _on(old, was.inputs), _on(new, now.inputs)
    if was.inputs == now.inputs and before != after:
        what = f"joined on {before} became joined on {after}"
        yield Misfit(uid=new.uid, field=now.name, what=what, remedy=_NEW_NAME)


def _key_paths(schema: OperatorSchema) -> list[str]:
    return [path for k in schema.keys for path in k.paths]


def _has_keys_of(old: OperatorSchema, new: OperatorSchema) -> bool:
    if len(old.keys) != len(new.keys):
        return False
    return all(
        replace(was, type=now.type) == now and _is_same_key(was.type, now.type)
        for was, now in zip(old.keys, new.keys, strict=True)
    )


def _on(schema: OperatorSchema, paths: Iterable[str]) -> str:
    """Returns the fields that the joins in some record paths look up by, in words."""
    return ", ".join(f"({', '.join(join.on)})" for join in schema.joined_by(paths)) or "nothing"


def _overs(old: StoredField, new: StoredField) -> tuple[FieldType, FieldType]:
    """Returns the types to compare: null means absence, which every kind can store, except in elements and entries."""
    if new.state_kind.keeps_nulls:
        return old.over, new.over
    return old.over.with_null(False), new.over.with_null(False)


def _aggregate(f: StoredField) -> dict[str, Any]:
    return {a.name: getattr(f, a.name) for a in fields(StoredField) if a.name not in _FREE}


def _words(f: StoredField, mine: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    if f.aggregate is not None:
        return f"{f.kind}({', '.join((*f.aggregate.partial, f.aggregate.finish))})"
    differ = {n: v for n, v in mine.items() if n not in ("kind", "source", "others", "options") and v != other[n]}
    differ |= {name: v for name, v in f.options if mine["options"] != other["options"]}
    differ |= {path: _type(of) for path, of in f.others if mine["others"] != other["others"]}
    more = ", ".join(f"{n}={v!r}" for n, v in differ.items())
    kind = f.state_kind.shown
    shown = f"{kind}({f.source!r})" if f.source else kind
    return f"{shown} with {more}" if more else shown


def _type(of: FieldType) -> str:
    return of.shown + (" or null" if of.nullable else "")


def _keys(schema: OperatorSchema) -> str:
    return "(" + ", ".join(f"{k.source} {k.type.shown}" for k in schema.keys) + ")"
