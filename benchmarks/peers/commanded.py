"""A process that does what each line of its standard input says, and answers with a line of JSON.

A process can use pyspark with either a driver or a Connect client, so a peer of the other kind has a process of its
own.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.places import ROOT, child_environment


class CommandedProcess:
    """The end of the one who commands.

    Args:
        name: its name in errors.
        words: the words behind Python on its command line.
        root: the tree whose code it runs.
    """

    def __init__(self, name: str, words: Sequence[str], root: Path = ROOT) -> None:
        self._name = name
        command, piped = [sys.executable, *words], subprocess.PIPE
        self._child = subprocess.Popen(
            command, env=child_environment(root), cwd=root, text=True, bufsize=1, stdin=piped, stdout=piped
        )

    @classmethod
    def of_module(cls, module: str, asked: Mapping[str, Any]) -> "CommandedProcess":
        """Runs a module whose `main` calls `obey`; it gets its argument as JSON."""
        return cls(module, ["-m", module, json.dumps(asked)])

    def tell(self, verb: str) -> dict[str, Any]:
        """Has the process obey a verb, and returns its answer.

        Raises:
            RuntimeError: it ended.
        """
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(f"{verb}\n")
        said = self._child.stdout.readline()
        if not said:
            raise RuntimeError(f"{self._name} ended with {self._child.wait(60)}")
        answer: dict[str, Any] = json.loads(said)
        return answer

    def close(self) -> None:
        """Closes the standard input of the process, which then ends."""
        with contextlib.suppress(BrokenPipeError), self._child:
            assert self._child.stdin is not None
            self._child.stdin.close()
            self._child.wait(120)


def obey(verbs: Mapping[str, Callable[[], object]], answer: Callable[[], Mapping[str, Any]]) -> int:
    """Calls the verb on each line of standard input, and answers it; returns at the end of the input."""
    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # other output must not look like an answer
    for line in sys.stdin:
        verbs[line.strip()]()
        said.write(json.dumps(answer()) + "\n")
        said.flush()
    return 0
