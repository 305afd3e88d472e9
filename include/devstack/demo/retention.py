"""The last part of the demo: the DAG `retention` releases checkpoints that neither the rule nor a savepoint keeps."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from devstack.demo.dag_runs import Dag
from tidemark.cli.airflow_api import AirflowApi
from tidemark.cli.output import human_bytes, note, show_rows
from tidemark.context import Context
from tidemark.model.retention.deletion import DeletionPlan, spans
from tidemark.operations import retention

RETENTION = "retention"
_NAMES = re.compile(r"(chk-|compaction |attempt |timeline )\S+?(?=;| |$)")


@dataclass(frozen=True, kw_only=True)
class LettingGo:
    """One run of retention.

    Attributes:
        api: a session of Airflow's REST API.
        context: the context for reading the store.
        pipeline: the pipeline's name.
    """

    api: AirflowApi
    context: Context
    pipeline: str

    def run(self, wait: Callable[[Callable[[], bool]], None]) -> bool:
        """Prints the plan, and triggers the DAG without a grace time; returns False if nothing is due.

        Args:
            wait: waits until a condition holds.

        Raises:
            TidemarkError: the DAG run failed.
        """
        plan = retention.plan_sweep(self.context, self.pipeline)
        if not (plan.released or plan.free):
            note(f"nothing to release: {plan.kept_files} files are kept, {human_bytes(plan.kept_bytes)}")
            return False
        note(f"rule: {plan.rule}; releases {spans(plan.released)}")
        show_rows(reasons(plan), as_json=False)
        for kept in plan.kept:
            note(f"kept by {kept.why}: {human_bytes(kept.bytes)}, {human_bytes(kept.alone)} of it by nothing else")
        dag = Dag(api=self.api, id=RETENTION)
        run = dag.trigger({"grace": "0"})
        note(f"retention: {dag.page(run)}")
        wait(lambda: dag.succeeded(run))
        left = retention.measure_storage(self.context, self.pipeline).total
        note(f"deleted the files and verified every remaining restore point: {human_bytes(left.kept)} are kept")
        return True


def reasons(plan: DeletionPlan) -> list[dict[str, object]]:
    """Returns the files to delete by reason, most bytes first: rows of why, files and bytes."""
    found: dict[str, list[int]] = {}
    for f in plan.free:
        found.setdefault(_NAMES.sub(r"\1…", f.why), []).append(f.bytes)
    most = sorted(found.items(), key=lambda item: -sum(item[1]))
    return [{"free": why, "files": len(sizes), "bytes": human_bytes(sum(sizes))} for why, sizes in most]
