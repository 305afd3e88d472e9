"""Reads docker-compose.yaml and substitutes its variables as Compose does."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from devstack.env_file import SECRETS

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.yaml"
VARIABLE = re.compile(r"\$(?:(\$)|\{(\w+)(?:(:-|:\?)([^}]*))?\})")


class UnsetError(Exception):
    """A required variable is not set."""


def filled(text: str, variables: Mapping[str, str]) -> str:
    """Substitutes `${NAME}`, `${NAME:-default}`, `${NAME:?message}` and `$$` in a text."""

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
    """The Compose file with values for its variables."""

    variables: Mapping[str, str]

    @cached_property
    def whole(self) -> dict[str, Any]:
        """The whole file with variables substituted."""
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

    def process(self, service: str, home: Path, options: Mapping[str, str]) -> list[str]:
        """The command line of a service, adapted to run as a process of this machine, without the enclosing shell.

        Args:
            service: a service that starts with `bash -c`.
            home: replaces `$SPARK_HOME`.
            options: values that replace those of the file, or are added to it.
        """
        shell, flag, text = self.services[service]["command"]
        assert (shell, flag) == ("bash", "-c"), service
        words = shlex.split(text.removeprefix("exec ").replace("$SPARK_HOME", str(home)))
        for name, value in options.items():
            if name in words:
                words[words.index(name) + 1] = value
            else:
                words[2:2] = [name, value]
        return words

    def properties(self, config: str) -> dict[str, str]:
        """The properties of a config that consists of `name=value` lines."""
        lines = self.whole["configs"][config]["content"].splitlines()
        return dict(line.split("=", 1) for line in lines)


def example() -> Compose:
    """The file with a different value for each secret."""
    return Compose({name: f"{name.lower()}-1" for name in SECRETS})
