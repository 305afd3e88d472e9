"""Addresses of Spark Connect servers: their parameters, their token, and what is refused without showing a value."""

import os
from pathlib import Path

import pytest
from pyspark.sql.connect.client import DefaultChannelBuilder

from tidemark.errors import UsageError
from tidemark.model.core.connect_address import add_parameter, parameters_of
from tidemark.redaction import redact, secrets_of
from tidemark.settings import Settings, load_settings

TOKEN = "canary/7d1f+=; &'%"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TIDEMARK_")]:
        monkeypatch.delenv(name)


def _load(root: Path, **fields: str) -> Settings:
    return load_settings(root=root, **fields)


@pytest.mark.parametrize("address", ["sc://spark:443", "sc://spark:443/", "sc://spark:443/;use_ssl=true"])
def test_a_token_of_any_characters_reaches_sparks_client(tmp_path: Path, address: str) -> None:
    settings = _load(tmp_path, spark=address, spark_token=TOKEN)
    built = DefaultChannelBuilder(settings.spark_address)
    assert (built.token, built.host, built.secure) == (TOKEN, "spark", True)
    assert parameters_of(settings.spark_address)["token"] == TOKEN
    assert settings.spark == address


def test_a_token_from_a_file_is_read_anew_and_without_its_line_end(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    settings = _load(tmp_path, spark="sc://spark:443", spark_token_file="token")
    assert DefaultChannelBuilder(settings.spark_address).token == TOKEN
    (tmp_path / "token").write_text("next\n")
    assert DefaultChannelBuilder(settings.spark_address).token == "next"
    (tmp_path / "token").unlink()
    with pytest.raises(UsageError, match="TIDEMARK_SPARK_TOKEN_FILE: .*token cannot be read"):
        _ = settings.spark_address


def test_no_token_is_printed(tmp_path: Path) -> None:
    settings = _load(tmp_path, spark="sc://spark:443", spark_token=TOKEN)
    assert "canary" not in f"{settings!r}{settings}{settings.model_dump_json()}{redact(settings.spark_address)}"
    assert "canary" not in str(UsageError(f"no such host: {settings.spark_address}", next="retry."))
    assert secrets_of(settings.spark_address), "Airflow's logs mask it"


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"spark_token": TOKEN}, "needs the TIDEMARK_SPARK of a Connect server"),
        ({"spark": "local[2]", "spark_token": TOKEN}, "needs the TIDEMARK_SPARK of a Connect server"),
        ({"spark": "sc://spark:443;token=canary"}, "no slash before its parameters"),
        ({"spark": "sc://:443/;token=canary"}, "has no host"),
        ({"spark": "sc://spark/;token"}, "not NAME=VALUE"),
        ({"spark": "sc://spark/;token=a=canary"}, "not NAME=VALUE"),
        ({"spark": "sc://spark/;token=canary;token=canary"}, "has token twice"),
        ({"spark": "sc://spark/;session_id=canary"}, "Tidemark sets session_id itself"),
        ({"spark": "sc://spark/;use_ssl=canary"}, "must be true or false"),
        ({"spark": "sc://spark/;use_ssl=false;token=canary"}, "over TLS only"),
        ({"spark": "sc://spark/;token=canary", "spark_token": TOKEN}, "give one token"),
        ({"spark": "sc://spark", "spark_token": TOKEN, "spark_token_file": "file"}, "give one token"),
    ],
)
def test_what_does_not_fit_is_refused_without_its_value(tmp_path: Path, fields: dict[str, str], wrong: str) -> None:
    with pytest.raises(UsageError, match=wrong) as refused:
        _load(tmp_path, **fields)
    assert "canary" not in str(refused.value)


def test_an_empty_variable_is_one_that_is_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK", "SPARK_TOKEN", "SPARK_TOKEN_FILE", "SPARK_CONNECTION"):
        monkeypatch.setenv(f"TIDEMARK_{name}", "")
    assert _load(tmp_path).spark_address == "local[*]"


def test_a_token_without_tls_is_for_this_machine_only(tmp_path: Path) -> None:
    settings = _load(tmp_path, spark="sc://localhost:15002/;use_ssl=false", spark_token=TOKEN)
    assert not DefaultChannelBuilder(settings.spark_address).use_ssl


def test_parameters_are_added_after_one_slash() -> None:
    assert add_parameter("sc://spark", "a", "b/c") == "sc://spark/;a=b%2Fc"
    assert add_parameter("sc://spark/;a=b", "c", "d") == "sc://spark/;a=b;c=d"
