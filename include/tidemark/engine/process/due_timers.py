"""Finds the stored timers that fire in a batch: their keys run, with records or without (adr/0056)."""

from dataclasses import dataclass

from pyspark.sql import DataFrame

from tidemark.engine.session.spark_errors import translate_spark_errors
from tidemark.engine.state.state_files import SparkWarehouse
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.ttl import Now
from tidemark.model.portable_sql.dialects import SPARK
from tidemark.processing.timer_merge import FiringRules


@dataclass(frozen=True, slots=True, kw_only=True)
class DueKeys:
    """The keys that may have timers to fire, kept until they are released.

    A key with a timer that was replaced or has fired since may be among them: its newest rows decide.

    Attributes:
        rules: which timers fire.
        keys: key columns and `_key_group`, of each timer that may fire; None if there are none.
        count: their number; a key with several timers counts several times.
    """

    rules: FiringRules
    keys: DataFrame | None = None
    count: int = 0

    def release(self) -> None:
        """Releases the cached keys."""
        if self.keys is not None:
            with translate_spark_errors():
                self.keys.unpersist()


def find_due(warehouse: SparkWarehouse, plan: CheckpointPlan, uid: str, now: Now) -> DueKeys:
    """Looks for stored timers between the frontier before the batch and the one after it.

    Row groups without such a timer are skipped by their statistics. A frontier that has not moved needs no query.

    Args:
        warehouse: the warehouse, with the session of the attempt.
        plan: the plan that is executed.
        uid: the operator, which has timers.
        now: the clocks after the batch.

    Raises:
        EngineError, StoreError: Spark failed, or a version of the state is missing.
    """
    schema, rules = plan.schemas[uid], FiringRules.of(plan, uid, now)
    if not rules.moves or rules.after_ms is None or schema.timers is None or not plan.handles[uid]:
        return DueKeys(rules=rules)
    name, since = schema.timers.name, rules.before_ms
    # Only rows of timers have a time there, a tombstone has none: the columns of their kind need not be read.
    due = f"`{name}` <= {SPARK.instant(rules.after_ms)}"
    due += "" if since is None else f" AND `{name}` > {SPARK.instant(since)}"
    with translate_spark_errors():
        stored = warehouse.stored_rows(schema, plan.handles[uid]).where(due)
        keys = stored.select("_key_group", *(k.name for k in schema.keys)).persist()
        return DueKeys(rules=rules, keys=keys, count=keys.count())
