"""Runs moto's S3 server in this process, behind a proxy that injects faults, over real HTTP on free ports."""

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.s3_proxy import S3Proxy

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIDTIDEMARKTEST",
    "AWS_SECRET_ACCESS_KEY": "a-secret-that-nobody-prints",
    "AWS_EC2_METADATA_DISABLED": "true",
}
SECRETS = [value for name, value in CREDENTIALS.items() if "KEY" in name]


@dataclass(frozen=True)
class S3Server:
    """A running S3 server.

    Attributes:
        address: the address of the server itself, without faults.
        proxy: the proxy in front of it.
        client: a client for the test, which bypasses the proxy.
    """

    address: str
    proxy: S3Proxy
    client: Any

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


@contextmanager
def running_server() -> Iterator[S3Server]:
    """Runs a server without buckets, and its proxy, for the duration of the block."""
    import boto3
    from moto.server import ThreadedMotoServer

    # werkzeug logs every request at a lower level.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    try:
        host, port = moto.get_host_and_port()
        address, keys = (
            f"http://{host}:{port}",
            {name.lower(): value for name, value in CREDENTIALS.items() if "KEY" in name},
        )
        client = boto3.client("s3", endpoint_url=address, region_name="us-east-1", **keys)
        with S3Proxy(host, port) as proxy, closing(client):
            yield S3Server(address, proxy, client)
    finally:
        moto.stop()
