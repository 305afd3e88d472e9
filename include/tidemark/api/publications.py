"""Publications of a pipeline: which checkpoint each target has, and the verbs that bring it to a newer one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.api.dry_run import DryRun
from tidemark.context import Context
from tidemark.model.checkpoint.codec import body_of
from tidemark.operations.publications import publishing


@dataclass(frozen=True, slots=True)
class PipelinePublications:
    """The publications of one pipeline. `run`, `rebuild` and `drop` look at the pipeline's file; none needs Spark.

    Attributes:
        context: the parts of Tidemark that work on it; not part of the public interface.
        pipeline: the pipeline's name.
    """

    context: Context
    pipeline: str

    def list(self) -> Sequence[Mapping[str, Any]]:
        """The publications, by name: `tidemark publication list --json`.

        >>> w["flights"].publications.list()
        []
        """
        found: Sequence[Mapping[str, Any]] = body_of(publishing.list_publications(self.context, self.pipeline))
        return found

    def show(self, name: str, limit: int = 10) -> dict[str, Any]:
        """One publication with its last steps, and views of its target: `tidemark publication show --json`.

        Raises:
            NotFoundError: no such publication.
        """
        return dict(body_of(publishing.describe_publication(self.context, self.pipeline, name, limit)))

    def run(self, name: str | None = None) -> Sequence[Mapping[str, Any]]:
        """Brings targets to the newest checkpoint; returns the steps that it made, with their version and counts.

        Args:
            name: one publication; all that the pipeline declares without it.

        Raises:
            NotFoundError: the pipeline declares no such publication.
            TargetChangedError: others have changed the rows of a target.
            TidemarkError: a target or a state cannot be read or written.

        >>> w["flights"].publications.run()
        []
        """
        names = publishing.names_to_publish(self.context, self.pipeline) if name is None else [name]
        made = [step for each in names for step in publishing.publish(self.context, self.pipeline, each)]
        found: Sequence[Mapping[str, Any]] = body_of(made)
        return found

    def verify(self, name: str) -> dict[str, Any]:
        """Compares a target with the state of its checkpoint: `equal`, and counts of keys that differ.

        Raises:
            NotFoundError: it was not published yet.
            ConflictError: the target has another step.
        """
        return dict(body_of(publishing.verify(self.context, self.pipeline, name)))

    def rebuild(self, name: str, *, replace: bool = False) -> DryRun:
        """Plans to replace all rows of a target by the newest state.

        Args:
            name: the publication.
            replace: replace rows, too, that this publication has not made.

        Raises:
            NotFoundError: no such publication.
        """

        def execute() -> dict[str, Any]:
            made = publishing.rebuild(self.context, self.pipeline, name, replaces_others=replace)
            return dict(body_of(made))

        return DryRun("rebuild", self._plan(name), execute)

    def drop(self, name: str) -> DryRun:
        """Plans to end a publication: its target keeps its rows, and retention may release its checkpoint.

        Raises:
            NotFoundError: no such publication.
        """

        def execute() -> dict[str, Any]:
            made = publishing.drop(self.context, self.pipeline, name)
            return {} if made is None else dict(body_of(made))

        return DryRun("drop", self._plan(name), execute)

    def _plan(self, name: str) -> dict[str, Any]:
        return dict(body_of(publishing.find_publication(self.context, self.pipeline, name)))
