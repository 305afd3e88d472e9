"""A PostgreSQL for tests, from Debian's package: in a temporary folder, on a free port, never as root."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2

INSTALL = "sudo apt-get install -y postgresql"
PATIENCE = 60.0
PASSWORD = "canary-4c11"
OWNERS = ("postgres", "nobody")


def programs() -> Path | None:
    """The folder of the newest server, which Debian leaves out of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).resolve().parent if on_path else None


@dataclass(frozen=True)
class Postgres:
    """A running server."""

    port: int

    def url(self, database: str) -> str:
        """The address of a database, as Airflow requires it."""
        return f"postgresql://postgres:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str) -> None:
        """Executes one statement outside of a transaction."""
        with closing(psycopg2.connect(self.url("postgres"))) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement)


@contextmanager
def postgres() -> Iterator[Postgres]:
    """Starts a server, gone afterwards with its data. Root starts it as another user, because it refuses root."""
    folder = Path(tempfile.mkdtemp(prefix="tidemark-postgres-"))
    binaries = programs()
    assert binaries is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    try:
        (folder / "password").write_text(PASSWORD)
        options = _as_owner(folder)
        data = folder / "data"
        make = ["-D", str(data), "-U", "postgres", "-A", "scram-sha-256", "--pwfile", f"{folder}/password", "--no-sync"]
        subprocess.run(
            [str(binaries / "initdb"), *make, "-E", "UTF8", "--locale=C"], check=True, capture_output=True, **options
        )
        settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off"]
        words = [word for s in settings for word in ("-c", s)]
        command = [str(binaries / "postgres"), "-D", str(data), "-p", str(port), *words]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **options)
        try:
            made = Postgres(port)
            _await(made, server, folder / "log")
            yield made
        finally:
            server.send_signal(signal.SIGINT)  # its fast shutdown, which ends sessions
            with suppress(subprocess.TimeoutExpired):
                server.wait(20)
            server.kill()
            server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _as_owner(folder: Path) -> dict[str, Any]:
    options: dict[str, Any] = {"cwd": folder}
    if os.geteuid() == 0:
        known = {entry.pw_name: entry for entry in pwd.getpwall()}
        owner = next(known[name] for name in OWNERS if name in known)
        for path in (folder, folder / "password"):
            os.chown(path, owner.pw_uid, owner.pw_gid)
        options |= {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
    return options


def _await(made: Postgres, server: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            made.execute("SELECT 1")
        except psycopg2.OperationalError:
            assert server.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        else:
            return
