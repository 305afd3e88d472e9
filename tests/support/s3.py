"""Runs an S3 server behind a proxy that injects faults, over real HTTP: moto's in this process, or MinIO."""

import logging
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from devstack.minio import is_here
from tests.support.minio import MinioProcess, needs_minio, running_minio
from tests.support.s3_proxy import S3Proxy

if TYPE_CHECKING:
    from tidemark.storage.s3_folder import S3Folder

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIDTIDEMARKTEST",
    "AWS_SECRET_ACCESS_KEY": "a-secret-that-nobody-prints",
    "AWS_EC2_METADATA_DISABLED": "true",
}
SECRETS = [value for name, value in CREDENTIALS.items() if "KEY" in name]
MOTO, MINIO = "moto", "minio"
STORES = [MOTO, pytest.param(MINIO, marks=needs_minio())]
"""The parameters of the fixture `s3_server`: each test of a bucket runs on both."""
SLOW_STORES = [pytest.param(MOTO, marks=pytest.mark.slow), pytest.param(MINIO, marks=[needs_minio(), pytest.mark.slow])]
"""The same, for suites that run on disks as well."""
only_moto = pytest.mark.parametrize("s3_server", [MOTO], indirect=True)
"""The mark of tests that say why one store is enough, such as those for which any credentials must do."""

one_store = pytest.mark.parametrize("s3_server", [MINIO if is_here(os.environ) else MOTO], indirect=True)
"""The mark of stories that take minutes: the contracts of their parts hold on both stores."""


@dataclass(frozen=True)
class S3Server:
    """A running S3 server.

    Attributes:
        store: `MOTO` or `MINIO`.
        address: the address of the server itself, without faults.
        proxy: the proxy in front of it.
        client: a client for the test, which bypasses the proxy.
        process: MinIO's; None if the server is moto's.
    """

    store: str
    address: str
    proxy: S3Proxy
    client: Any
    process: MinioProcess | None

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables with which a command reaches the server through the proxy."""
        return CREDENTIALS | {"TIDEMARK_S3_ENDPOINT": self.proxy.address}

    def make_bucket(self, name: str) -> "Bucket":
        """Creates a bucket."""
        self.client.create_bucket(Bucket=name)
        return Bucket(self, name)


@dataclass(frozen=True)
class Bucket:
    """A bucket that the test accesses directly, without the proxy."""

    server: S3Server
    name: str

    def objects(self, below: str = "") -> dict[str, bytes]:
        """All objects below a prefix, by key without the prefix."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=below)
        keys = [found["Key"] for page in pages for found in page.get("Contents", ())]
        return {key.removeprefix(below): self._read(key) for key in keys}

    def put(self, key: str, body: bytes) -> None:
        """Writes or replaces an object."""
        self._client.put_object(Bucket=self.name, Key=key, Body=body)

    def remove(self, key: str) -> None:
        """Removes an object."""
        self._client.delete_object(Bucket=self.name, Key=key)

    def _read(self, key: str) -> bytes:
        with closing(self._client.get_object(Bucket=self.name, Key=key)["Body"]) as body:
            return bytes(body.read())

    @property
    def _client(self) -> Any:  # noqa: ANN401
        return self.server.client


@dataclass
class S3Servers:
    """Servers by their stores, each started when it is asked for first, and closed at the end of the `with` block."""

    root: Path
    _open: dict[str, tuple[S3Server, "S3Folder"]] = field(default_factory=dict)
    _closing: ExitStack = field(default_factory=ExitStack)

    def server(self, store: str) -> S3Server:
        """The running server of a store."""
        return self._opened(store)[0]

    def folder(self, store: str) -> "S3Folder":
        """An open folder, to be pointed at a bucket: creating its clients takes longer than most tests."""
        return self._opened(store)[1]

    def _opened(self, store: str) -> tuple[S3Server, "S3Folder"]:
        from tidemark.storage.s3_folder import open_folder
        from tidemark.storage.s3_location import S3Place

        if store not in self._open:
            server = self._closing.enter_context(running_server(store, self.root / store))
            with mock.patch.dict(os.environ, server.variables):
                found = open_folder(S3Place(bucket="none", prefix="house", endpoint=server.proxy.address))
            self._open[store] = server, self._closing.enter_context(found)
        return self._open[store]

    def __enter__(self) -> "S3Servers":
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()


@contextmanager
def running_server(store: str, folder: Path) -> Iterator[S3Server]:
    """Runs a server without buckets, and its proxy, for the duration of the block.

    Args:
        store: one of `STORES`.
        folder: for the data of a store that keeps them on disk.
    """
    import boto3

    key, secret = CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
    with _started(store, folder) as (port, process):
        address = f"http://127.0.0.1:{port}"
        client = boto3.client(
            "s3",
            endpoint_url=address,
            region_name="us-east-1",
            aws_access_key_id=key,
            aws_secret_access_key=secret,
        )
        proxy = S3Proxy("127.0.0.1", port, (key, secret), is_atomic=store != MOTO)
        with proxy, closing(client):
            yield S3Server(store, address, proxy, client, process)


def _started(store: str, folder: Path) -> AbstractContextManager[tuple[int, MinioProcess | None]]:
    return _moto() if store == MOTO else _minio(folder)


@contextmanager
def _moto() -> Iterator[tuple[int, None]]:
    from moto.server import ThreadedMotoServer

    # werkzeug logs every request at a lower level.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    try:
        yield moto.get_host_and_port()[1], None
    finally:
        moto.stop()


@contextmanager
def _minio(folder: Path) -> Iterator[tuple[int, MinioProcess]]:
    with running_minio(folder, CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"]) as store:
        yield store.port, store
