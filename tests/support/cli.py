"""Runs the `tidemark` command, in this process or in a new one, on the warehouse and pipelines of a test."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any
from unittest import mock

import structlog

from tidemark.context import Context, open_context
from tidemark.settings import Settings, load_settings
from tidemark.telemetry.lazy_logger import log

TIMEOUT = 180
"""Seconds that a command may take on a loaded machine."""


_RANGE = re.compile(r"(?:.* )?[\[(]\d+, \d+[)\]]")


def _ranges(told: object) -> list[str]:
    """The strings in a JSON value that are a range or end with one."""
    if isinstance(told, dict):
        return _ranges(list(told.values()))
    if isinstance(told, list):
        return [text for value in told for text in _ranges(value)]
    return [told] if isinstance(told, str) and _RANGE.fullmatch(told) else []


@dataclass(frozen=True)
class Answer:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401
        """The JSON value on stdout, which must hold nothing else. Ranges must be objects, not strings."""
        told = json.loads(self.out)
        assert (spelled := _ranges(told)) == [], f"ranges as texts: {spelled}"
        return told

    @property
    def lines(self) -> list[str]:
        """The three lines of the error, without the progress and log lines before them."""
        told = self.err.splitlines()
        return told[-3:]

    def failed(self, code: int, *words: str) -> "Answer":
        """Checks that the command failed with this code, without a result, and that its error contains `words`."""
        assert self.code == code, f"exit {self.code}, not {code}\n{self.out}\n{self.err}"
        assert self.lines[1].startswith("Safe: "), self.err
        assert self.lines[2].startswith("Next: "), self.err
        assert "Traceback" not in self.err
        assert self.out == ""
        for word in words:
            assert word in self.err
        return self

    def ok(self) -> "Answer":
        """Checks that the command succeeded."""
        assert self.code == 0, f"exit {self.code}\n{self.out}\n{self.err}"
        return self


@dataclass
class Command:
    """The command line for one warehouse.

    Attributes:
        home: folder of the test.
        broker: bootstrap servers.
        spark: address of Spark.
        warehouse: path of the warehouse; the default is a folder in `home`.
    """

    home: Path
    broker: str
    spark: str
    warehouse: Path = field(default=Path())

    def __post_init__(self) -> None:
        if self.warehouse == Path():
            self.warehouse = self.home / "warehouse"
        # The folder's name is part of its modules' names, which must be unique within this process.
        self.pipelines = self.home / f"p{abs(hash(str(self.home)))}"
        self.pipelines.mkdir(parents=True, exist_ok=True)

    def declare(self, source: Path | str, *, file: str = "line.py", **words: str) -> None:
        """Writes a pipeline file with `$words` replaced, and removes its module from the import caches."""
        text = source.read_text() if isinstance(source, Path) else source
        (self.pipelines / file).write_text(Template(text).safe_substitute(words))
        sys.modules.pop(f"{self.pipelines.name}.{file.removesuffix('.py')}", None)
        # Otherwise the bytecode cache misses a second write within the same second.
        for cached in self.pipelines.glob("__pycache__/*"):
            cached.unlink()

    def environment(self, **more: str) -> dict[str, str]:
        """The environment variables of a command; `more` overrides the defaults."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("TIDEMARK_")}
        return kept | {
            "TIDEMARK_HOME": str(self.home),
            "TIDEMARK_WAREHOUSE": str(self.warehouse),
            "TIDEMARK_PIPELINES": str(self.pipelines),
            "TIDEMARK_KAFKA_BOOTSTRAP": self.broker,
            "TIDEMARK_SPARK": self.spark,
            "PYTHONDONTWRITEBYTECODE": "1",
        } | more  # fmt: skip

    def __call__(self, *arguments: str, **more: str) -> Answer:
        """Runs a command in this process, through the entry point of the console script."""
        out, err = io.StringIO(), io.StringIO()
        # A command that lowers its priority would lower that of all later tests.
        unchanged = mock.patch.object(os, "nice", lambda by: by)
        own = _environment(self.environment(**more))
        with unchanged, own, _argv(arguments), redirect_stdout(out), redirect_stderr(err):
            code = _entered()
        return Answer(code, out.getvalue(), err.getvalue())

    def process(self, *arguments: str, **more: str) -> Answer:
        """Runs a command in a new process and waits for it."""
        done = subprocess.run(
            [sys.executable, "-m", "tidemark.cli.main", *arguments],
            env=self.environment(**more), capture_output=True, text=True, timeout=TIMEOUT, check=False,
        )  # fmt: skip
        return Answer(done.returncode, done.stdout, done.stderr)

    def started(self, *arguments: str, **more: str) -> "subprocess.Popen[str]":
        """Starts a command in a new process."""
        return subprocess.Popen(
            [sys.executable, "-m", "tidemark.cli.main", *arguments],
            env=self.environment(**more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            # Background jobs of a script ignore SIGINT, and child processes inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip

    @property
    def settings(self) -> Settings:
        """The settings that a command loads."""
        with _environment(self.environment()):
            return load_settings()

    @property
    def context(self) -> Context:
        """A context with these settings."""
        return open_context(self.settings)

    def objects(self, pipeline: str) -> dict[str, bytes]:
        """All files of a pipeline in the warehouse except locks. A refused command must not change them."""
        root = self.warehouse / pipeline
        files = (p for p in root.rglob("*") if p.is_file() and "locks" not in p.parts)
        return {str(p.relative_to(root)): p.read_bytes() for p in files}

    def abort_records(self, pipeline: str) -> list[dict[str, Any]]:
        """The bodies of the abort records, oldest first."""
        found = sorted((self.warehouse / pipeline / "plans").rglob("*.abort.json"), key=lambda p: p.stat().st_mtime)
        return [json.loads(path.read_text())["body"] for path in found]


def _entered() -> int:
    from tidemark.cli.main import entry

    before = signal.getsignal(signal.SIGTERM)
    try:
        entry()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    finally:
        log.configure_by(None)
        structlog.reset_defaults()
        signal.signal(signal.SIGTERM, before)
    return 0


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    with mock.patch.dict(os.environ, variables, clear=True):
        yield


@contextmanager
def _argv(arguments: tuple[str, ...]) -> Iterator[None]:
    with mock.patch.object(sys, "argv", ["tidemark", *arguments]):
        yield
