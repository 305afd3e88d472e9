"""Tidemark through a warm Connect server, from a warm client: a process of its own that is told when to run.

pyspark has either a driver or a Connect client in one process, and the other peers have the driver.
"""

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from benchmarks.peers.places import ROOT, Place, child_environment
from benchmarks.peers.tidemark_peer import TidemarkPeer


@dataclass
class ServedPeer:
    """Tells the process to take what is there, and reads state in this one, which needs no Spark."""

    place: Place
    spark: str
    client: subprocess.Popen[str] = field(init=False)
    told: dict[str, Any] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.reader = TidemarkPeer(self.place, self.spark)
        asked = json.dumps({"place": self.place.as_json(), "spark": self.spark})
        command = [sys.executable, "-m", "benchmarks.peers.served", asked]
        piped, env = subprocess.PIPE, child_environment()
        self.client = subprocess.Popen(command, env=env, cwd=ROOT, text=True, bufsize=1, stdin=piped, stdout=piped)

    def take(self) -> None:
        """One checkpoint."""
        self._tell("take")

    def upkeep(self) -> None:
        """Compacts what is due."""
        self._tell("upkeep")

    @property
    def compacted(self) -> str:
        """As of `TidemarkPeer`."""
        return str(self.told["compacted"])

    @property
    def phases(self) -> dict[str, float]:
        """As of `TidemarkPeer`."""
        return dict(self.told["phases"])

    def close(self) -> None:
        """The process ends when nobody can tell it anything any more."""
        with contextlib.suppress(BrokenPipeError), self.client:
            assert self.client.stdin is not None
            self.client.stdin.close()
            self.client.wait(60)

    def rows(self) -> pa.Table:
        """The state at the head."""
        return self.reader.rows()

    def _tell(self, verb: str) -> None:
        assert self.client.stdin is not None
        assert self.client.stdout is not None
        self.client.stdin.write(f"{verb}\n")
        said = self.client.stdout.readline()
        if not said:
            raise RuntimeError(f"the Tidemark client of {self.place.topic} ended with {self.client.wait(60)}")
        self.told = json.loads(said)


def main() -> int:
    """Does what it is told, line by line, and answers each with a line of JSON."""
    asked = json.loads(sys.argv[1])
    peer = TidemarkPeer(Place(**asked["place"]), asked["spark"])
    verbs = {"take": peer.take, "upkeep": peer.upkeep}
    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints must not look like an answer
    for line in sys.stdin:
        verbs[line.strip()]()
        said.write(json.dumps({"compacted": peer.compacted, "phases": peer.phases}) + "\n")
        said.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
