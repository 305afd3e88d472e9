"""Which store of S3's kind: for the warehouse, and for exports. Credentials are none of these settings."""

import re
from urllib.parse import urlsplit

from pydantic import field_validator
from pydantic_settings import BaseSettings

ENDPOINT = re.compile(r"https?://([\w.-]+|\[[0-9a-fA-F:.]+\])(:\d{1,5})?(/[\w./-]*)?", re.ASCII)
"""A URL of a server, without a user's name."""


class S3Settings(BaseSettings):
    """Where buckets are, and which Airflow connection knows more; nothing set means Amazon's, by AWS's own variables.

    Attributes:
        s3_connection: id of an Airflow connection whose credentials, region and endpoint DAGs' tasks use. Nothing
            outside of tasks looks at it.
    """

    s3_endpoint: str | None = None
    s3_region: str | None = None
    s3_path_style: bool | None = None
    s3_connection: str | None = None

    @field_validator("s3_endpoint")
    @classmethod
    def _check_endpoint(cls, value: str | None) -> str | None:
        # Reading the port refuses one that is too large.
        if value and (not ENDPOINT.fullmatch(value) or urlsplit(value).port == 0):
            raise ValueError("must be http://HOST:PORT or https://HOST, without a user's name")
        return value or None
