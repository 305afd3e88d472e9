"""Finds the stored timers that fire in a batch: their keys run, with records or without (adr/0056)."""

from dataclasses import dataclass

from pyspark.sql import DataFrame

from tidemark.engine.session.spark_errors import translate_spark_errors
from tidemark.engine.state.state_files import SparkWarehouse
from tidemark.model.checkpoint.plan import CheckpointPlan
from tidemark.model.core.ttl import Now
from tidemark.model.kinds.base.sql import quote
from tidemark.model.portable_sql.dialects import DUCKDB, SPARK, Dialect
from tidemark.processing.timer_merge import FiringRules


@dataclass(frozen=True, slots=True, kw_only=True)
class DueKeys:
    """The keys that may have timers to fire, kept until they are released, or how workers find them.

    A key with a timer that was replaced or has fired since may be among them: its newest rows decide.

    Attributes:
        rules: which timers fire.
        keys: key columns and `_key_group`, of each timer that may fire; None if there are none.
        count: their number; a key with several timers counts several times.
        condition: the rows of timers that fire, in DuckDB's SQL, for workers that look keys up themselves.
    """

    rules: FiringRules
    keys: DataFrame | None = None
    count: int = 0
    condition: str = ""

    @property
    def may_fire(self) -> bool:
        """Whether there may be a timer to fire."""
        return bool(self.count or self.condition)

    def release(self) -> None:
        """Releases the cached keys."""
        if self.keys is not None:
            with translate_spark_errors():
                self.keys.unpersist()


def find_due(warehouse: SparkWarehouse, plan: CheckpointPlan, uid: str, now: Now, held: int) -> DueKeys:
    """Looks for stored timers between the frontier before the batch and the one after it.

    Row groups without such a timer are skipped by their statistics. A frontier that has not moved needs no query.

    Args:
        warehouse: the warehouse, with the session of the attempt.
        plan: the plan that is executed.
        uid: the operator, which has timers.
        now: the clocks after the batch.
        held: how many keys a task may have to hold; see `held_keys`.

    Raises:
        EngineError, StoreError: Spark failed, or a version of the state is missing.
    """
    schema, rules = plan.schemas[uid], FiringRules.of(plan, uid, now)
    if not rules.moves or rules.after_ms is None or schema.timers is None or not plan.handles[uid]:
        return DueKeys(rules=rules)
    name = quote(schema.timers.name)

    def due(dialect: Dialect) -> str:
        # Only rows of timers have a time there, a tombstone has none: the columns of their kind need not be read.
        last = f"{name} <= {dialect.instant(rules.after_ms or 0)}"
        return dialect.text(
            last if rules.before_ms is None else f"{last} AND {name} > {dialect.instant(rules.before_ms)}"
        )

    if warehouse.reader_of(plan.handles[uid], held) is not None:
        return DueKeys(rules=rules, condition=due(DUCKDB))
    with translate_spark_errors():
        stored = warehouse.stored_rows(schema, plan.handles[uid]).where(due(SPARK))
        keys = stored.select("_key_group", *(k.name for k in schema.keys)).persist()
        return DueKeys(rules=rules, keys=keys, count=keys.count())
