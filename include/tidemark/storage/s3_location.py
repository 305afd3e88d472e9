"""The location of a folder in a bucket, and its clients: boto3's, deltalake's options, pyarrow's file system.

Credentials come from AWS's standard chain (variables, profiles, roles).
"""

import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, NoCredentialsError
from pyarrow import fs

from tidemark.storage.s3_errors import unfit

REGION = "us-east-1"
"""The default region; other stores than Amazon's have none, but requests are signed for one."""
PROVIDERS = (
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
)
"""Credential providers of Spark's processes, in this order: Hadoop's configuration, then AWS's own chain."""
_PATIENCE = {
    "max_retries": "16",
    "retry_timeout": "90s",
    "backoff_config.init_backoff": "250ms",
    "backoff_config.max_backoff": "3s",
}
"""deltalake by itself gives up after two seconds, before a store has started again."""
_CONNECT_SECONDS, _REQUEST_SECONDS, _TRIES = 5, 30, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Place:
    """The location of a folder.

    Attributes:
        bucket: name of the bucket.
        prefix: path in the bucket, without slashes at its ends.
        endpoint: base URL of the store; None = Amazon's, or that of AWS's own variables.
        region: None = that of AWS's variables and profiles, else `REGION`.
        path_style: whether URLs have the bucket in their path, not in their host; None = if an endpoint is set.
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
    """A location, and the credentials for it, which AWS's library renews when they expire.

    Attributes:
        place: the location.
        session: session of boto3.
    """

    place: S3Place
    session: Any

    @classmethod
    def of(cls, place: S3Place) -> "S3Access":
        """Returns access with the credentials of AWS's variables, profiles and roles.

        Raises:
            UsageError: they are invalid.
        """
        try:
            return cls(place, boto3.Session())
        except (BotoCoreError, ValueError) as error:
            raise unfit(error) from error

    @property
    def region(self) -> str:
        """The region for signing requests."""
        return str(self.place.region or self.session.region_name or REGION)

    @property
    def endpoint(self) -> str | None:
        """Base URL of the store; None = Amazon's."""
        named = (os.environ.get(name) for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"))
        return self.place.endpoint or next(filter(None, named), None)

    @property
    def is_path_style(self) -> bool:
        """Whether URLs have the bucket in their path."""
        return self.endpoint is not None if self.place.path_style is None else self.place.path_style

    def client(self, options: dict[str, Any]) -> Any:  # noqa: ANN401
        """Returns a client of boto3; it does not contact the store.

        Args:
            options: botocore's options: timeouts, retries.

        Raises:
            UsageError: AWS's variables or profiles are invalid.
        """
        try:
            config = Config(
                s3={"addressing_style": "path" if self.is_path_style else "auto"},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                **options,
            )
            made = self.session.client("s3", endpoint_url=self.endpoint, region_name=self.region, config=config)
        except (BotoCoreError, ValueError) as error:
            raise unfit(error) from error
        made.meta.events.register("before-parse.s3.ListObjectsV2", _take_entries)
        return made

    def storage_options(self) -> dict[str, str]:
        """Returns deltalake's options for the same folder and credentials.

        Raises:
            UsageError: there are no credentials.
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
        options |= _PATIENCE
        if self.endpoint:
            options |= {"aws_endpoint": self.endpoint, "aws_allow_http": "true"}
        return options

    def spark_conf(self) -> dict[str, str]:
        """Returns the configuration of a Spark session for this bucket only; it holds no credentials.

        Spark passes the `AWS_` variables of its driver to executors, inside Hadoop's configuration. Without such
        variables, each process uses the chain of AWS's library, because Hadoop's own chain does not know profiles.
        """
        bucket = f"fs.s3a.bucket.{self.place.bucket}"
        found = {
            f"{bucket}.endpoint.region": self.region,
            f"{bucket}.path.style.access": str(self.is_path_style).lower(),
            f"{bucket}.aws.credentials.provider": ",".join(PROVIDERS),
            # A task moves its file to the final path; a job that died leaves files that no table names.
            "mapreduce.fileoutputcommitter.algorithm.version": "2",
        }
        if self.endpoint:
            found[f"{bucket}.endpoint"] = self.endpoint
            found[f"{bucket}.connection.ssl.enabled"] = str(self.endpoint.startswith("https:")).lower()
        return found

    def arrow(self) -> Any:  # noqa: ANN401
        """Returns the file system of the store for pyarrow, with the same credentials.

        Raises:
            UsageError: there are no credentials.
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
    """Cached, because it holds connections; created again when credentials were renewed."""
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


# botocore compares each entry with its model, which takes ten times as long as to parse it. Only the fields that are
# used here are read: key, ETag and size.
def _take_entries(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object) -> None:
    """Takes the entries out of a listing before botocore parses the rest; leaves it a reply that lacks one of them."""
    body = response_dict["body"]
    if response_dict["status_code"] != 200 or not isinstance(body, bytes):
        return
    try:
        root = ElementTree.fromstring(body)  # noqa: S314 - as botocore does with the same bytes
    except ElementTree.ParseError:
        return
    namespace = root.tag[: root.tag.find("}") + 1]
    found = root.findall(f"{namespace}Contents")
    entries = [_entry(element, namespace) for element in found]
    if entries and None not in entries:
        for element in found:
            root.remove(element)
        response_dict["body"] = ElementTree.tostring(root)
        customized_response_dict["Contents"] = entries


def _entry(element: ElementTree.Element, namespace: str) -> dict[str, Any] | None:
    key, tag, size = (element.findtext(f"{namespace}{name}") for name in ("Key", "ETag", "Size"))
    if not key or not tag or not size or not size.isdecimal():
        return None
    return {"Key": key, "ETag": tag, "Size": int(size)}
