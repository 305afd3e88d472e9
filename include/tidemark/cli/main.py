"""Puts the commands together, and turns errors into three lines on stderr and an exit code."""

import logging
import signal
import sys
from types import FrameType

import structlog
import typer

from tidemark.cli import checkpoint, run, stack_commands, state, topic
from tidemark.cli.output import complain
from tidemark.errors import TidemarkError

app = typer.Typer(
    name="tidemark",
    help="Flink's checkpoints for batch pipelines: Kafka ranges, folded by Spark, kept in Delta, scheduled by Airflow.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for module in (run, checkpoint, state, topic, stack_commands):
    module.register(app)


def entry() -> None:
    """Runs a command: exit 0, or the code of its error; 130 when interrupted."""
    structlog.configure(
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        app()
    except TidemarkError as error:
        complain(error)
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\nSafe: every completed checkpoint is intact.\nNext: run the command again.\n")
        sys.exit(130)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    entry()
