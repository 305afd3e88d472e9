"""Exports in a bucket: what is told when nothing can be done, and what is never told."""

import json
import os
import socket
import time
from dataclasses import replace

import pytest

from tests.copies.export_places import BucketPlace, exported, imported, silenced
from tests.copies.transfer_pipeline import TransferPipeline
from tests.support.s3 import SECRETS
from tests.support.s3_proxy import Fault, Times
from tidemark.model.retention.export_manifest import Export

BOUND = 15
"""Seconds after which somebody who waits for a store that is not there has been told."""
NOBODYS = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "") | {
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_CONFIG_FILE": os.devnull,
}

pytestmark = pytest.mark.slow


def test_what_the_bucket_refuses_is_told(made: TransferPipeline, other: TransferPipeline, place: BucketPlace) -> None:
    elsewhere = replace(place, bucket=replace(place.bucket, name="no-such-bucket"))
    exported(made, elsewhere).failed(3, "no bucket no-such-bucket")
    imported(other, elsewhere).failed(3, "no bucket no-such-bucket")
    proxy = place.bucket.server.proxy
    proxy.rule = Times(403, 10**6)
    for answer in (exported(made, place), imported(other, place)):
        answer.failed(1, "S3 denies access", "s3:ListBucket")
    proxy.rule = Times(403, 10**6, "PUT")
    exported(made, place).failed(1, "S3 denies access", "could not write")
    proxy.rule = Times(403, 10**6, "PUT", r"tills\.parquet$")
    exported(made, place).failed(1, "S3 denies access", "state/tills.parquet")
    proxy.rule = Times(Fault.CUT_BODY, 10**6, "GET", r"tills\.parquet$")
    exported(made, place).failed(1, "state/tills.parquet", "replies break off in the middle")
    proxy.rule = Times(400, 10**6, "GET")
    exported(made, place).failed(1, "S3 answers BadRequest (HTTP 400)")
    assert place.files() == {}
    jobs = (made.tidemark.warehouse / "market" / "jobs").glob("*.end.json")
    assert not all(json.loads(p.read_text())["body"]["done"] for p in jobs), "what failed is over, and not done"


def test_who_may_not_remove_may_export_all_the_same(
    made: TransferPipeline, other: TransferPipeline, place: BucketPlace
) -> None:
    place.bucket.server.proxy.rule = Times(403, 10**6, "DELETE")
    exported(made, place).ok()
    export = Export.decode(place.files()["export.json"])
    [extra] = set(place.files()) - {f.path for f in export.files} - {"export.json"}
    assert extra.endswith("/begun")
    imported(other, place).ok()


def test_credentials_that_are_missing_or_wrong_are_told(
    made: TransferPipeline, other: TransferPipeline, place: BucketPlace
) -> None:
    variables = place.variables | NOBODYS
    for line, asked in (
        (("export", "market", "--to", place.at), made),
        (("import", place.at, "--as", "bazaar"), other),
    ):
        asked.tidemark(*line, **variables).failed(2, "no credentials for S3", "AWS_PROFILE")
        answer = asked.tidemark(*line, **variables, AWS_PROFILE="nobody")
        answer.failed(2, "no credentials for S3 (ProfileNotFound)")

    for wrong in ({"TIDEMARK_S3_REGION": "no region"}, {"TIDEMARK_S3_ENDPOINT": "", "AWS_ENDPOINT_URL": "hidden-word"}):
        answer = made.tidemark("export", "market", "--to", place.at, **place.variables | wrong)
        answer.failed(2, "invalid S3 settings", "AWS's own variables")
        assert "hidden-word" not in answer.err
    place.bucket.server.proxy.rule = Times(403, 10**6)
    place.bucket.server.proxy.code = "SignatureDoesNotMatch"
    exported(made, place).failed(1, "does not accept the credentials (SignatureDoesNotMatch)")


def test_a_store_that_is_not_there_is_told_soon(made: TransferPipeline, place: BucketPlace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        closed = f"127.0.0.1:{taken.getsockname()[1]}"
    for address in (closed, "no-such-host.invalid"):
        began = time.monotonic()
        variables = place.variables | {"TIDEMARK_S3_ENDPOINT": f"http://{address}"}
        answer = made.tidemark("export", "market", "--to", place.at, **variables)
        silenced(answer).failed(1, f"S3 does not answer at {address}", "TIDEMARK_S3_ENDPOINT")
        assert time.monotonic() - began < BOUND


def test_a_store_that_takes_calls_and_says_nothing_is_told_soon(made: TransferPipeline, place: BucketPlace) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=16) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        variables = place.variables | {"TIDEMARK_S3_ENDPOINT": f"http://{address}"}
        answer = made.tidemark("export", "market", "--to", place.at, **variables)
        silenced(answer).failed(1, f"S3 does not answer at {address}", "ReadTimeoutError")
        assert time.monotonic() - began < BOUND


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s3://", "names no bucket"),
        ("s3:///folder", "names no bucket"),
        ("s3://key:hidden-word@bucket/folder", "names no bucket"),
        ("s3://Bucket/folder", "names no bucket"),
        ("s3://bucket", "names no folder in the bucket bucket"),
        ("s3://bucket/", "names no folder"),
        ("s3://bucket//folder", "names no folder"),
        ("s3://bucket/one/../two", "names no folder"),
        ("s3://bucket/one?versionId=hidden-word", "names no folder"),
        ("https://key:hidden-word@host/bucket", "neither a local folder nor a folder in S3"),
    ],
)
def test_a_url_that_names_no_folder_is_refused_and_not_repeated(
    made: TransferPipeline, other: TransferPipeline, url: str, words: str
) -> None:
    for answer in (
        made.tidemark("export", "market", "--to", url),
        other.tidemark("import", url, "--as", "bazaar"),
    ):
        answer.failed(2, words, "s3://BUCKET/FOLDER")
        assert "hidden-word" not in answer.err


def test_nothing_of_the_credentials_or_the_store_is_in_what_is_written(
    made: TransferPipeline, place: BucketPlace
) -> None:
    told = json.loads(exported(made, place, "--json").ok().out)
    assert (told["folder"], told["checkpoint"]) == (place.at, "chk-3")
    everything = b"".join([*place.files().values(), *made.tidemark.objects("market").values()])
    for secret in (*SECRETS, place.bucket.server.proxy.address, place.bucket.name):
        assert secret.encode() not in everything
