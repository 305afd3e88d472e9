"""Keeps the examples of a docstring one per line in `--help`, where the formatter would reflow them."""

import inspect

import typer

_NO_REFLOW = "\b\n"
"""Click's marker for a paragraph that must not be reflowed."""
_HEADING = "Examples:"


def keep_examples(app: typer.Typer) -> None:
    """Marks the examples of every command below `app`, so that `--help` prints them line by line."""
    for command in app.registered_commands:
        text = command.help or inspect.getdoc(command.callback) or ""
        head, found, examples = text.partition(_HEADING)
        if found:
            lines = [line for line in examples.splitlines() if line.strip()]
            command.help = head + _NO_REFLOW + "\n".join([_HEADING, *lines])
    for group in app.registered_groups:
        if group.typer_instance is not None:
            keep_examples(group.typer_instance)
