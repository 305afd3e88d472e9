"""Runs commands on a `DiskPipeline`: commands, store and tables are real, Kafka and Spark are in-memory twins."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pkgutil import iter_modules
from unittest import mock

import tidemark.cli
from tests.support.disk import DiskPipeline
from tidemark.context import Context
from tidemark.coordinator.checkpoints.attempts import OwnedAttempt
from tidemark.declare.pipeline import Pipeline
from tidemark.model.checkpoint.manifest import Sealed
from tidemark.ports import SourceLog, StepListener
from tidemark.settings import Settings, load_settings


class DiskContext(Context):
    """The real context without Kafka and Spark."""

    def __init__(self, line: DiskPipeline, settings: Settings) -> None:
        super().__init__(settings)
        self.line = line

    @property
    def log(self) -> SourceLog:
        """The log of the pipeline."""
        return self.line.log

    def execute(self, pipeline: Pipeline, owned: OwnedAttempt, listener: StepListener | None = None) -> Sealed:
        """Executes an attempt on the twin of the engine, with the current declaration."""
        self.line.pipeline = pipeline
        return self.line.execute(owned)


@contextmanager
def commands_over(line: DiskPipeline) -> Iterator[None]:
    """Within the block, commands in this process work on `line`."""
    with ExitStack() as patches:
        for found in iter_modules(tidemark.cli.__path__, "tidemark.cli."):
            module = import_module(found.name)
            if hasattr(module, "open_context"):
                made = mock.patch.object(module, "open_context", lambda *_: DiskContext(line, load_settings()))
                patches.enter_context(made)
        yield
