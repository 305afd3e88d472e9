"""The state that the next plan takes over from its parent: by uid, by field, or not at all.

All misfits are reported at once, by uid and field, before a plan exists and long before Spark starts.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.coordinator.plans.parents import Parent
from tidemark.errors import IncompatibleStateError
from tidemark.model.checkpoint.operator_lists import OperatorState
from tidemark.model.checkpoint.segments import StateHandle
from tidemark.model.schema.operator_schema import OperatorSchema
from tidemark.model.state.evolution import Misfit, carried_lists, compared, evolved, plain, shares_tables

_ALLOW = "--allow-non-restored-state"


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedState:
    """The state that is taken over.

    Attributes:
        parent: the parent that has the state.
        declared: the declared schemas, by uid.
        origins: per uid, the uid of the same state in the parent; operators that start empty are omitted.
        left_behind: state that no operator takes over, by the parent's uid.
        operator_states: lists of every operator that declares any, with the parent's elements.
    """

    parent: Parent
    declared: Mapping[str, OperatorSchema]
    origins: Mapping[str, str]
    left_behind: Mapping[str, StateHandle]
    operator_states: Mapping[str, OperatorState]

    def state(self, uid: str) -> StateHandle:
        """The state of an operator; empty if it starts empty."""
        return self.parent.handles.get(self.origins.get(uid, ""), StateHandle())

    def dead_letters(self, uid: str) -> StateHandle:
        """The dead letters of an operator so far."""
        return self.parent.dead_letters.get(self.origins.get(uid, ""), StateHandle())

    def schema(self, uid: str, handle: StateHandle) -> OperatorSchema:
        """The stored schema of an operator, which knows how to read the tables of a handle."""
        origin = self.origins.get(uid)
        if origin is None or not handle:
            return plain(self.declared[uid])
        return evolved(self.parent.schemas[origin], self.declared[uid], handle.folders)

    def folder(self, uid: str) -> str | None:
        """The folder of an operator's tables if new rows have the same columns; None = new tables."""
        origin = self.origins.get(uid)
        if origin is None or not shares_tables(self.parent.schemas[origin], self.declared[uid]):
            return None
        return self.parent.tables.get(uid)


def carried_over(
    parent: Parent,
    declared: Mapping[str, OperatorSchema],
    lists: Mapping[str, OperatorState],
    *,
    allow_removed: bool,
) -> CarriedState:
    """Finds the state of every declared operator.

    Args:
        parent: the existing state.
        declared: schemas by uid; `was` gives the earlier uid of a renamed operator.
        lists: declared lists by uid, for operators that declare any.
        allow_removed: leave the state of operators that are no longer declared behind.

    Raises:
        IncompatibleStateError: lists every uid and field that does not fit, with old, new and the remedy.
    """
    origins, misfits = _origins(parent, declared)
    for uid, origin in origins.items():
        if parent.handles.get(origin):
            misfits += compared(parent.schemas[origin], declared[uid]).misfits
    operator_states = {}
    for uid, wanted in lists.items():
        there = parent.operator_states.get(origins.get(uid, ""), OperatorState())
        operator_states[uid], more = carried_lists(uid, there, wanted)
        misfits += more
    removed = [uid for uid in parent.schemas if uid not in origins.values() and _has_state(parent, uid)]
    if not allow_removed:
        misfits += (_removed(uid) for uid in removed)
    if misfits:
        raise IncompatibleStateError(
            f"the pipeline does not fit its state: {'; '.join(map(str, misfits))}",
            safe="nothing was planned; every restore point is intact.",
            next="change the declaration as described for each; then run the pipeline again.",
        )
    left = {uid: parent.handles.get(uid, StateHandle()) for uid in removed}
    return CarriedState(
        parent=parent, declared=declared, origins=origins, left_behind=left, operator_states=operator_states
    )


def _has_state(parent: Parent, uid: str) -> bool:
    lists = parent.operator_states.get(uid, OperatorState())
    return bool(parent.handles.get(uid) or parent.dead_letters.get(uid) or any(x.elements for x in lists.lists))


def _origins(parent: Parent, declared: Mapping[str, OperatorSchema]) -> tuple[dict[str, str], list[Misfit]]:
    origins: dict[str, str] = {}
    misfits = []
    for uid, schema in declared.items():
        if uid in parent.schemas:
            origins[uid] = uid
        elif schema.was and parent.schemas:
            why = _no_rename(schema.was, parent, declared, origins)
            if why:
                misfits.append(Misfit(uid=uid, field="", what=why, remedy="correct was=, or omit it"))
            else:
                origins[uid] = schema.was
    return origins, misfits


def _no_rename(
    was: str, parent: Parent, declared: Mapping[str, OperatorSchema], origins: Mapping[str, str]
) -> str | None:
    if was not in parent.schemas:
        return f"was={was!r} names no operator with state; there are {', '.join(sorted(parent.schemas))}"
    if was in declared:
        return f"was={was!r} is declared too"
    return f"was={was!r} is given for two operators" if was in origins.values() else None


def _removed(uid: str) -> Misfit:
    return Misfit(
        uid=uid,
        field="",
        what="is no longer declared, but has state",
        remedy=f"declare it again, rename it with was={uid!r}, or leave its state behind with {_ALLOW}",
    )
