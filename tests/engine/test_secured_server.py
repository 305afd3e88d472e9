"""A Connect server that wants a token, behind TLS: a checkpoint over both, and three lines for a wrong token.

Spark's own server does not speak TLS, so a proxy ends it here, as a load balancer does in production.
"""

import asyncio
import json
import re
import ssl
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from devstack import control, spark_server
from devstack.addresses import LOOPBACK
from tests.support.certificates import Authority
from tests.support.cli import Command
from tests.support.kafka import Topics
from tidemark.settings import load_settings

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]
TOKEN = "canary/7d1f+="
DECLARATION = """
from dataclasses import dataclass

from tidemark import Fold, KafkaSource, Pipeline, state


@dataclass(frozen=True)
class Trip:
    bus: str
    miles: int


class Bus(state.Keyed):
    miles: int = state.sum("miles")


buses = Fold("buses", key_by="bus", state=Bus)
trips = Pipeline(name="trips", source=KafkaSource("$topic", Trip), operators=[buses])
"""


class TlsProxy:
    """Ends TLS with HTTP/2 at a port of its own, and passes the bytes on to a server in plain text."""

    def __init__(self, server: str, key: Path, certificate: Path) -> None:
        at = urlsplit(server)
        self._server = (at.hostname or LOOPBACK, at.port or 15002)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._context.set_alpn_protocols(["h2"])
        self._loop = asyncio.new_event_loop()
        self.port = 0
        self.connections = 0
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "TlsProxy":
        self._thread.start()
        listening = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(30)
        self.port = listening.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, LOOPBACK, 0, ssl=self._context)

    async def _serve(self, near: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        self.connections += 1
        far, on = await asyncio.open_connection(*self._server)
        await asyncio.gather(_pass(near, on), _pass(far, out))


async def _pass(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(2**16):
            target.write(data)
            await target.drain()
    target.close()


@dataclass
class SecuredServer:
    """The proxy in front of the server, the authority that clients must trust, and the server's folder."""

    proxy: TlsProxy
    authority: Authority
    home: Path

    @property
    def variables(self) -> dict[str, str]:
        """The settings of a user of the server."""
        file = self.home.parent / "token"
        file.write_text(f"{TOKEN}\n")
        return {
            "TIDEMARK_SPARK": f"sc://{LOOPBACK}:{self.proxy.port}/;use_ssl=true",
            "TIDEMARK_SPARK_TOKEN_FILE": str(file),
            "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(self.authority.path),
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    """The stack's own server, started with a token."""
    folder = tmp_path_factory.mktemp("secured")
    settings = load_settings(home=str(folder / "home"))
    plain = spark_server.server_configuration
    authority = Authority(folder, "authority")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            spark_server, "server_configuration", lambda *a: plain(*a) | {"spark.connect.authenticate.token": TOKEN}
        )
        control.up(settings, only=("spark",), warm=False)
    try:
        with TlsProxy(settings.spark_address, *authority.signed("spark")) as proxy:
            yield SecuredServer(proxy, authority, settings.home)
    finally:
        control.down(settings)


@pytest.fixture
def tidemark(secured: SecuredServer, topics: Topics, tmp_path: Path) -> Command:
    """A command without a Spark, before a topic with three trips."""
    topic = f"trips-{uuid.uuid4().hex}"
    topics.make(topic)
    topics.produce(topic, [json.dumps({"bus": "a", "miles": 3}).encode()] * 3)
    made = Command(tmp_path / "home", topics.bootstrap, "")
    made.declare(DECLARATION, file="trips.py", topic=topic)
    return made


def test_a_checkpoint_over_tls_with_a_token_that_is_written_nowhere(secured: SecuredServer, tidemark: Command) -> None:
    made = tidemark.process("run", "trips", "--json", **secured.variables).ok()
    assert made.json["records"] == 3
    assert secured.proxy.connections > 0
    output = [made.out, made.err, *_commands()]
    output += [tidemark(*line, **secured.variables).ok().out for line in (("doctor",), ("checkpoint", "list", "trips"))]
    kept = [path for path in tidemark.home.rglob("*") if path.is_file()]
    logs = [path for path in (secured.home / "logs").rglob("*") if path.is_file()]
    assert kept and logs
    assert "canary" not in "\n".join(output)
    assert not [path for path in [*kept, *logs] if b"canary" in path.read_bytes()]


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"TIDEMARK_SPARK_TOKEN_FILE": "", "TIDEMARK_SPARK_TOKEN": "canary-of-another"}, "Spark refuses the token"),
        ({"TIDEMARK_SPARK_TOKEN_FILE": ""}, "Spark refuses the token"),
        ({"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": ""}, "the TLS handshake with Spark failed"),
        ({"TIDEMARK_SPARK_TOKEN_FILE": "/nowhere"}, "TIDEMARK_SPARK_TOKEN_FILE: /nowhere cannot be read"),
    ],
)
def test_a_wrong_token_or_authority_is_three_lines_and_nothing_is_written(
    secured: SecuredServer, tidemark: Command, change: dict[str, str], wrong: str
) -> None:
    failed = tidemark.process("run", "trips", **secured.variables | change)
    assert failed.code in (1, 2), failed
    said = (line for line in failed.err.splitlines() if line.strip())
    lines = [line for line in said if not re.match(r"[IWE]\d{4} ", line)]  # gRPC's own log
    assert wrong in lines[-3] and lines[-2].startswith("Safe: ") and lines[-1].startswith("Next: "), failed.err
    assert "canary" not in failed.out + failed.err
    assert tidemark.process("run", "trips", "--json", **secured.variables).ok().json["records"] == 3


def _commands() -> list[str]:
    output = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            output.append(" ".join(process.cmdline()))
    return output
