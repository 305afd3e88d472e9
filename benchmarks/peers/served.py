"""Tidemark through a warm Connect server, from a warm client: a separate process that runs on command.

A process can use pyspark with either a driver or a Connect client, and the other peers use the driver of this one.
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
    """Sends commands to the client process, and reads the state in this process, which needs no Spark for that."""

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
        """Has the client complete one checkpoint."""
        self._tell("take")

    def upkeep(self) -> None:
        """Has the client run the due compactions."""
        self._tell("upkeep")

    @property
    def compacted(self) -> str:
        """The same as `TidemarkPeer.compacted`."""
        return str(self.told["compacted"])

    @property
    def phases(self) -> dict[str, float]:
        """The same as `TidemarkPeer.phases`."""
        return dict(self.told["phases"])

    def close(self) -> None:
        """Closes the standard input of the client, which then ends."""
        with contextlib.suppress(BrokenPipeError), self.client:
            assert self.client.stdin is not None
            self.client.stdin.close()
            self.client.wait(60)

    def rows(self) -> pa.Table:
        """Reads the state at the head."""
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
    """Runs each command that it reads from standard input, and answers it with a line of JSON."""
    asked = json.loads(sys.argv[1])
    peer = TidemarkPeer(Place(**asked["place"]), asked["spark"])
    verbs = {"take": peer.take, "upkeep": peer.upkeep}
    said = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # other output must not look like an answer
    for line in sys.stdin:
        verbs[line.strip()]()
        said.write(json.dumps({"compacted": peer.compacted, "phases": peer.phases}) + "\n")
        said.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
