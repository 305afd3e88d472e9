"""Gauges over UDP to a StatsD server, one datagram each; nobody answers, so nothing waits."""

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_LARGEST = 512
"""Bytes of a datagram that every network carries whole."""


@dataclass(frozen=True)
class StatsdMetrics:
    """See `ports.observing.Metrics`.

    Attributes:
        address: `host:port` of the server.
        prefix: what every name begins with.
    """

    address: str
    prefix: str = "tidemark"

    def tell(self, pipeline: str, gauges: Mapping[str, float]) -> None:
        """See `ports.observing.Metrics`.

        Raises:
            OSError: the host is not known, or the network is not there. That a server is there, nobody says.
        """
        host, _, port = self.address.rpartition(":")
        family, kind, proto, _, to = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, proto) as sender:
            sender.setblocking(False)
            for line in _lines(self.prefix, pipeline, gauges):
                sender.sendto(line[:_LARGEST], to)


def scoped(pipeline: str, name: str) -> str:
    """A gauge's name with its pipeline, as Flink has the job in it; a dot in the pipeline's name makes no level."""
    return f"{pipeline.replace('.', '__')}.{name}"


def _lines(prefix: str, pipeline: str, gauges: Mapping[str, float]) -> Iterator[bytes]:
    for name, value in gauges.items():
        full = f"{prefix}.{scoped(pipeline, name)}"
        if value < 0:
            # In StatsD's grammar a sign means "change by": a negative value is set by way of 0.
            yield f"{full}:0|g".encode()
        yield f"{full}:{value:.15g}|g".encode()
