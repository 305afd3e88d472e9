"""The quality gate: runs Great Expectations on the candidate, in the process that owns the frames.

If Great Expectations or the gate's own function raises, the data has neither passed nor failed: the verdict says that
the gate could not judge. Importing Great Expectations takes seconds, so it is imported when a gate runs.
"""

import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from tidemark.declare.pipeline import Gate
from tidemark.engine.state.resolve_sql import finish_rows
from tidemark.engine.state.state_files import SparkWarehouse
from tidemark.errors import TidemarkError
from tidemark.model.checkpoint.manifest import Expectation, Verdict
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.ttl import Now
from tidemark.model.schema.operator_schema import with_state

_FRAMES = ("records", "changes", "state")
_LONGEST_DETAIL = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The candidate that a gate judges.

    Attributes:
        warehouse: the warehouse, with the session that owns the frames.
        plan: the plan.
        sources: names of the pipeline's sources.
        records: the decoded frame, cached, per source that has records.
        runs: the files of the run per uid, relative to the warehouse.
        applied: the number of records behind each run, per uid: at least its number of rows.
        now: the clocks of the candidate.
    """

    warehouse: SparkWarehouse
    plan: CheckpointPlan
    sources: Sequence[str]
    records: Mapping[str, DataFrame]
    runs: Mapping[str, Sequence[str]]
    applied: Mapping[str, int]
    now: Now

    def frame(self, kind: str, uid: str) -> DataFrame | None:
        """Returns a frame by name; None if the source has no records or the run of the operator has no rows."""
        if kind == "records":
            records = self.records.get(uid or self.sources[0])
            here = [f"`{c}` AS `_{c}`" for c in ("topic", "partition", "offset", "timestamp", "event_time")]
            return None if records is None else records.where("_reason IS NULL").selectExpr("record.*", *here)
        if not self.runs.get(uid):
            return None
        schema = self.plan.schemas[uid]
        rows = self.warehouse.files(schema, self.runs[uid])
        if kind == "state" and self.plan.handles[uid]:
            rows = rows.unionAll(self.warehouse.stored_of(schema, self.plan.handles[uid], rows, self.applied[uid]))
        return finish_rows(self.warehouse.session, rows, schema, self.now if kind == "state" else Now())


def judge(gate: Gate, candidate: Candidate) -> Verdict:
    """Runs a gate on a candidate; it passes if all critical expectations hold and all could be judged."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    outcomes: list[Expectation] = []
    errors: list[str] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, frame, expectations in _expectations_of(gate, candidate):
                for result in _validated(frame, expectations):
                    outcomes.append(_outcome(name, result))
                    errors += [f"{name}: {_type(result)}: {why}" for why in _exceptions(result.exception_info)]
    except TidemarkError:
        raise
    except Exception as error:  # noqa: BLE001  (whatever breaks a gate, the verdict carries it)
        errors.append(f"{type(error).__name__}: {error}")
    failed = any(not e.success and e.severity == "critical" for e in outcomes)
    why = "; ".join(errors)[:1000] or None
    return Verdict(passed=not failed and why is None, error=why, expectations=tuple(outcomes))


def _expectations_of(gate: Gate, candidate: Candidate) -> Iterator[tuple[str, DataFrame, Sequence[Any]]]:
    """Yields (name, frame, expectations) from the result of the gate's function.

    Raises:
        ValueError: it names a frame, a source or a uid that does not exist.
    """
    one = len(candidate.sources) == 1
    for kind, wanted in gate().items():
        if kind not in _FRAMES:
            raise ValueError(f"unknown frame {kind!r}; there are {', '.join(_FRAMES)}")
        by_uid = wanted if isinstance(wanted, Mapping) else {"": wanted}
        known = candidate.sources if kind == "records" else with_state(candidate.plan.schemas)
        if (kind == "records" and one) != (list(by_uid) == [""]) or set(by_uid) - {"", *known}:
            by = "a list" if one else f"a mapping by source ({', '.join(candidate.sources)})"
            raise ValueError(f"{kind}: give {by} for records, and a mapping by uid for changes and state")
        for uid, expectations in by_uid.items():
            frame = candidate.frame(kind, uid) if expectations else None
            if frame is not None:
                yield (f"{kind}.{uid}" if uid else kind), frame, list(expectations)


_TALKATIVE = ("great_expectations", "great_expectations.data_context.types.base")
"""Loggers of Great Expectations; the second has its own level and logs every temporary folder."""


def _validated(frame: DataFrame, expectations: Sequence[Any]) -> Sequence[Any]:
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.ERROR)
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    # Without persist=False, GX would cache the frame and never release it; the records are already cached.
    asset = context.data_sources.add_spark("candidate", persist=False).add_dataframe_asset("frame")
    batch = asset.add_batch_definition_whole_dataframe("whole").get_batch(batch_parameters={"dataframe": frame})
    suite = gx.ExpectationSuite(name="gate", expectations=list(expectations))
    results: Sequence[Any] = batch.validate(suite, result_format="SUMMARY").results
    return results


def _outcome(frame: str, result: Any) -> Expectation:
    severity = getattr(result.expectation_config, "severity", None) or "critical"
    return Expectation(
        frame=frame,
        type=_type(result),
        success=bool(result.success),
        severity=str(getattr(severity, "value", severity)),
        detail=_detail(result),
    )


def _type(result: Any) -> str:
    return str(result.expectation_config.type)


def _detail(result: Any) -> str:
    """Returns counts and the expectation, never the values themselves, which may be personal data."""
    asked = result.expectation_config.kwargs
    about = ", ".join(f"{name}={value}" for name, value in asked.items() if name != "batch_id" and value is not None)
    found = result.result or {}
    if "unexpected_count" in found:
        seen = f"{found['unexpected_count']} of {found.get('element_count', '?')} unexpected"
    else:
        seen = f"observed {found['observed_value']}" if "observed_value" in found else "no counts"
    return f"{seen} ({about})"[:_LONGEST_DETAIL] if about else seen


def _exceptions(info: Any) -> list[str]:
    """Returns the messages in Great Expectations' exception_info, which is one record, or one per metric."""
    if not isinstance(info, Mapping):
        return []
    if "raised_exception" in info:
        return [str(info.get("exception_message"))[:300]] if info["raised_exception"] else []
    return [message for inner in info.values() for message in _exceptions(inner)][:1]
