"""Help texts: the examples of a docstring stay one per line, where the help formatter would reflow them."""

import inspect

import typer

_AS_IT_STANDS = "\b\n"
"""Click's mark of a paragraph that is not to be reflowed."""
_HEADING = "Examples:"


def keep_examples(app: typer.Typer) -> None:
    """Marks the examples of every command below `app`, so that `--help` prints them line by line."""
    for command in app.registered_commands:
        text = command.help or inspect.getdoc(command.callback) or ""
        head, found, examples = text.partition(_HEADING)
        if found:
            lines = [line for line in examples.splitlines() if line.strip()]
            command.help = head + _AS_IT_STANDS + "\n".join([_HEADING, *lines])
    for group in app.registered_groups:
        if group.typer_instance is not None:
            keep_examples(group.typer_instance)
