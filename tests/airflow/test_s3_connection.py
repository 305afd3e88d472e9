"""Credentials of a bucket from an Airflow connection: a DAG run with no others, and what the tasks start.

The connection is an `AIRFLOW_CONN_` variable; the store is moto's, which accepts any credentials, and the proxy in
front of it sees who signs.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.airflow.test_dag_runs import DagRun, states
from tests.support.airflow import AirflowPipeline
from tests.support.s3 import Bucket, only_moto
from tests.support.s3_proxy import S3Request
from tidemark.errors import UsageError

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]
KEY, SECRET, TOKEN = "AKIDOFTHECONNECTION", "s3cret/of+the=connection", "token-of-the-connection"


@pytest.fixture(autouse=True)
def nothing_else(airflow_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No credentials of this machine, and none left behind: what a task puts into the environment goes with it."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("TIDEMARK_S3_CONNECTION", "lake")
    yield
    for name in set(os.environ) - set(before):
        del os.environ[name]


def connection(monkeypatch: pytest.MonkeyPatch, **extras: str) -> None:
    fields = {"conn_type": "aws", "login": KEY, "password": SECRET, "extra": extras}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(fields))


@only_moto
def test_a_dag_run_reaches_its_bucket_by_the_connection_alone(
    world: AirflowPipeline, dag_run: DagRun, bucket: Bucket, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    signed: list[tuple[str, str]] = []

    def watch(request: S3Request) -> None:
        by = re.search(r"Credential=([^/]+)/\d+/([^/]+)/", request.headers.get("authorization", ""))
        signed.append((by[1], by[2]) if by else ("unsigned", ""))

    bucket.server.proxy.rule = watch
    connection(monkeypatch, endpoint_url=bucket.server.proxy.address, region_name="eu-north-1", aws_session_token=TOKEN)
    monkeypatch.setenv("TIDEMARK_WAREHOUSE", f"s3://{bucket.name}/house")
    world.drive("a", 3)
    run = dag_run(day=1)
    assert states(run) == dict.fromkeys(("plan", "fold", "validate", "complete"), "success")
    assert set(signed) == {(KEY, "eu-north-1")}
    (made,) = world.checkpoints()
    found = bucket.objects("house/")
    assert any(key.startswith("trips/timelines/") for key in found)
    assert made.plan.origin == run.run_id
    logged = "".join(capfd.readouterr()) + caplog.text
    for secret in (SECRET, quote(SECRET, safe=""), TOKEN):
        assert secret not in logged
        assert not [key for key, body in found.items() if secret.encode() in body]


def test_a_child_has_them_in_its_environment_and_not_on_its_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, child_of_task: Callable[[], tuple[dict[str, str], str]]
) -> None:
    monkeypatch.setenv("TIDEMARK_ROOT", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_S3_ENDPOINT", "http://mine:1")
    monkeypatch.setenv("AWS_PROFILE", "another")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of other credentials")
    connection(monkeypatch, endpoint_url="http://its:1", region_name="eu-north-1")
    variables, command = child_of_task()
    assert SECRET not in command
    assert (variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"]) == (KEY, SECRET)
    assert not {"AWS_PROFILE", "AWS_SESSION_TOKEN"} & set(variables), "they were of other credentials"
    assert (variables["TIDEMARK_S3_ENDPOINT"], variables["TIDEMARK_S3_REGION"]) == ("http://mine:1", "eu-north-1")


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        (None, "Airflow has no connection lake"),
        ({"login": KEY}, "half a key"),
        ({"password": SECRET}, "half a key"),
        ({"login": KEY, "password": SECRET, "extra": {"role_arn": "r"}}, "role_arn, which Tidemark does not support"),
        ({"login": KEY, "password": SECRET, "host": "http://store:1"}, "a host, which Tidemark does not support"),
    ],
)
def test_a_connection_that_is_not_fully_honoured_is_refused(
    fields: dict[str, object] | None, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidemark.airflow.connections import take_connections

    if fields is not None:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "aws", **fields}))
    with pytest.raises(UsageError, match=wrong) as failed:
        take_connections()
    assert SECRET not in str(failed.value)
    assert "create the connection lake in Airflow" in failed.value.next
    assert "AWS_ACCESS_KEY_ID" not in os.environ


def test_without_a_key_awss_own_chain_stays_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidemark.airflow.connections import take_connections

    monkeypatch.setenv("AWS_PROFILE", "mine")
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "aws", "extra": {"region_name": "eu-north-1"}}))
    take_connections()
    assert (os.environ["AWS_PROFILE"], os.environ["TIDEMARK_S3_REGION"]) == ("mine", "eu-north-1")
    assert "AWS_ACCESS_KEY_ID" not in os.environ
