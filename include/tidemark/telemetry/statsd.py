"""Sends gauges over UDP to a StatsD server, one datagram each. There is no response to wait for."""

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_LARGEST = 512
"""The largest datagram, in bytes, that every network carries without splitting it."""


@dataclass(frozen=True)
class StatsdMetrics:
    """See `ports.observing.Metrics`.

    Attributes:
        address: `host:port` of the server.
        prefix: the prefix of every name.
    """

    address: str
    prefix: str = "tidemark"

    def tell(self, pipeline: str, gauges: Mapping[str, float]) -> None:
        """See `ports.observing.Metrics`.

        Raises:
            OSError: the host is unknown, or there is no network. A missing server goes unnoticed.
        """
        host, _, port = self.address.rpartition(":")
        family, kind, proto, _, to = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, proto) as sender:
            sender.setblocking(False)
            for line in _lines(self.prefix, pipeline, gauges):
                sender.sendto(line[:_LARGEST], to)


def gauge_name(pipeline: str, name: str) -> str:
    """Returns a gauge's name with its pipeline, as Flink includes the job. Dots in the pipeline's name are replaced."""
    return f"{pipeline.replace('.', '__')}.{name}"


def _lines(prefix: str, pipeline: str, gauges: Mapping[str, float]) -> Iterator[bytes]:
    for name, value in gauges.items():
        full = f"{prefix}.{gauge_name(pipeline, name)}"
        if value < 0:
            # In StatsD a sign means "change by", so a negative value has to be set through 0.
            yield f"{full}:0|g".encode()
        yield f"{full}:{value:.15g}|g".encode()
