"""docker-compose.yaml as values, with its variables filled in as Compose does it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.yaml"
VARIABLE = re.compile(r"\$(?:(\$)|\{(\w+)(?:(:-|:\?)([^}]*))?\})")


class UnsetError(Exception):
    """A variable that must be set is not."""


def filled(text: str, variables: Mapping[str, str]) -> str:
    """A text with `${NAME}`, `${NAME:-default}`, `${NAME:?message}` and `$$` replaced."""

    def value(found: re.Match[str]) -> str:
        escaped, name, how, rest = found.groups()
        if escaped:
            return "$"
        if variables.get(name):
            return variables[name]
        if how == ":-":
            return rest
        raise UnsetError(f"{name}: {rest}")

    return VARIABLE.sub(value, text)


@dataclass(frozen=True)
class Compose:
    """The file, and variables for it."""

    variables: Mapping[str, str]

    @cached_property
    def whole(self) -> dict[str, Any]:
        """Everything, filled in."""
        found: dict[str, Any] = self._filled(yaml.safe_load(FILE.read_text()))
        return found

    @property
    def services(self) -> dict[str, dict[str, Any]]:
        """Services by name."""
        found: dict[str, dict[str, Any]] = self.whole["services"]
        return found

    def _filled(self, value: Any) -> Any:
        if isinstance(value, str):
            return filled(value, self.variables)
        if isinstance(value, dict):
            return {key: self._filled(each) for key, each in value.items()}
        return [self._filled(each) for each in value] if isinstance(value, list) else value
