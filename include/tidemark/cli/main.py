"""Assembles the commands, and turns errors into three lines on stderr and an exit code."""

import gc
import logging
import signal
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from types import FrameType, TracebackType
from typing import Annotated

import typer
from typer.main import get_command_name

from tidemark.cli import extensions
from tidemark.cli.help_texts import keep_examples
from tidemark.cli.output import complain, note
from tidemark.errors import TidemarkError
from tidemark.extras import as_missing
from tidemark.redaction import redact, redacted_event
from tidemark.telemetry.lazy_logger import log

COMMANDS: Mapping[str, Sequence[str]] = {
    "run": ("run", "compact"),
    "stop": ("stop", "resume"),
    "backfill": ("backfill",),
    "restore": ("restore", "fork", "promote"),
    "checkpoint": ("checkpoint",),
    "savepoint": ("savepoint",),
    "timeline": ("timeline",),
    "verify": ("verify",),
    "retention": ("storage", "retention"),
    "erase": ("erase",),
    "exports": ("export", "import"),
    "bootstrap": ("bootstrap",),
    "state": ("state",),
    "sink": ("sink",),
    "publication": ("publication",),
    "dead_letters": ("dead-letters",),
    "doctor": ("doctor",),
}
"""The modules of Tidemark's own commands, in the order of `--help`, and the first words that each one takes."""
EXTENDED = ("doctor", "resume", "stop")
"""Commands of Tidemark that other packages extend."""


def build_app(words: Sequence[str] = ()) -> typer.Typer:
    """Assembles the commands that a command line needs.

    If its first word is a command of Tidemark, only that command's module is imported, and if it is one of another
    package, only these packages: all commands together would take longer to import than many commands to run.

    Args:
        words: the command line without the program; empty = all commands.
    """
    app = typer.Typer(
        name="tidemark",
        help="Run batch pipelines with checkpoints like Flink's: Spark folds ranges of Kafka offsets into state in"
        " Delta tables, and Airflow schedules the runs.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_take_options)
    first = next((word for word in words if not word.startswith("-")), "")
    needed = [module for module, commands in COMMANDS.items() if first in commands]
    if first and not needed:
        extensions.register(app)
        if first not in _names(app):
            # A mistyped command: the error suggests a similar one.
            _register(app, COMMANDS)
    else:
        _register(app, needed or COMMANDS)
        if not needed or first in EXTENDED:
            extensions.register(app)
    keep_examples(app)
    return app


def _register(app: typer.Typer, modules: Iterable[str]) -> None:
    for module in modules:
        import_module(f"tidemark.cli.{module}").register(app)


def _names(app: typer.Typer) -> set[str]:
    """Returns the first words that an app knows so far."""
    own = (c.name or get_command_name(c.callback.__name__) for c in app.registered_commands if c.callback)
    return {*own, *(g.name for g in app.registered_groups if g.name)}


_INTERRUPTED = 130


def _print_version(is_set: bool) -> None:
    if is_set:
        typer.echo(f"tidemark {version('tidemark')}")
        raise typer.Exit


def _take_options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Takes the options that precede a command."""


def _configure_log() -> None:
    import structlog

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


def entry() -> None:
    """Runs a command: exits with 0, with the code of its error, or with 130 when interrupted."""
    log.configure_by(_configure_log)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        app = build_app(sys.argv[1:])
        gc.freeze()
        gc.enable()
        app()
    except TidemarkError as error:
        complain(error)
        sys.exit(error.code)
    except ModuleNotFoundError as error:
        missing = as_missing(error)
        if missing is None:
            raise
        complain(missing)
        sys.exit(missing.code)
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
