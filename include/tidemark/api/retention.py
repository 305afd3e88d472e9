"""Retention of a pipeline: the rule, what a sweep would delete and why, and where the bytes are."""

from dataclasses import dataclass
from typing import Any

from tidemark.api.dry_run import DryRun
from tidemark.context import Context
from tidemark.model.checkpoint.codec import body_of
from tidemark.model.core.savepoint_expiry import span_ms
from tidemark.operations import retention as operations
from tidemark.operations.retention import describe_plan, describe_storage, describe_verified_sweep


@dataclass(frozen=True, slots=True)
class PipelineRetention:
    """`.retention` of a pipeline.

    Every method raises StoreError or CorruptObjectError if it cannot find out which files are needed.

    >>> w["flights"].retention.rule() is None
    True
    """

    context: Context
    pipeline: str

    def rule(self) -> str | None:
        """The declared rule, as in `keep_last(10) | daily(30)`; None if every checkpoint is kept."""
        found = operations.get_rule(self.context, self.pipeline)
        return None if found is None else str(found)

    def plan(self, keep: str | None = None) -> dict[str, Any]:
        """What a sweep would release and delete, file by file, and what keeps the rest. Writes nothing.

        Args:
            keep: a rule in place of the declared one.

        Returns:
            JSON values: `tidemark retention plan --json`. Sizes are bytes, times ISO 8601 in UTC.

        Raises:
            DeclarationError: `keep` is no rule.

        >>> found = w["flights"].retention.plan("keep_last(1)")
        >>> found["released"], [kept["why"] for kept in found["kept_by"]]
        (['chk-1'], ['keep_last(1)', 'newest', 'savepoint winter'])
        """
        planned = operations.plan_sweep(self.context, self.pipeline, keep)
        return dict(body_of(describe_plan(planned, 0, shown=None)))

    def apply(self, keep: str | None = None, *, grace: str = "1h") -> DryRun:
        """Plans a sweep: release checkpoints that nothing keeps, delete files that were free for the grace time.

        A file's grace time begins when a sweep first finds it free, so one sweep releases and a later one deletes.

        Args:
            keep: a rule in place of the declared one.
            grace: a span such as `"1h"` or `"7d"`, or `"0"`.

        Returns:
            A dry run. `commit()` also verifies every restore point that is left: `broken` names the damaged ones.

        Raises:
            DeclarationError: `keep` is no rule.
            UsageError: `grace` is no span.

        `commit()` raises DamagedError if the newest checkpoint of a timeline is damaged; then it releases nothing.

        >>> sweep = w["flights"].retention.apply("keep_last(1)", grace="0")
        >>> sweep.plan["released"]
        ['chk-1']
        >>> done = sweep.commit()
        >>> done["released"], done["broken"]
        (['chk-1'], [])
        >>> w["flights"].checkpoint("chk-1").status
        'released'
        """
        grace_ms = span_ms(grace)
        planned = body_of(describe_plan(operations.plan_sweep(self.context, self.pipeline, keep), grace_ms))

        def execute() -> dict[str, Any]:
            done = operations.sweep_and_verify(self.context, self.pipeline, keep, grace_ms=grace_ms)
            return dict(body_of(describe_verified_sweep(done)))

        return DryRun("apply", planned, execute)

    def storage(self) -> dict[str, Any]:
        """Where the bytes are, per operator and timeline: kept, free, in progress, unknown; and what keeps how much.

        Returns:
            JSON values: `tidemark storage --json`. Sizes are bytes.

        >>> found = w["flights"].retention.storage()
        >>> sorted({table["owner"] for table in found["tables"] if table["kind"] == "state"})
        ['aircraft', 'rotations', 'routes']
        """
        return dict(body_of(describe_storage(self.pipeline, operations.measure_storage(self.context, self.pipeline))))
