"""Pipelines under test whose warehouse is a bucket of the S3 server of the tests."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import pytest

from tests.support.kafka import Topics
from tests.support.killed_pipeline import KilledPipeline, KilledPipelines
from tests.support.processes import Zygote
from tests.support.s3 import Bucket, S3Server

HOUSE = "house"


class BucketPipeline(KilledPipeline):
    """A pipeline with its warehouse in a bucket."""

    bucket: Bucket

    def variables(self) -> dict[str, str]:
        return {"TIDEMARK_WAREHOUSE": str(self.settings.warehouse), **self.bucket.server.variables}


Line = TypeVar("Line", bound=BucketPipeline)


@dataclass(frozen=True)
class BucketLines:
    """Makes them, on one broker and one Spark server."""

    topics: Topics
    broker: str
    spark: str
    server: S3Server
    factory: pytest.TempPathFactory

    @contextmanager
    def open(self, kind: type[Line], name: str) -> Iterator[Line]:
        """Makes one in a bucket of its own, and takes the environment back in the end."""
        self.server.proxy.reset()
        # Hadoop keeps one client per bucket name, with the endpoint that it was made for.
        bucket = self.server.make_bucket(f"{name}-{self.server.store}-{os.getpid()}")
        with pytest.MonkeyPatch().context() as patched, Zygote(self.factory.mktemp("commands")) as zygote:
            for variable, value in self.server.variables.items():
                patched.setenv(variable, value)
            lines = KilledPipelines(self.topics, self.broker, self.spark, self.factory, zygote)
            made = lines.make(kind, warehouse=f"s3://{bucket.name}/{HOUSE}", s3_endpoint=self.server.proxy.address)
            assert isinstance(made, kind)
            made.bucket = bucket
            yield made
            for variable in ("SWEEP_TOPIC", "SWEEP_TOLD"):
                os.environ.pop(variable, None)
