"""The quality gate in memory: the frames of a candidate in pandas, and Great Expectations on them.

Great Expectations has one implementation of an expectation for pandas and one for Spark. Only the expectations in
`ALIKE` are evaluated: a test holds both implementations together, on the same records with nulls.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemark.declare.pipeline import Gate
from tidemark.errors import UsageError
from tidemark.extras import require
from tidemark.model.checkpoint.manifest import Verdict
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.ttl import Now
from tidemark.model.core.types import FieldType
from tidemark.model.schema.operator_schema import with_state
from tidemark.processing.expectations import judge, quiet_context, run_suite
from tidemark.testing.twin.entries import state_rows
from tidemark.testing.twin.fold import Decoded
from tidemark.testing.twin.memory_inputs import MemoryInput
from tidemark.testing.twin.merge import resolve_rows
from tidemark.testing.twin.tables import MemoryTables

if TYPE_CHECKING:
    import pandas as pd

_ANY = frozenset({"bool", "int", "float", "decimal", "str", "bytes", "date", "timestamp", "list", "map", "struct"})
_NUMBERS = frozenset({"int", "float"})
_TEXT = frozenset({"str"})
_SCALARS = frozenset({"bool", "int", "float", "decimal", "str", "date", "timestamp"})
_MEMBERS = frozenset({"bool", "int", "float", "str", "date"})

ALIKE: Mapping[str, frozenset[str]] = {
    "ExpectTableRowCountToBeBetween": _ANY,
    "ExpectTableRowCountToEqual": _ANY,
    "ExpectColumnToExist": _ANY,
    "ExpectColumnValuesToBeNull": _ANY,
    "ExpectColumnValuesToNotBeNull": _ANY,
    "ExpectColumnProportionOfNonNullValuesToBeBetween": _ANY,
    "ExpectColumnProportionOfUniqueValuesToBeBetween": _SCALARS,
    "ExpectColumnUniqueValueCountToBeBetween": _SCALARS,
    "ExpectColumnValuesToBeUnique": _SCALARS,
    "ExpectCompoundColumnsToBeUnique": _NUMBERS | _TEXT,
    "ExpectColumnValuesToBeBetween": _NUMBERS | {"decimal", "date", "timestamp"},
    "ExpectColumnMaxToBeBetween": _NUMBERS | {"decimal"},
    "ExpectColumnMinToBeBetween": _NUMBERS | {"decimal"},
    "ExpectColumnMeanToBeBetween": _NUMBERS,
    "ExpectColumnSumToBeBetween": _NUMBERS,
    "ExpectColumnDistinctValuesToBeInSet": _MEMBERS,
    "ExpectColumnDistinctValuesToContainSet": _MEMBERS,
    "ExpectColumnDistinctValuesToEqualSet": _MEMBERS,
    "ExpectColumnValuesToBeInSet": _MEMBERS,
    "ExpectColumnValuesToNotBeInSet": _MEMBERS,
    "ExpectColumnPairValuesAToBeGreaterThanB": frozenset({"timestamp"}),
    "ExpectColumnPairValuesToBeEqual": frozenset({"timestamp"}),
    "ExpectColumnValueLengthsToBeBetween": _TEXT,
    "ExpectColumnValueLengthsToEqual": _TEXT,
    "ExpectColumnValuesToMatchRegex": _TEXT,
    "ExpectColumnValuesToNotMatchRegex": _TEXT,
}
"""The expectations that are evaluated in memory, each with the kinds of columns that it may name."""

_DTYPES = {"int": "Int64", "float": "Float64", "bool": "boolean", "timestamp": "datetime64[us, UTC]"}
"""Columns that hold nulls without losing their type; everything else is an object."""
_POSITION = (
    ("_topic", FieldType("str")),
    ("_partition", FieldType("int")),
    ("_offset", FieldType("int")),
    ("_timestamp", FieldType("timestamp")),
    ("_event_time", FieldType("timestamp")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCandidate:
    """The candidate that a gate judges; the twin of `engine.candidate_checks.Candidate`.

    Attributes:
        tables: the tables that the runs were written to.
        plan: the plan.
        inputs: the decoded records by source.
        records: the record's type by source.
        runs: the files of the run per uid.
        now: the clocks of the candidate.
    """

    tables: MemoryTables
    plan: CheckpointPlan
    inputs: Mapping[str, MemoryInput]
    records: Mapping[str, FieldType]
    runs: Mapping[str, Sequence[str]]
    now: Now

    @property
    def sources(self) -> Sequence[str]:
        """See `GatedFrames`."""
        return tuple(self.records)

    @property
    def uids(self) -> Sequence[str]:
        """See `GatedFrames`."""
        return tuple(with_state(self.plan.schemas))

    def frame(self, kind: str, uid: str) -> "_Frame | None":
        """See `GatedFrames`."""
        if kind == "records":
            name = uid or self.sources[0]
            rows = [self._record_row(name, r) for r in self.inputs[name].good]
            return _frame((*self.records[name].fields, *_POSITION), rows) if self.inputs[name].records else None
        if not self.runs.get(uid):
            return None
        schema = self.plan.schemas[uid]
        names = [k.name for k in schema.keys]
        run = [row for path in self.runs[uid] for row in self.tables.files[path]]
        below: Iterable[Mapping[str, Any]] = ()
        if kind == "state":
            touched = {tuple(row[name] for name in names) for row in run}
            held = state_rows(self.tables, schema, self.plan.handles[uid])
            below = [row for row in held if tuple(row[name] for name in names) in touched]
        rows = list(resolve_rows(schema, [*run, *below], self.now if kind == "state" else Now()).values())
        fields = [(k.name, k.type) for k in schema.keys] + [(f.name, f.type) for f in schema.fields]
        return _frame([*fields, ("_changed", FieldType("int"))], rows)

    def _record_row(self, name: str, found: Decoded) -> dict[str, Any]:
        at = self.inputs[name].raw[found.position].timestamp
        here = (found.topic, found.partition, found.offset, at, found.event_time)
        return {**found.fields, **dict(zip((name for name, _ in _POSITION), here, strict=True))}


def judge_in_memory(gate: Gate, candidate: MemoryCandidate) -> Verdict:
    """Runs a gate on a candidate; see `processing.expectations.judge`.

    Raises:
        UsageError: Great Expectations is not installed, or an expectation is not in `ALIKE`.
    """
    require("great_expectations")
    return judge(gate, candidate, _validated)


def _validated(found: "_Frame", expectations: Sequence[Any]) -> Sequence[Any]:
    import great_expectations as gx

    for expectation in expectations:
        _refuse_unlike(expectation, found.kinds)
    source = quiet_context(gx).data_sources.add_pandas("candidate")
    return run_suite(gx, source.add_dataframe_asset("frame"), found.frame, expectations)


def _refuse_unlike(expectation: Any, kinds: Mapping[str, str]) -> None:
    name = type(expectation).__name__
    asked = expectation.configuration.kwargs
    columns = [asked[at] for at in ("column", "column_A", "column_B") if at in asked] + list(
        asked.get("column_list", ())
    )
    # A column that does not exist is an error of either implementation.
    unlike = [c for c in columns if c in kinds and kinds[c] not in ALIKE.get(name, ())]
    why = ""
    if name not in ALIKE:
        why = name
    elif unlike:
        why = f"{name} of {unlike[0]}, which is of kind {kinds[unlike[0]]},"
    elif asked.get("row_condition"):
        why = f"{name} with a row_condition"
    if why:
        raise UsageError(
            f"{why} cannot be evaluated in memory: Great Expectations may answer differently there than in Spark",
            next="give gate=False, or a gate= without it, and test this expectation in a run.",
        )


@dataclass(frozen=True, slots=True)
class _Frame:
    """A frame, and the kinds of its columns."""

    frame: "pd.DataFrame"
    kinds: Mapping[str, str]


def _frame(columns: Sequence[tuple[str, FieldType]], rows: Sequence[Mapping[str, Any]]) -> _Frame:
    import pandas as pd

    made = {name: pd.Series([row[name] for row in rows], dtype=_DTYPES.get(of.kind, "object")) for name, of in columns}
    return _Frame(pd.DataFrame(made), {name: of.kind for name, of in columns})
