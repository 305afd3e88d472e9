"""Runs that each start a new process, as a scheduler does."""

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.lineup import KINDS
from benchmarks.peers.places import ROOT, Place, Stack, child_environment


@dataclass
class FreshPeer:
    """A peer that starts a new process for every run; this process reads its state."""

    kind: str
    place: Place
    stack: Stack

    def take(self) -> None:
        """Starts a process and waits until it reports that the run is durable."""
        scratch = self.stack.home / "scratch"
        asked = {"kind": self.kind, "place": self.place.as_json(), "spark": self.stack.spark, "scratch": str(scratch)}
        command = [sys.executable, "-m", "benchmarks.peers.once", json.dumps(asked)]
        with (self.stack.home / "fresh.log").open("ab") as log:
            pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": log, "text": True}
            self._child = subprocess.Popen(command, env=child_environment(), cwd=ROOT, **pipes)
            assert self._child.stdout is not None
            said = self._child.stdout.readline()
        if said != "taken\n":
            tail = (self.stack.home / "fresh.log").read_text(errors="replace")[-3000:]
            raise RuntimeError(f"{self.kind}: the process ended with {self._child.wait()}:\n{tail}")

    def upkeep(self) -> None:
        """Waits until the process has ended, which is not part of the run."""
        with self._child as child:
            child.wait(120)

    def rows(self) -> Any:
        """Reads the state with a peer in this process."""
        kind = KINDS[self.kind]
        return (kind.once or kind.make)(self.place, self.stack.spark).rows()

    def close(self) -> None:
        """Does nothing: `upkeep` has waited for every process to end."""
