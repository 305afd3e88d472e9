"""Commands from other packages: each entry point of the group `tidemark.commands` is called with the app.

A package declares in its `pyproject.toml`:

    [project.entry-points."tidemark.commands"]
    stack = "devstack.commands:register"

Such a function may also add checks to `tidemark doctor` and a login to `tidemark stop` and `tidemark resume`. Other
commands of Tidemark do not look for packages, because reading all entry points takes time.
"""

from importlib.metadata import entry_points

import typer

from tidemark.cli.output import note

GROUP = "tidemark.commands"


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
