"""One set of settings for both clients of Kafka: said in their words, checked as a whole, never printed."""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tidemark.errors import UsageError
from tidemark.settings import Settings, load_settings

SECRET = "canary-7d1f"
PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
SASL = {"kafka_bootstrap": "k:1", "kafka_security_protocol": "SASL_SSL", "kafka_sasl_username": "ann"}


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TIDEMARK_")]:
        monkeypatch.delenv(name)


def _load(root: Path, **fields: Any) -> Settings:
    return load_settings(root=root, **fields)


def _file(root: Path, name: str, text: str) -> str:
    (root / name).write_text(text)
    return name


def test_plain_text_adds_nothing(tmp_path: Path) -> None:
    settings = _load(tmp_path, kafka_bootstrap="k:1")
    assert (settings.kafka_client_options, settings.kafka_java_options) == ({}, {})


def test_both_clients_are_told_the_same(tmp_path: Path) -> None:
    ca, password = _file(tmp_path, "ca.pem", PEM), _file(tmp_path, "password", f"{SECRET}\n")
    settings = _load(tmp_path, **SASL, kafka_ssl_ca=ca, kafka_sasl_password_file=password)
    assert settings.kafka_client_options == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": SECRET,
        "ssl.ca.location": str(tmp_path / "ca.pem"),
    }
    assert settings.kafka_java_options == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="ann" password="{SECRET}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": PEM,
    }


def test_a_certificate_of_ours_goes_to_both_clients(tmp_path: Path) -> None:
    files = {f"kafka_ssl_{n}": _file(tmp_path, n, f"{n} text") for n in ("certificate", "key")}
    fields = {"kafka_bootstrap": "k:1", "kafka_security_protocol": "ssl", "kafka_ssl_key_password": SECRET}
    settings = _load(tmp_path, **fields, **files)
    assert settings.kafka_client_options == {
        "security.protocol": "SSL",
        "ssl.certificate.location": str(tmp_path / "certificate"),
        "ssl.key.location": str(tmp_path / "key"),
        "ssl.key.password": SECRET,
    }
    assert settings.kafka_java_options == {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "certificate text",
        "ssl.keystore.key": "key text",
        "ssl.key.password": SECRET,
    }


def test_a_name_and_a_password_of_any_letters_are_words_of_jaas(tmp_path: Path) -> None:
    settings = _load(tmp_path, **SASL | {"kafka_sasl_username": 'a"b'}, kafka_sasl_password='x\\y"; z')
    assert settings.kafka_java_options["sasl.jaas.config"].endswith(r'username="a\"b" password="x\\y\"; z";')
    assert settings.kafka_client_options["sasl.password"] == 'x\\y"; z'


def test_plain_has_a_login_module_of_its_own(tmp_path: Path) -> None:
    settings = _load(tmp_path, **SASL, kafka_sasl_password=SECRET, kafka_sasl_mechanism="plain")
    assert ".plain.PlainLoginModule required" in settings.kafka_java_options["sasl.jaas.config"]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"kafka_security_protocol": "SSL"}, "needs TIDEMARK_KAFKA_BOOTSTRAP"),
        ({"kafka_bootstrap": "k:1", "kafka_ssl_ca": "ca.pem"}, "uses no TIDEMARK_KAFKA_SSL_"),
        ({"kafka_bootstrap": "k:1", "kafka_sasl_username": "ann"}, "uses no TIDEMARK_KAFKA_SASL_"),
        (SASL, "either TIDEMARK_KAFKA_SASL_PASSWORD_FILE or"),
        (SASL | {"kafka_sasl_password": SECRET, "kafka_sasl_password_file": "p"}, "either"),
        (SASL | {"kafka_sasl_password": SECRET, "kafka_sasl_username": ""}, "needs TIDEMARK_KAFKA_SASL_USERNAME"),
        (SASL | {"kafka_sasl_password": SECRET, "kafka_sasl_mechanism": "GSSAPI"}, "TIDEMARK_KAFKA_SASL_MECHANISM"),
        (SASL | {"kafka_sasl_password": SECRET, "kafka_ssl_key": "key.pem"}, "belong together"),
    ],
)
def test_settings_that_do_not_fit_each_other_are_told(tmp_path: Path, fields: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=re.escape(told)) as caught:
        _load(tmp_path, **fields)
    assert SECRET not in str(caught.value)


def test_an_empty_variable_is_one_that_is_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        if name.startswith("kafka_") and not name.endswith("port"):
            monkeypatch.setenv(f"TIDEMARK_{name.upper()}", "")
    assert _load(tmp_path).kafka_client_options == {}


def test_a_file_that_is_not_there_is_told_by_variable(tmp_path: Path) -> None:
    settings = _load(tmp_path, **SASL, kafka_sasl_password_file="gone")
    with pytest.raises(UsageError, match="TIDEMARK_KAFKA_SASL_PASSWORD_FILE: .*gone cannot be read"):
        _ = settings.kafka_java_options
    settings = _load(tmp_path, **SASL, kafka_sasl_password=SECRET, kafka_ssl_ca="gone.pem")
    with pytest.raises(UsageError, match="TIDEMARK_KAFKA_SSL_CA: .*gone.pem cannot be read"):
        _ = settings.kafka_client_options


def test_no_secret_is_printed(tmp_path: Path) -> None:
    settings = _load(tmp_path, **SASL, kafka_sasl_password=SECRET, kafka_ssl_key_password=SECRET)
    assert SECRET not in f"{settings!r}{settings}{settings.model_dump_json()}"
