"""Assembles the commands, and turns errors into three lines on stderr and an exit code."""

import logging
import signal
import sys
import traceback
from functools import cache
from importlib.metadata import version
from types import FrameType, TracebackType
from typing import Annotated

import structlog
import typer

from tidemark.cli import (
    backfill,
    bootstrap,
    checkpoint,
    doctor,
    erase,
    exports,
    extensions,
    restore,
    retention,
    run,
    savepoint,
    sink,
    state,
    stop,
    timeline,
    verify,
)
from tidemark.cli.help_texts import keep_examples
from tidemark.cli.output import complain, note
from tidemark.errors import TidemarkError
from tidemark.redaction import redact, redacted_event

app = typer.Typer(
    name="tidemark",
    help="Run batch pipelines with checkpoints like Flink's: Spark folds ranges of Kafka offsets into state in Delta"
    " tables, and Airflow schedules the runs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for module in (
    run, stop, backfill, restore, checkpoint, savepoint, timeline, verify, retention, erase, exports, bootstrap, state,
    sink, doctor,
):  # fmt: skip
    module.register(app)
keep_examples(app)


@cache
def extended_app() -> typer.Typer:
    """Returns `app` with the commands of other packages."""
    extensions.register(app)
    keep_examples(app)
    return app


_INTERRUPTED = 130


def _print_version(is_set: bool) -> None:
    if is_set:
        typer.echo(f"tidemark {version('tidemark')}")
        raise typer.Exit


@app.callback()
def whole(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Takes the options that precede a command."""


def entry() -> None:
    """Runs a command: exits with 0, with the code of its error, or with 130 when interrupted."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S"),
            structlog.processors.format_exc_info,
            redacted_event,
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        needed = extensions.needed_for(sys.argv[1:], app)
        (extended_app() if needed else app)()
    except TidemarkError as error:
        complain(error)
        sys.exit(error.code)
    except Exception:
        sys.excepthook = _print_defect  # set only now: it replaces Typer's own hook, which redacts nothing
        raise
    except (KeyboardInterrupt, SystemExit) as ended:
        # Typer turns an interruption into an exit before it arrives here.
        if isinstance(ended, SystemExit) and ended.code != _INTERRUPTED:
            raise
        note("interrupted\nSafe: every completed checkpoint is intact.\nNext: run the command again.")
        sys.exit(_INTERRUPTED)


def _print_defect(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Prints the full traceback of a bug in Tidemark, with secrets redacted."""
    note(redact("".join(traceback.format_exception(kind, error, trace)).rstrip()))


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    entry()
