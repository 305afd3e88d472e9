"""One Spark session for the tests of this folder."""

import uuid
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tidemark.engine.session.session import SparkSettings, open_session


@pytest.fixture(scope="session")
def spark(spark_server: str) -> Iterator[SparkSession]:
    """A session as every attempt has one."""
    session = open_session(SparkSettings(master=spark_server), f"tests/{uuid.uuid4().hex}", 1)
    yield session
    session.stop()
