"""Commands from other packages: each entry point of the group `tidemark.commands` is called with the app.

A package declares in its `pyproject.toml`:

    [project.entry-points."tidemark.commands"]
    stack = "devstack.commands:register"

Such a function may also add checks to `tidemark doctor` and a login to `tidemark stop` and `tidemark resume`. Other
commands of Tidemark do not look for packages, because reading all entry points takes time. `tidemark --help` calls the
functions too: what only a command needs should be imported in the command.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import typer

from tidemark.cli.output import note

if TYPE_CHECKING:
    from tidemark.cli.airflow_dags import Login
    from tidemark.cli.doctor import Check

GROUP = "tidemark.commands"
_checks: "list[Callable[[], Mapping[str, Check]]]" = []
_logins: "list[Login]" = []


def add_checks(load: "Callable[[], Mapping[str, Check]]") -> None:
    """Adds checks of `tidemark doctor` by name. A check replaces an earlier one of the same name.

    Args:
        load: returns functions that take the settings and return a `Finding`; an error that they raise becomes a
            finding. It is called when the doctor starts.
    """
    _checks.append(load)


def added_checks() -> "dict[str, Check]":
    """Returns the checks of all packages."""
    return {name: check for load in _checks for name, check in load().items()}


def add_login(login: "Login") -> None:
    """Registers a login: a function that takes the settings and returns a session, or None if it knows no Airflow."""
    _logins.append(login)


def added_logins() -> "tuple[Login, ...]":
    """Returns the logins of all packages, in the order in which they were added."""
    return tuple(_logins)


def register(app: typer.Typer) -> None:
    """Adds the commands of all packages, ordered by the names of their entry points.

    A package that cannot be loaded is reported on stderr and skipped; Tidemark's own commands work without it.
    """
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            add = point.load()
        except (ImportError, AttributeError) as error:
            note(f"the commands of {point.value} are missing: {error}")
            continue
        add(app)
