"""Where a folder of a bucket is, and what reaches it: boto3's client, deltalake's options, pyarrow's file system.

Credentials come from the chain that every AWS client asks (variables, profiles, roles).
"""

import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, NoCredentialsError
from pyarrow import fs

from tidemark.storage.s3_errors import unfit

REGION = "us-east-1"
"""Where nothing names one; stores that are not Amazon's have none, but requests are signed for one."""
PROVIDERS = (
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
)
"""Whom Spark's processes ask for credentials, in this order: Hadoop's configuration, then AWS's own chain."""
_CONNECT_SECONDS, _REQUEST_SECONDS, _TRIES = 5, 30, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Place:
    """Where a folder is.

    Attributes:
        bucket: its bucket.
        prefix: its path in there, without slashes at its ends.
        endpoint: base URL of the store; None = Amazon's, or what AWS's own variables name.
        region: None = as AWS's variables and profiles say, else `REGION`.
        path_style: the bucket in the path of URLs, not in their host; None = where an endpoint is named.
    """

    bucket: str
    prefix: str
    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None

    @property
    def url(self) -> str:
        """For people."""
        return f"s3://{self.bucket}/{self.prefix}"

    @property
    def spark_url(self) -> str:
        """For Spark."""
        return f"s3a://{self.bucket}/{self.prefix}"


@dataclass(frozen=True, slots=True)
class S3Access:
    """A place, and the credentials that reach it, which AWS's library renews where they expire.

    Attributes:
        place: where to.
        session: of boto3.
    """

    place: S3Place
    session: Any

    @classmethod
    def of(cls, place: S3Place) -> "S3Access":
        """Access by what AWS's variables, profiles and roles say.

        Raises:
            UsageError: they do not fit.
        """
        try:
            return cls(place, boto3.Session())
        except (BotoCoreError, ValueError) as error:
            raise unfit(error) from error

    @property
    def region(self) -> str:
        """What requests are signed for."""
        return str(self.place.region or self.session.region_name or REGION)

    @property
    def endpoint(self) -> str | None:
        """Base URL of the store; None = Amazon's."""
        named = (os.environ.get(name) for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"))
        return self.place.endpoint or next(filter(None, named), None)

    @property
    def is_path_style(self) -> bool:
        """Whether buckets stand in the path of URLs."""
        return self.endpoint is not None if self.place.path_style is None else self.place.path_style

    def client(self, options: dict[str, Any]) -> Any:  # noqa: ANN401
        """A client of boto3's; asks nothing of the store.

        Args:
            options: of botocore: timeouts, retries.

        Raises:
            UsageError: AWS's variables or profiles do not fit.
        """
        try:
            config = Config(
                s3={"addressing_style": "path" if self.is_path_style else "auto"},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                **options,
            )
            return self.session.client("s3", endpoint_url=self.endpoint, region_name=self.region, config=config)
        except (BotoCoreError, ValueError) as error:
            raise unfit(error) from error

    def storage_options(self) -> dict[str, str]:
        """What deltalake needs to reach the same folder, by the same credentials.

        Raises:
            UsageError: no credentials.
        """
        keys = self._keys()
        options = {
            "aws_access_key_id": keys[0],
            "aws_secret_access_key": keys[1],
            "aws_region": self.region,
            "aws_virtual_hosted_style_request": str(not self.is_path_style).lower(),
            "aws_conditional_put": "etag",
        }
        if keys[2]:
            options["aws_session_token"] = keys[2]
        if self.endpoint:
            options |= {"aws_endpoint": self.endpoint, "aws_allow_http": "true"}
        return options

    def spark_conf(self) -> dict[str, str]:
        """What a Spark session needs to reach the bucket, for this bucket alone; it holds no credentials.

        Spark gives executors what `AWS_` variables of its driver say, inside Hadoop's configuration. Where it has none,
        each process looks for its own by the chain of AWS's library: Hadoop's own chain knows no profiles.
        """
        bucket = f"fs.s3a.bucket.{self.place.bucket}"
        found = {
            f"{bucket}.endpoint.region": self.region,
            f"{bucket}.path.style.access": str(self.is_path_style).lower(),
            f"{bucket}.aws.credentials.provider": ",".join(PROVIDERS),
            # A task moves its file to where it stays; a job that died leaves files that no table names.
            "mapreduce.fileoutputcommitter.algorithm.version": "2",
        }
        if self.endpoint:
            found[f"{bucket}.endpoint"] = self.endpoint
            found[f"{bucket}.connection.ssl.enabled"] = str(self.endpoint.startswith("https:")).lower()
        return found

    def arrow(self) -> Any:  # noqa: ANN401
        """The store as pyarrow reads it, by the same credentials.

        Raises:
            UsageError: no credentials.
        """
        return _arrow(self.region, self.endpoint, self.is_path_style, self._keys())

    def _keys(self) -> tuple[str, str, str | None]:
        try:
            found = self.session.get_credentials()
            if found is None:
                raise NoCredentialsError
            frozen = found.get_frozen_credentials()
        except (BotoCoreError, ValueError) as error:
            raise unfit(error) from error
        return str(frozen.access_key), str(frozen.secret_key), str(frozen.token) if frozen.token else None


@lru_cache(maxsize=4)
def _arrow(region: str, endpoint: str | None, path_style: bool, keys: tuple[str, str, str | None]) -> Any:  # noqa: ANN401, FBT001
    """Kept, because it holds connections; made anew when credentials were renewed."""
    named = urlsplit(endpoint) if endpoint else None
    return fs.S3FileSystem(
        access_key=keys[0],
        secret_key=keys[1],
        session_token=keys[2],
        region=region,
        scheme=named.scheme if named else "https",
        endpoint_override=named.netloc if named else None,
        force_virtual_addressing=named is not None and not path_style,
        connect_timeout=_CONNECT_SECONDS,
        request_timeout=_REQUEST_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_TRIES),
    )
