"""The S3-compatible store of the warehouse and of exports. No setting holds credentials."""

import re
from urllib.parse import urlsplit

from pydantic import field_validator
from pydantic_settings import BaseSettings

ENDPOINT = re.compile(r"https?://([\w.-]+|\[[0-9a-fA-F:.]+\])(:\d{1,5})?(/[\w./-]*)?", re.ASCII)
"""A URL of a server, without a user name."""


class S3Settings(BaseSettings):
    """Where buckets are, and the Airflow connection with credentials; by default Amazon S3 and AWS's own variables.

    Attributes:
        s3_connection: id of the Airflow connection from which tasks take credentials, region and endpoint. It is
            ignored outside of tasks.
    """

    s3_endpoint: str | None = None
    s3_region: str | None = None
    s3_path_style: bool | None = None
    s3_connection: str | None = None

    @field_validator("s3_endpoint")
    @classmethod
    def _check_endpoint(cls, value: str | None) -> str | None:
        # Reading the port raises if it is too large.
        if value and (not ENDPOINT.fullmatch(value) or urlsplit(value).port == 0):
            raise ValueError("must be http://HOST:PORT or https://HOST, without a user name")
        return value or None
