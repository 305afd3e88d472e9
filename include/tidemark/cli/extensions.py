"""Commands from other packages: each entry point of the group `tidemark.commands` is called with the app.

A package declares in its `pyproject.toml`:

    [project.entry-points."tidemark.commands"]
    stack = "devstack.commands:register"

Such a function may also add checks to `tidemark doctor` and a login to `tidemark stop` and `tidemark resume`. Other
commands of Tidemark do not look for packages: to read all entry points takes as long as to read a small state.
"""

from collections.abc import Sequence
from importlib.metadata import entry_points

import typer
from typer.main import get_command_name

from tidemark.cli.output import note

GROUP = "tidemark.commands"
EXTENDED = ("doctor", "resume", "stop")
"""Commands of Tidemark that other packages extend."""


def needed_for(words: Sequence[str], app: typer.Typer) -> bool:
    """Returns whether a command line may concern commands of other packages.

    Args:
        words: the arguments of the command line.
        app: Tidemark's own commands.
    """
    first = next((word for word in words if not word.startswith("-")), "")
    own = {
        command.name or get_command_name(getattr(command.callback, "__name__", ""))
        for command in app.registered_commands
    }
    own |= {str(group.name) for group in app.registered_groups}
    return first not in own or first in EXTENDED


def register(app: typer.Typer) -> None:
    """Adds the commands of all packages, ordered by the names of their entry points.

    A package that cannot be loaded is reported on stderr and skipped; Tidemark's own commands work without it.
    """
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            add = point.load()
        except (ImportError, AttributeError) as error:
            note(f"the commands of {point.value} are missing: {error}")
            continue
        add(app)
