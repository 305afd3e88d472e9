"""State per key: declare a class with one field per piece of state.

    class Aircraft(state.Keyed):
        flights: int = state.count()
        distance: int = state.sum("distance")
        last_airport: str | None = state.latest("destination", ttl=timedelta(days=30))

Kinds that take a record field or an expression (`count sum min max first latest mean distinct list aggregate reduce`)
are for a `Fold`: Flink's ReducingState and AggregatingState. Each is a pair of functions: one computes a partial result
over the records of a batch, the other merges two partial results and is associative. So a checkpoint writes merge
operands without reading old state, and compaction may regroup them. Kinds without one (`value list map`) are for a
`Process`: Flink's ValueState, ListState and MapState. State that belongs to no key is declared in a class derived from
`Operator`.

Every kind takes `ttl=`, a timedelta or a `state.Ttl` with all options of Flink's StateTtlConfig, and `was=`, the
previous name of a renamed field.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidemark.declare.keyed_state import Keyed as Keyed
from tidemark.declare.operator_state import Operator as Operator
from tidemark.declare.operator_state import split_list as split_list
from tidemark.declare.operator_state import union_list as union_list
from tidemark.model.core.ttl import Ttl as Ttl
from tidemark.model.core.types import Precision as Precision
from tidemark.model.kinds.base.kind import StateDescriptor as StateDescriptor

_OWN = ("Keyed", "Operator", "Precision", "StateDescriptor", "Ttl", "split_list", "union_list")
_KINDS = "tidemark.model.kinds"

if TYPE_CHECKING:
    from tidemark.model.kinds.registry import *  # noqa: F403  (one function per kind)
else:

    def __getattr__(name: str) -> Any:
        """Returns the function of a kind from its file: a pipeline imports only the kinds that it declares."""
        if name == "__all__":
            return __dir__()
        if name[0] != "_":
            home = f"{_KINDS}.{name}"
            try:
                made = getattr(import_module(home), name, None)
            except ModuleNotFoundError as error:
                if error.name != home:
                    raise
                made = None
            if made is not None:
                return globals().setdefault(name, made)
        raise AttributeError(f"module 'tidemark.state' has no attribute {name!r}")


def __dir__() -> Sequence[str]:
    return sorted([*_OWN, *(name for name in vars(import_module(f"{_KINDS}.registry")) if name[0] != "_")])
