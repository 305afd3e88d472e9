"""The releases that the demo deploys: Airflow's tasks read the pipeline through a link, which the demo changes.

The file in your checkout, `include/pipelines/flights.py`, is correct, and the link points to it before and after. In
between it points to a copy in the demo's home with one changed line: the release of 1 July. The demo edits none of your
files.
"""

import difflib
import os
import shutil
from pathlib import Path

from tidemark.declare.pipeline import Pipeline
from tidemark.environment import find_pipeline
from tidemark.errors import NotFoundError, UsageError
from tidemark.settings import Settings

RIGHT = "    departure_delay: float | None = None\n"
WRONG = "    departure_delay: float\n"
"""The bug: a cancelled flight has no departure delay, so it can no longer be decoded."""
RELEASE = "release-of-july"


class Releases:
    """Deploys the pipelines.

    Args:
        settings: the project's settings; one of their folders of pipelines has the file.
        file: the file that declares the pipeline.
        name: the pipeline's name.
    """

    def __init__(self, settings: Settings, file: str = "flights.py", name: str = "flights") -> None:
        self._name, self._file = name, file
        self._own = _folder_of(settings.pipelines, file)
        # The folder's name is part of the module's name, so it must be the same for the same code.
        home = settings.home / "demo"
        self._link = home / "deployed" / self._own.name
        self._wrong = home / RELEASE / self._own.name
        others = [folder for folder in settings.pipelines if folder != self._own]
        self.deployed = settings.model_copy(update={"pipelines": (self._link, *others)})
        """The settings for starting the stack."""
        if not self._link.exists():
            self.deploy_right()

    @property
    def right(self) -> Pipeline:
        """The declaration in your checkout."""
        return find_pipeline(self._name, [self._own])

    @property
    def wrong(self) -> Pipeline | None:
        """The declaration with the bug; None if it was never deployed."""
        return find_pipeline(self._name, [self._wrong]) if (self._wrong / self._file).is_file() else None

    def deploy_right(self) -> None:
        """Points the link to the pipelines of the project."""
        self._switch(self._own)

    def deploy_wrong(self) -> list[str]:
        """Points the link to the copy with the bug.

        Returns:
            The change in the copy, as the lines of a diff.

        Raises:
            UsageError: the file no longer has the line.
        """
        self._make()
        self._switch(self._wrong)
        june, july = (
            (folder / self._file).read_text(encoding="utf-8").splitlines() for folder in (self._own, self._wrong)
        )
        return list(difflib.unified_diff(june, july, f"june/{self._file}", f"july/{self._file}", n=1, lineterm=""))

    def _make(self) -> None:
        if (self._wrong / self._file).is_file():
            return
        text = (self._own / self._file).read_text(encoding="utf-8")
        if text.count(RIGHT) != 1:
            raise UsageError(
                f"{self._own / self._file} does not have the line {RIGHT.strip()!r}, which the demo breaks on purpose",
                safe="completed checkpoints are intact; nothing was deployed.",
                next="put it back, then make demo; or skip the second half with DEMO=quick.",
            )
        made = self._wrong.parent.with_suffix(".tmp")
        shutil.rmtree(made, ignore_errors=True)
        shutil.copytree(self._own, made / self._own.name, ignore=shutil.ignore_patterns("__pycache__"))
        (made / self._own.name / self._file).write_text(text.replace(RIGHT, WRONG), encoding="utf-8")
        os.replace(made, self._wrong.parent)

    def _switch(self, to: Path) -> None:
        self._link.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._link.with_name(self._link.name + ".new")
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(to, target_is_directory=True)
        os.replace(fresh, self._link)


def _folder_of(folders: tuple[Path, ...], file: str) -> Path:
    for folder in folders:
        if (folder / file).is_file():
            return folder
    raise NotFoundError(f"no folder of TIDEMARK_PIPELINES has {file}", next="unset TIDEMARK_PIPELINES, then make demo.")
