"""The quality gate: Great Expectations on the candidate, inside the process that owns the frames (facts.md 6).

An expectation that could not be evaluated is an error of the gate, never a pass: Great Expectations reports a missing
column as `success=False` with an exception beside it. Warnings are recorded and do not fail the gate.
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from tidemark.engine.resolving import finished, stored
from tidemark.model.checkpoint import Expectation, Verdict
from tidemark.model.expressions import quoted, spark
from tidemark.model.plan import CheckpointPlan
from tidemark.model.resolving import stored_columns
from tidemark.pipeline import Expectations, Gate

if TYPE_CHECKING:
    from tidemark.engine.compute import SparkCompute

_FRAMES = ("records", "changes", "state")
_LONGEST_DETAIL = 500


def judge(
    gate: Gate,
    compute: "SparkCompute",
    plan: CheckpointPlan,
    records: DataFrame,
    runs: Mapping[str, Sequence[str]],
) -> Verdict:
    """Runs a pipeline's gate.

    Args:
        gate: the pipeline's function.
        compute: session and warehouse.
        plan: what is judged.
        records: the decoded batch.
        runs: per uid the files of its run.

    Returns:
        The verdict; `error` says why where the gate itself failed.
    """
    try:
        _quiet()
        asked = dict(_asked(gate(), plan))
    except Exception as error:  # the author's code and Great Expectations may raise anything; none of it is a pass
        return Verdict(passed=False, error=_first_line(error))
    found: list[Expectation] = []
    for frame, expectations in asked.items():
        rows = _frame(frame, compute, plan, records, runs)
        if rows is None:
            continue
        try:
            found += _judged(frame, rows, expectations)
        except Exception as error:  # as above: an exception is not a pass
            return Verdict(passed=False, error=f"{frame}: {_first_line(error)}", expectations=tuple(found))
    broken = [e for e in found if e.detail.startswith("error: ")]
    passed = all(e.success or e.severity != "critical" for e in found) and not broken
    why = f"{broken[0].frame}: {broken[0].type}: {broken[0].detail}" if broken else None
    return Verdict(passed=passed, error=why, expectations=tuple(found))


def _asked(answer: Mapping[str, Any], plan: CheckpointPlan) -> Iterator[tuple[str, Expectations]]:
    for name, what in answer.items():
        if name not in _FRAMES:
            raise ValueError(f"the gate names the frame {name!r}; frames are {', '.join(_FRAMES)}")
        if name == "records":
            yield name, what
            continue
        for uid, expectations in what.items():
            if uid not in plan.schemas:
                raise ValueError(f"the gate names the operator {uid!r}; there are {', '.join(plan.schemas)}")
            yield f"{name}.{uid}", expectations


def _frame(
    name: str,
    compute: "SparkCompute",
    plan: CheckpointPlan,
    records: DataFrame,
    runs: Mapping[str, Sequence[str]],
) -> DataFrame | None:
    kind, _, uid = name.partition(".")
    if kind == "records":
        here = [f"`{c}` AS `_{c}`" for c in ("topic", "partition", "offset", "timestamp", "event_time")]
        return records.where("_reason IS NULL").selectExpr("record.*", *here)
    if not runs.get(uid):
        return None
    schema, session = plan.schemas[uid], compute.spark
    columns = [spark(quoted(c)) for c in stored_columns(schema)]
    run = session.read.parquet(*(f"{compute.warehouse}/{path}" for path in runs[uid])).selectExpr(*columns)
    if kind == "state" and plan.handles[uid]:
        old = stored(session, compute.warehouse, schema, plan.handles[uid])
        run = run.unionAll(old.join(run, [k.name for k in schema.keys], "left_semi").selectExpr(*columns))
    return finished(session, run, schema)


def _judged(frame: str, rows: DataFrame, expectations: Expectations) -> list[Expectation]:
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    asset = context.data_sources.add_spark("candidate").add_dataframe_asset(frame)
    batch = asset.add_batch_definition_whole_dataframe("whole")
    suite = context.suites.add(gx.ExpectationSuite(name=frame))
    for expectation in expectations:
        suite.add_expectation(expectation)
    definition = gx.ValidationDefinition(name=frame, data=batch, suite=suite)
    result = context.validation_definitions.add(definition).run(
        batch_parameters={"dataframe": rows}, result_format={"result_format": "BASIC", "partial_unexpected_count": 3}
    )
    return [_recorded(frame, r) for r in result.results]


def _recorded(frame: str, result: Any) -> Expectation:  # noqa: ANN401  (Great Expectations' own result)
    config = result.expectation_config
    about = {k: v for k, v in config.kwargs.items() if k not in ("batch_id", "column") and v is not None}
    asked = ", ".join(
        [*([str(config.kwargs["column"])] if "column" in config.kwargs else []), *map(_pair, about.items())]
    )
    return Expectation(
        frame=frame,
        type=str(config.type),
        success=bool(result.success),
        severity=str(getattr(config.severity, "value", config.severity) or "critical"),
        detail=f"{_trouble(result) or _seen(result)} ({asked})"[:_LONGEST_DETAIL],
    )


def _trouble(result: Any) -> str:  # noqa: ANN401
    info = result.exception_info or {}
    infos = [info] if "raised_exception" in info else [i for i in info.values() if isinstance(i, dict)]
    raised = [i for i in infos if i.get("raised_exception")]
    return f"error: {str(raised[0].get('exception_message')).splitlines()[0]}" if raised else ""


def _seen(result: Any) -> str:  # noqa: ANN401
    seen = result.result or {}
    if "unexpected_count" in seen:
        return f"{seen['unexpected_count']} of {seen.get('element_count')} rows"
    return (
        f"observed {seen['observed_value']}" if "observed_value" in seen else ("held" if result.success else "failed")
    )


def _pair(pair: tuple[str, object]) -> str:
    return f"{pair[0]}={pair[1]}"


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"[:_LONGEST_DETAIL]


def _quiet() -> None:
    # The variable is read when the library is imported; its logs would drown ours.
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    logging.getLogger("great_expectations").setLevel(logging.WARNING)
