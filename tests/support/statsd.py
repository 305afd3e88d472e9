"""A StatsD server for tests: a real UDP socket."""

import socket
from threading import Thread


class Statsd:
    """A UDP listener that parses and records gauges like a StatsD server."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.2)
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.gauges: dict[str, float] = {}
        self.lines: list[str] = []
        self._ends = False
        self._thread = Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        while not self._ends:
            try:
                datagram = self._socket.recv(65536)
            except TimeoutError:
                continue
            for line in datagram.decode("ascii").splitlines():
                self._take(line)

    def _take(self, line: str) -> None:
        """Applies a line `name:value|g`: a signed value is added to the gauge, an unsigned one replaces it."""
        self.lines.append(line)
        name, _, rest = line.partition(":")
        value, kind = rest.split("|")
        assert kind == "g"
        before = self.gauges.get(name, 0.0) if value[0] in "+-" else 0.0
        self.gauges[name] = before + float(value)

    def settled(self) -> dict[str, float]:
        """The gauges, after 0.3 seconds without a new line."""
        seen = -1
        while seen != len(self.lines):
            seen = len(self.lines)
            self._thread.join(0.3)
        return self.gauges

    def close(self) -> None:
        """Stops the listener."""
        self._ends = True
        self._thread.join()
        self._socket.close()
