"""The timelines of a pipeline: the live one, the ones it came from, and forks."""

from dataclasses import dataclass
from typing import Any

from tidemark.api.dry_run import DryRun
from tidemark.api.lookups import add_advice
from tidemark.context import Context
from tidemark.coordinator.records.timeline_tree import Branch
from tidemark.model.checkpoint.codec import body_of
from tidemark.operations import timelines as operations
from tidemark.operations.timelines import describe_close, describe_timeline

_LIST = ".timelines.list() lists them."


@dataclass(frozen=True, slots=True)
class Timeline:
    """A timeline as it was when you asked.

    Attributes:
        branch: all of it, as the coordinator has it. Its fields may change between releases.

    >>> t1 = w["flights"].timelines.live()
    >>> t1.name, t1.is_live, t1.parent, t1.checkpoints, t1.latest
    ('t1', True, None, 3, 'chk-3')
    """

    branch: Branch

    @property
    def name(self) -> str:
        """Its name: `t1`, or the name of a fork."""
        return self.branch.timeline

    @property
    def fate(self) -> str:
        """`live`, `fork`, `closed`, or why it ended."""
        return self.branch.fate

    @property
    def is_live(self) -> bool:
        """Whether the next checkpoint is made on it."""
        return self.branch.is_live

    @property
    def parent(self) -> str | None:
        """The timeline that it branched off; None for the first one."""
        return self.branch.parent

    @property
    def checkpoints(self) -> int:
        """How many completed checkpoints it has."""
        return self.branch.checkpoints

    @property
    def latest(self) -> str | None:
        """Its newest checkpoint: `chk-17`; None if it has none of its own yet."""
        return None if self.branch.newest is None else self.branch.newest.plan.name

    def to_dict(self) -> dict[str, Any]:
        """All facts, as JSON values: `tidemark timeline show --json`."""
        return dict(body_of(describe_timeline(self.branch)))

    def __repr__(self) -> str:
        return f"<timeline {self.name}: {self.fate}, {self.checkpoints} checkpoints>"


@dataclass(frozen=True, slots=True)
class PipelineTimelines:
    """`.timelines` of a pipeline. To begin one, use `fork` or `restore` of the pipeline.

    >>> w["flights"].timelines.list()
    [<timeline t1: live, 3 checkpoints>]
    """

    context: Context
    pipeline: str

    def list(self) -> list[Timeline]:
        """All timelines, in the order in which they began."""
        return [Timeline(found) for found in operations.list_timelines(self.context, self.pipeline)]

    def get(self, name: str) -> Timeline:
        """One timeline.

        Raises:
            NotFoundError: no such timeline.
        """
        with add_advice(_LIST):
            return Timeline(operations.get_timeline(self.context, self.pipeline, name))

    def live(self) -> Timeline:
        """The timeline on which the next checkpoint is made."""
        return next(found for found in self.list() if found.is_live)

    def close(self, name: str) -> DryRun:
        """Plans the end of a timeline that is not live. Retention deletes its files later, not this verb.

        Returns:
            A dry run; `plan` names its checkpoints and whatever keeps some of them.

        Raises:
            NotFoundError: no such timeline.
            ConflictError: it is live or closed, or a checkpoint of it is in progress.

        `commit()` raises BusyError if another process works on the timeline.

        >>> fork = w["flights"].fork("what-if", "winter")
        >>> w["flights"].timelines.close("what-if").commit()["timeline"]
        'what-if'
        >>> w["flights"].timelines.get("what-if").fate
        'closed'
        """
        with add_advice(_LIST):
            planned = operations.plan_close(self.context, self.pipeline, name)

        def execute() -> dict[str, Any]:
            return {"executed": True, **body_of(describe_close(operations.close(self.context, self.pipeline, name)))}

        return DryRun("close", {"executed": False, **body_of(describe_close(planned))}, execute)
