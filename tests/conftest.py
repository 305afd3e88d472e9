"""Fixtures for all tests. Services are expensive and start when the first test requests them."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING
from unittest import mock
from uuid import uuid4

import pytest

from tests.support.java_options import SHARED
from tests.support.prerequisites import check
from tests.support.s3 import STORES

if TYPE_CHECKING:
    from tests.support.kafka import Sent, Topics
    from tests.support.s3 import Bucket, S3Server, S3Servers
    from tidemark.settings import Settings
    from tidemark.storage.s3_folder import S3Folder

SERVICES = {"broker": "kafka", "spark_server": "spark", "spark_stack": "spark"}
"""Fixtures that start a service, and the mark of the tests that request them."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests by the services that their fixtures start, so that `make test-fast` never starts one by mistake."""
    for item in items:
        for name in SERVICES.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(SERVICES[name])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips or fails a test whose prerequisites are missing, before its fixtures start anything."""
    check(item)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Bootstrap address of a real broker, shared by the session; `TIDEMARK_TEST_BROKER` overrides it."""
    given = os.environ.get("TIDEMARK_TEST_BROKER")
    if given:
        yield given
        return
    from tests.support.kafka_broker import running_broker

    with running_broker(tmp_path_factory.mktemp("broker")) as process:
        yield process.address


@pytest.fixture(scope="session")
def topics(broker: str) -> "Topics":
    """Creates, fills, trims and deletes topics on the shared broker."""
    from tests.support.kafka import Topics

    return Topics(broker)


@pytest.fixture
def topic(topics: "Topics") -> str:
    """A new topic with one partition; use `topics.make(partitions=4)` for more."""
    return topics.make()


@pytest.fixture
def produce(topics: "Topics") -> "Callable[[str, Iterable[Sent | bytes]], None]":
    """`produce(topic, records)` sends values or `Sent` records and waits until the broker acknowledges them."""
    return topics.produce


@pytest.fixture(scope="session")
def spark_stack(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Settings]":
    """Settings of a stack with one running Connect server, shared by the session."""
    from devstack import control
    from tests.support.s3 import CREDENTIALS
    from tidemark.settings import load_settings

    settings = load_settings(home=str(tmp_path_factory.mktemp("spark-server")), spark_java_options=SHARED)
    # Like every AWS client, the server reads its S3 credentials from its environment.
    with mock.patch.dict(os.environ, CREDENTIALS):
        control.up(settings, only=("spark",))
    try:
        yield settings
    finally:
        control.down(settings)


@pytest.fixture(scope="session")
def spark_server(request: pytest.FixtureRequest) -> str:
    """Address (`sc://…`) of the shared Connect server; `TIDEMARK_TEST_SPARK` overrides it."""
    given = os.environ.get("TIDEMARK_TEST_SPARK")
    if given:
        return given
    settings: Settings = request.getfixturevalue("spark_stack")
    return settings.spark_address


@pytest.fixture(scope="session")
def s3_servers(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[S3Servers]":
    """S3 servers behind proxies that inject faults, shared by the session."""
    from tests.support.s3 import S3Servers

    with S3Servers(tmp_path_factory.mktemp("stores")) as servers:
        yield servers


@pytest.fixture(scope="session", params=STORES)
def s3_server(request: pytest.FixtureRequest, s3_servers: "S3Servers") -> "S3Server":
    """The server of each store in turn."""
    return s3_servers.server(request.param)


@pytest.fixture
def bucket_on(
    s3_servers: "S3Servers", monkeypatch: pytest.MonkeyPatch
) -> "Iterator[Callable[[str], tuple[Bucket, S3Folder]]]":
    """Creates a bucket on a store, and opens the folder `house` of it; see `bucket` and `folder`."""
    with ExitStack() as faults:

        def made(store: str) -> "tuple[Bucket, S3Folder]":
            server, folder = s3_servers.server(store), s3_servers.folder(store)
            server.proxy.reset()
            faults.callback(server.proxy.reset)
            for name, value in server.variables.items():
                monkeypatch.setenv(name, value)
            bucket = server.make_bucket(f"b-{uuid4().hex[:12]}")
            place = replace(folder.place, bucket=bucket.name)
            return bucket, replace(folder, access=replace(folder.access, place=place))

        yield made


@pytest.fixture
def bucket(s3_server: "S3Server") -> "Iterator[Bucket]":
    """A new bucket; the proxy injects no faults until the test sets a rule."""
    s3_server.proxy.reset()
    yield s3_server.make_bucket(f"b-{uuid4().hex[:12]}")
    s3_server.proxy.reset()


@pytest.fixture(scope="session")
def s3_folder(s3_server: "S3Server", s3_servers: "S3Servers") -> "S3Folder":
    """An open folder that other fixtures point at their bucket."""
    return s3_servers.folder(s3_server.store)


@pytest.fixture
def folder(bucket: "Bucket", s3_folder: "S3Folder", monkeypatch: pytest.MonkeyPatch) -> "S3Folder":
    """The open folder `house` of `bucket`, accessed through the proxy."""
    for name, value in bucket.server.variables.items():
        monkeypatch.setenv(name, value)
    return replace(s3_folder, access=replace(s3_folder.access, place=replace(s3_folder.place, bucket=bucket.name)))
