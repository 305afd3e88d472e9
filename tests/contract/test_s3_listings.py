"""Listings as Tidemark reads them next to the same listings read by botocore, from a real server."""

from typing import Any
from uuid import uuid4

import pytest

from tests.support.s3 import STORES, S3Server
from tidemark.storage import s3_location
from tidemark.storage.s3_folder import S3Folder

KEYS = [
    "ids/000000000001.json",
    "a & b/<c>.json",
    'quoted "it\'s" 100%.json',
    "plus+and space.json",
    "%2F is not a slash",
    "ümlaut/日本.json",
    "&amp; is text, and <Key> too",
    "empty",
]


@pytest.mark.parametrize("s3_server", STORES, indirect=True)
def test_keys_stamps_and_sizes_are_those_of_botocore(s3_server: S3Server, s3_folder: S3Folder) -> None:
    s3_server.proxy.reset()
    bucket = s3_server.make_bucket(f"listed-{uuid4().hex[:12]}")
    for n, key in enumerate(KEYS):
        bucket.put(key, b"" if key == "empty" else b"x" * n)
    for asked in ({}, {"Prefix": "a & b/"}, {"Delimiter": "/"}, {"MaxKeys": 3}, {"Prefix": "nothing"}):
        plain = s3_server.client.list_objects_v2(Bucket=bucket.name, **asked)
        quick = s3_folder.patient.list_objects_v2(Bucket=bucket.name, **asked)
        assert _fields(quick) == _fields(plain), asked
        for name in ("IsTruncated", "KeyCount", "CommonPrefixes", "Prefix"):
            assert quick.get(name) == plain.get(name), (asked, name)


def _fields(reply: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [(entry["Key"], entry["ETag"], entry["Size"]) for entry in reply.get("Contents", ())]


@pytest.mark.parametrize(
    "body",
    [
        b"<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>",
        b"<ListBucketResult><Contents><Key>a</Key><ETag>1</ETag><Size>x</Size></Contents></ListBucketResult>",
        b"<ListBucketResult><Contents><Key>a</Key><ETag>1</ETag><Size>1</Size></Contents><Contents></ListBucketResult>",
        b"<Error><Code>NoSuchBucket</Code></Error>",
    ],
)
def test_a_reply_that_is_not_understood_is_left_to_botocore(body: bytes) -> None:
    reply, found = {"status_code": 200, "body": body}, dict[str, Any]()
    s3_location._take_entries(response_dict=reply, customized_response_dict=found)
    assert (reply["body"], found) == (body, {})
