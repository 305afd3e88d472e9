"""Assembles the commands, and turns errors into three lines on stderr and an exit code."""

import gc
import os
import signal
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
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

COMMANDS: Mapping[str, Mapping[str, str]] = {
    "run": {
        "run": "Make a checkpoint: finish the one in progress, or plan a new one.",
        "compact": "Merge what the newest checkpoint has in many files; the next checkpoint adopts the result.",
    },
    "stop": {
        "stop": "Stop a pipeline, optionally after a last checkpoint that a savepoint pins, and pause its DAGs once"
        " they are idle.",
        "resume": "Resume a stopped pipeline from its newest checkpoint, and unpause its DAGs.",
    },
    "backfill": {
        "backfill": "Repeat all checkpoints since a savepoint on a fork with the current code; compare the result, or"
        " promote it."
    },
    "restore": {
        "restore": "Go back to an older checkpoint: start a new live timeline there. Copies nothing, deletes nothing.",
        "fork": "Start an isolated timeline next to the live one. A fork sends nothing to Kafka.",
        "promote": "Make a fork the live timeline. The previous live timeline ends and stays readable.",
    },
    "checkpoint": {"checkpoint": "List, show, replay, abort and give up checkpoints."},
    "savepoint": {"savepoint": "Name checkpoints, so that retention keeps them."},
    "timeline": {"timeline": "Show timelines: the live one, its ancestors and its forks; and end a fork."},
    "verify": {
        "verify": "Check that restore points are undamaged: manifests, table logs, files and their sizes, and stored"
        " queries."
    },
    "retention": {
        "storage": "Show the bytes per operator and timeline: kept, free, in progress or unknown; and how much each pin"
        " keeps.",
        "retention": "Release old checkpoints and delete unused files.",
    },
    "erase": {"erase": "Erase a key from an operator's state, sinks and dead letters, in every restore point."},
    "exports": {
        "export": "Copy a checkpoint to a self-contained folder: Parquet, queries, and a manifest with each file's"
        " sha256.",
        "import": "Import an export as the first checkpoint of a new pipeline or of a new timeline.",
    },
    "bootstrap": {
        "bootstrap": "Start a new pipeline from state that you have in tables, and read on from the offsets that you"
        " give."
    },
    "state": {"state": "Read keyed state as of a checkpoint."},
    "lineage": {"lineage": "Show which fields make which columns."},
    "sink": {"sink": "Read emitted records, and skip those that cannot be sent."},
    "publication": {"publication": "Publish states to tables that others read."},
    "dead_letters": {"dead-letters": "List, show and redrive records that operators could not use."},
    "doctor": {
        "doctor": "Check everything that Tidemark needs, and name a remedy for each fault. Exits 1 if anything is"
        " missing."
    },
}
"""The modules of Tidemark's own commands, in the order of `--help`; and the first words that each one takes, with the
first paragraph of their help, so that `--help` imports no module. A test compares both with the modules."""
NOUNS = frozenset(
    ("checkpoint", "savepoint", "timeline", "retention", "state", "lineage", "sink", "publication", "dead-letters")
)
"""The first words that take a verb."""
EXTENDED = ("doctor", "resume", "stop")
"""Commands of Tidemark that other packages extend."""


def build_app(words: Sequence[str] | None = None) -> typer.Typer:
    """Assembles the commands that a command line needs.

    If its first word is a command of Tidemark, only that command's module is imported, and if it is one of another
    package, only these packages: all commands together would take longer to import than many commands to run. A list
    of all commands needs their names and the first paragraphs of their help, but no module.

    Args:
        words: the command line without the program; None = all commands, complete.
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
    first = next((word for word in words or () if word == "--help" or not word.startswith("-")), "")
    needed = [module for module, commands in COMMANDS.items() if first in commands] if first else []
    if words is None:
        _register(app, COMMANDS)
    elif needed:
        _register(app, needed)
    if not needed or first in EXTENDED:
        extensions.register(app)
    if words is not None and not needed and first not in _names(app):
        # Help, or a mistyped command: the error suggests a similar one.
        _outline(app)
    keep_examples(app)
    return app


def _register(app: typer.Typer, modules: Iterable[str]) -> None:
    for module in modules:
        import_module(f"tidemark.cli.{module}").register(app)


def _outline(app: typer.Typer) -> None:
    """Adds Tidemark's own commands before the others, each with nothing but its name and the start of its help."""
    outlined = typer.Typer()
    for name, text in (named for commands in COMMANDS.values() for named in commands.items()):
        if name in NOUNS:
            outlined.add_typer(typer.Typer(help=text), name=name)
        else:
            outlined.command(name, help=text)(_do_nothing)
    app.registered_commands[:0] = outlined.registered_commands
    app.registered_groups[:0] = outlined.registered_groups


def _do_nothing() -> None:
    """Takes the place of a command in a list of commands, which runs none of them."""


def _names(app: typer.Typer) -> set[str]:
    """Returns the first words that an app knows so far."""
    own = (c.name or get_command_name(c.callback.__name__) for c in app.registered_commands if c.callback)
    return {*own, *(g.name for g in app.registered_groups if g.name)}


def _completes() -> bool:
    """Whether a shell asks for completions; its words are in the environment then."""
    return any(name.startswith("_") and name.endswith("_COMPLETE") for name in os.environ)


_INTERRUPTED = 130


def _print_version(is_set: bool) -> None:
    if is_set:
        from importlib.metadata import version

        typer.echo(f"tidemark {version('tidemark')}")
        raise typer.Exit


def _take_options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Takes the options that precede a command."""


def _configure_log() -> None:
    import logging

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
        app = build_app(None if _completes() else sys.argv[1:])
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
    from tidemark.cli import start

    start()
