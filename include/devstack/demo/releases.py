"""What is deployed while the demo runs: a link that Airflow's tasks read the pipeline through, and what it leads to.

The file that you see, `include/pipelines/flights.py`, is the right one, and the link leads to it before and after. In
between it leads to a copy in the demo's home with one line changed: the release of 1 July. No file of yours is edited.
"""

import difflib
import os
import shutil
from pathlib import Path

from tidemark.declare.discovery import find_pipeline
from tidemark.declare.pipeline import Pipeline
from tidemark.errors import NotFoundError, UsageError
from tidemark.settings import Settings

RIGHT = "    departure_delay: float | None = None\n"
WRONG = "    departure_delay: float\n"
"""The bug: a cancelled flight has no departure delay, so it cannot be read any more."""
RELEASE = "release-of-july"


class Releases:
    """Deploys the pipelines.

    Args:
        settings: of the project; one of its folders of pipelines has the file.
        file: the file that declares the pipeline.
        name: of the pipeline.
    """

    def __init__(self, settings: Settings, file: str = "flights.py", name: str = "flights") -> None:
        self._name, self._file = name, file
        self._own = _folder_of(settings.pipelines, file)
        # The last part of a folder's name is part of a module's: it must be the same for the same code.
        home = settings.home / "demo"
        self._link = home / "deployed" / self._own.name
        self._wrong = home / RELEASE / self._own.name
        others = [folder for folder in settings.pipelines if folder != self._own]
        self.deployed = settings.model_copy(update={"pipelines": (self._link, *others)})
        """The settings that the stack is started with."""
        if not self._link.exists():
            self.deploy_right()

    @property
    def right(self) -> Pipeline:
        """The declaration that you see."""
        return find_pipeline(self._name, [self._own])

    @property
    def wrong(self) -> Pipeline | None:
        """The declaration with the bug; None where it was never deployed."""
        return find_pipeline(self._name, [self._wrong]) if (self._wrong / self._file).is_file() else None

    def deploy_right(self) -> None:
        """Lets the link lead to the pipelines of the project."""
        self._switch(self._own)

    def deploy_wrong(self) -> list[str]:
        """Lets the link lead to the copy with the bug.

        Returns:
            What the copy changes, as the lines of a diff.

        Raises:
            UsageError: the file does not have the line any more.
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
                next="put it back, then make demo; or leave the second half out with DEMO=quick.",
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
