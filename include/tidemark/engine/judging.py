"""The quality gate: Great Expectations on the candidate, inside the process that owns the frames (facts.md 6)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from tidemark.model.checkpoint import Verdict
from tidemark.model.plan import CheckpointPlan
from tidemark.pipeline import Gate

if TYPE_CHECKING:
    from tidemark.engine.compute import SparkCompute


def judge(
    gate: Gate,
    compute: "SparkCompute",
    plan: CheckpointPlan,
    records: DataFrame,
    runs: Mapping[str, Sequence[str]],
) -> Verdict:
    """Runs the gate."""
    return Verdict()
