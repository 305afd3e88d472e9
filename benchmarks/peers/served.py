"""Tidemark through a warm Connect server, from a warm client: a separate process that runs on command.

The other peers use the driver of this process; see `commanded`.
"""

import json
import sys
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from benchmarks.peers.commanded import CommandedProcess, obey
from benchmarks.peers.places import Place
from benchmarks.peers.tidemark_peer import TidemarkPeer


@dataclass
class ServedPeer:
    """Sends commands to the client process, and reads the state in this process, which needs no Spark for that."""

    place: Place
    spark: str
    client: CommandedProcess = field(init=False)
    told: dict[str, Any] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.reader = TidemarkPeer(self.place, self.spark)
        asked = {"place": self.place.as_json(), "spark": self.spark}
        self.client = CommandedProcess.of_module("benchmarks.peers.served", asked)

    def take(self) -> None:
        """Has the client complete one checkpoint."""
        self.told = self.client.tell("take")

    def upkeep(self) -> None:
        """Has the client run the due compactions."""
        self.told = self.client.tell("upkeep")

    @property
    def compacted(self) -> str:
        """The same as `TidemarkPeer.compacted`."""
        return str(self.told["compacted"])

    @property
    def phases(self) -> dict[str, float]:
        """The same as `TidemarkPeer.phases`."""
        return dict(self.told["phases"])

    def close(self) -> None:
        """Ends the client."""
        self.client.close()

    def rows(self) -> pa.Table:
        """Reads the state at the head."""
        return self.reader.rows()


def main() -> int:
    """Runs each command that it reads from standard input, and answers it with a line of JSON."""
    asked = json.loads(sys.argv[1])
    peer = TidemarkPeer(Place(**asked["place"]), asked["spark"])
    verbs = {"take": peer.take, "upkeep": peer.upkeep}
    return obey(verbs, lambda: {"compacted": peer.compacted, "phases": peer.phases})


if __name__ == "__main__":
    sys.exit(main())
