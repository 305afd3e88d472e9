"""Executors without credentials of their own write to a bucket with those of their driver, which Spark shows nowhere.

A driver with an executor process, as `spark-submit` of a DAG's task starts it; the store is moto's, which accepts any
credentials, and the proxy in front of it sees who signs.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.prerequisites import needs
from tests.support.s3 import Bucket, only_moto
from tests.support.s3_proxy import S3Request
from tests.support.spark_cluster import QUICK_JAVA, environment
from tidemark.airflow.spark_jobs import submit_command, submit_environment
from tidemark.engine.session.installation import spark_home
from tidemark.settings import load_settings

pytestmark = [
    only_moto,
    pytest.mark.spark,
    pytest.mark.slow,
    needs(any((load_settings().jar_folder / "s3").glob("*.jar")), "make setup-s3 has not fetched the jars for S3"),
]
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDOFTHEDRIVER", "AWS_SECRET_ACCESS_KEY": "s3cret/of+the=driver"}
CONF = """
spark.executorEnv.AWS_ACCESS_KEY_ID
spark.executorEnv.AWS_SECRET_ACCESS_KEY
spark.executorEnv.AWS_EC2_METADATA_DISABLED true
spark.driver.host 127.0.0.1
spark.executor.memory 512m
spark.executor.extraJavaOptions {java}
spark.eventLog.enabled true
spark.eventLog.compress false
spark.eventLog.dir {folder}
spark.ui.enabled true
spark.ui.port 0
"""
"""An empty variable is none to AWS's library; Spark's own pages are looked at."""
APPLICATION = """
import json, os, sys, urllib.request
from pathlib import Path
from pyspark.sql import SparkSession
from tidemark.settings import load_settings
from tidemark.context import open_context

spark = SparkSession.builder.getOrCreate()
for name, value in open_context(load_settings()).warehouse.spark_conf.items():
    spark.conf.set(name, value)
place = sys.argv[1]
spark.range(100).write.parquet(place)

def own(rows):
    yield os.environ.get("AWS_SECRET_ACCESS_KEY", ""), Path("/proc", str(os.getppid()), "cmdline").read_text()

has, command = spark.sparkContext.parallelize([0], 1).mapPartitions(own).first()
ui, page = spark.sparkContext.uiWebUrl, f"api/v1/applications/{spark.sparkContext.applicationId}/environment"
shown = [urllib.request.urlopen(f"{ui}/{path}").read().decode() for path in (page, "environment/", "jobs/", "SQL/")]
answer = {"rows": spark.read.parquet(place).count(), "has": has, "command": command, "shown": shown}
Path(sys.argv[2]).write_text(json.dumps(answer))
spark.stop()
"""


@pytest.fixture
def variables(tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A task's, with credentials as out of an Airflow connection, and a Spark with an executor that has none."""
    env = environment(tmp_path / "driver")
    conf = CONF.format(java=QUICK_JAVA, folder=tmp_path)
    (tmp_path / "driver" / "conf" / "spark-defaults.conf").write_text(conf)
    for name in [n for n in os.environ if n.startswith(("AWS_", "SPARK_", "PYSPARK_", "TIDEMARK_"))]:
        monkeypatch.delenv(name)
    for name in ("JAVA_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_IP", "PYTHONPATH"):
        monkeypatch.setenv(name, env[name])
    own = {"TIDEMARK_WAREHOUSE": f"s3://{bucket.name}/house", "TIDEMARK_S3_ENDPOINT": bucket.server.proxy.address}
    own |= {"TIDEMARK_HOME": str(tmp_path), "TIDEMARK_SPARK_JAVA_OPTIONS": QUICK_JAVA, "AWS_CONFIG_FILE": "/nowhere"}
    own |= {"TIDEMARK_SPARK": "local-cluster[1,1,512]", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere"}
    for name, value in (own | KEYS).items():
        monkeypatch.setenv(name, value)
    yield


@pytest.mark.usefixtures("variables")
def test_executors_sign_with_the_credentials_of_their_driver_and_spark_shows_no_secret(
    bucket: Bucket, tmp_path: Path
) -> None:
    signed: set[str] = set()

    def watch(request: S3Request) -> None:
        by = re.search(r"Credential=([^/]+)/", request.headers.get("authorization", ""))
        signed.add(by[1] if by else "nobody")

    bucket.server.proxy.rule = watch
    settings, answer = load_settings(), tmp_path / "answer.json"
    (tmp_path / "application.py").write_text(APPLICATION)
    command = submit_command(settings, spark_home())
    command += [str(tmp_path / "application.py"), f"s3a://{bucket.name}/house/table", str(answer)]
    env = submit_environment(settings, spark_home())
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(answer.read_text())
    assert found["rows"] == 100
    assert found["has"] == ""
    assert signed == {KEYS["AWS_ACCESS_KEY_ID"]}
    (events,) = [log.read_text() for log in tmp_path.glob("eventlog_v2_*/events_*")] or ["none"]
    assert "fs.s3a.secret.key" in events
    assert "fs.s3a.secret.key" in found["shown"][0]
    secret = KEYS["AWS_SECRET_ACCESS_KEY"]
    texts = (*found["shown"], found["command"], events, done.stdout, done.stderr)
    assert not [text for text in texts if secret in text]
