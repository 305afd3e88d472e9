"""Credentials for Kafka stay out of the texts that a Connect server makes of plans: its log, its pages, its events."""

import re

import pytest
from pyspark.sql.connect.proto import Relation

from tests.unit.test_kafka_settings import SASL
from tidemark.engine.session.session import REDACTED
from tidemark.settings import load_settings

PASSWORD = 'canary-7d1f "quoted" back\\slash; semi=colon'
KEY = "-----BEGIN PRIVATE KEY-----\nY2FuYXJ5LTdkMWY\n-----END PRIVATE KEY-----\n"


def _texts(options: dict[str, str]) -> list[str]:
    """A plan as protobuf prints it, and the options as they are."""
    relation = Relation()
    relation.read.data_source.format = "kafka"
    relation.read.data_source.options.update({f"kafka.{name}": value for name, value in options.items()})
    return [str(relation), str(options["sasl.jaas.config"])]


@pytest.mark.parametrize("which", [0, 1], ids=["as protobuf prints it", "as it is"])
def test_neither_password_nor_key_is_in_the_text_of_a_plan(which: int, tmp_path: object) -> None:
    settings = load_settings(root=str(tmp_path), **SASL, kafka_sasl_password=PASSWORD, kafka_ssl_key_password="canary")
    text = _texts(settings.kafka_java_options | {"ssl.keystore.key": KEY})[which]
    assert "canary" in text
    redacted = re.sub(REDACTED, "*********(redacted)", text)
    assert "LoginModule" not in redacted
    for secret in ("canary", "semi=colon", "Y2FuYXJ5"):
        assert secret not in redacted
