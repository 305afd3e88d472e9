"""Dead letters of a pipeline: records that operators could not use, and their redrive."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.api.dry_run import DryRun
from tidemark.context import Context
from tidemark.environment import user_name
from tidemark.model.checkpoint.codec import body_of
from tidemark.operations.dead_letters import redriving
from tidemark.operations.dead_letters.redriving import LetterFilter, RedriveRequest


@dataclass(frozen=True, slots=True)
class PipelineDeadLetters:
    """The dead letters of the live timeline. `show` and `redrive` look at the pipeline's file; none needs Spark.

    Attributes:
        context: the parts of Tidemark that work on it; not part of the public interface.
        pipeline: the pipeline's name.
    """

    context: Context
    pipeline: str

    def list(self, uid: str | None = None) -> dict[str, Any]:
        """Totals by operator and reason, and the requests to redrive letters: `tidemark dead-letters list --json`.

        Raises:
            NotFoundError: no such operator.
        """
        return dict(body_of(redriving.list_letters(self.context, self.pipeline, uid)))

    def show(self, uid: str, letters: LetterFilter | None = None) -> Sequence[Mapping[str, Any]]:
        """Letters of an operator, oldest first: `tidemark dead-letters show --json`.

        Args:
            uid: the operator.
            letters: which of them; the oldest 20 without it.

        Raises:
            NotFoundError: no such operator.
        """
        wanted = LetterFilter(limit=20) if letters is None else letters
        found: Sequence[Mapping[str, Any]] = body_of(redriving.show_letters(self.context, self.pipeline, uid, wanted))
        return found

    def redrive(self, request: str | RedriveRequest) -> DryRun:
        """Plans to give an operator its dead letters again, decoded by the current code, in the next checkpoint.

        Args:
            request: the operator, for all of its letters; or a `tidemark.api.RedriveRequest`, which has all options of
                `tidemark dead-letters redrive`.

        Raises:
            NotFoundError: no such operator, or it has no such letters.
            UsageError: the operator cannot get records late, or its answer depends on when they arrive; or there are
                too many letters for one request.
        """
        wanted = RedriveRequest(uid=request) if isinstance(request, str) else request

        def execute() -> dict[str, Any]:
            return dict(body_of(redriving.redrive(self.context, self.pipeline, wanted, user_name())))

        planned = body_of(redriving.plan_redrive(self.context, self.pipeline, wanted))
        return DryRun("redrive", dict(planned), execute)

    def withdraw(self, number: int) -> DryRun:
        """Plans to withdraw a request, unless a checkpoint has taken it up.

        Raises:
            NotFoundError: no such request.
        """

        def execute() -> dict[str, Any]:
            return dict(body_of(redriving.withdraw(self.context, self.pipeline, number, user_name())))

        return DryRun("withdraw", dict(body_of(redriving.find_request(self.context, self.pipeline, number))), execute)
