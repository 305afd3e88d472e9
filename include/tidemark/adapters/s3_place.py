"""Where a folder of a bucket is, and what reaches it: boto3's client, and the options that deltalake takes.

Credentials come from the chain that every AWS client asks (variables, profiles, roles).
"""

from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, NoCredentialsError

from tidemark.adapters.s3_errors import unfit

REGION = "us-east-1"
"""Where nothing names one; stores that are not Amazon's have none, but requests are signed for one."""


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


def client(place: S3Place, options: dict[str, Any]) -> Any:  # noqa: ANN401
    """A client of boto3's; asks nothing of the store.

    Args:
        place: what it shall reach.
        options: of botocore: timeouts, retries.

    Raises:
        BotoCoreError, ValueError: AWS's variables or profiles do not fit.
    """
    session = boto3.Session()
    config = Config(
        s3={"addressing_style": "path" if _is_path_style(place) else "auto"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        **options,
    )
    region = place.region or session.region_name or REGION
    return session.client("s3", endpoint_url=place.endpoint, region_name=region, config=config)


def storage_options(place: S3Place) -> dict[str, str]:
    """What deltalake needs to reach the same folder, by the same credentials.

    Raises:
        UsageError: no credentials, or AWS's variables do not fit.
    """
    try:
        session = boto3.Session()
        found = session.get_credentials()
        if found is None:
            raise NoCredentialsError
        frozen = found.get_frozen_credentials()
    except (BotoCoreError, ValueError) as error:
        raise unfit(error) from error
    options = {
        "aws_access_key_id": str(frozen.access_key),
        "aws_secret_access_key": str(frozen.secret_key),
        "aws_region": place.region or session.region_name or REGION,
        "aws_virtual_hosted_style_request": str(not _is_path_style(place)).lower(),
        "aws_conditional_put": "etag",
    }
    if frozen.token:
        options["aws_session_token"] = str(frozen.token)
    if place.endpoint:
        options |= {"aws_endpoint": place.endpoint, "aws_allow_http": "true"}
    return options


def _is_path_style(place: S3Place) -> bool:
    return place.endpoint is not None if place.path_style is None else place.path_style
