"""Names that the tasks and the plugin share. All components of Airflow load the plugin, so this imports nothing."""

PLAN, FOLD, VALIDATE, COMPLETE = "plan", "fold", "validate", "complete"
"""The tasks of a checkpoint, in order. Other DAGs have a task `plan` too."""
CHECKPOINT_TASKS = frozenset((PLAN, FOLD, VALIDATE, COMPLETE))
"""The tasks by which a checkpoint DAG differs from the pipeline's other DAGs."""
FAILURE_COUNT = "failed_checkpoints"
"""The key under which a task stores `{"in_a_row", "tolerable"}`; the listener `pausing` reads it."""
PAUSE_REQUEST = "pauses_pipeline"
"""The key under which a task stores `{"pipeline", "paused"}`; the listener `stopping` reads it."""
TASK_ERROR = "error"
"""The key under which a failed try stores `{"try", "error", "what", "safe", "next"}`; the pages show it."""
