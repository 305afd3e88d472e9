"""How clients authenticate to Kafka: one group of settings, translated for both clients.

This module does not connect. librdkafka gets paths of files, because it runs on the machine that has them. Spark's Java
client gets their contents, because its executors may run elsewhere.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings

from tidemark.errors import UsageError

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

_LOGIN_MODULES: dict[str, str] = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_FILES = ("kafka_sasl_password_file", "kafka_ssl_ca", "kafka_ssl_certificate", "kafka_ssl_key")
_LONGEST_FILE = 1024 * 1024


class KafkaSettings(BaseSettings):
    """The Kafka cluster and how to authenticate to it. Names follow Kafka's, files are PEM, the default is plain text.

    A setting that the protocol does not use is refused: a certificate with a plain-text protocol is a mistake.
    """

    kafka_bootstrap: str | None = None
    kafka_security_protocol: SecurityProtocol = "PLAINTEXT"
    kafka_sasl_mechanism: Mechanism = "SCRAM-SHA-512"
    kafka_sasl_username: str | None = None
    kafka_sasl_password: SecretStr | None = None
    kafka_sasl_password_file: Path | None = None
    kafka_ssl_ca: Path | None = None
    kafka_ssl_certificate: Path | None = None
    kafka_ssl_key: Path | None = None
    kafka_ssl_key_password: SecretStr | None = None

    @model_validator(mode="before")
    @classmethod
    def _place_files(cls, values: dict[str, Any]) -> dict[str, Any]:
        # Relative paths start at the project root. Compose passes unset variables on as empty ones: they count as
        # unset.
        root = Path(values["root"]).absolute()
        return values | {n: root / Path(values[n]).expanduser() if values.get(n) else None for n in _FILES}

    @field_validator("kafka_security_protocol", "kafka_sasl_mechanism", mode="before")
    @classmethod
    def _in_capitals(cls, value: object, info: ValidationInfo) -> object:
        default = cls.model_fields[info.field_name or ""].default
        return (value.upper() or default) if isinstance(value, str) else value

    @field_validator("kafka_bootstrap", "kafka_sasl_username", "kafka_sasl_password", "kafka_ssl_key_password")
    @classmethod
    def _not_empty(cls, value: str | SecretStr | None) -> str | SecretStr | None:
        return value or None

    @model_validator(mode="after")
    def _check_kafka(self) -> "KafkaSettings":
        complaints = list(self._misfits())
        if complaints:
            raise ValueError("; ".join(complaints))
        return self

    def _misfits(self) -> Iterator[str]:
        uses_sasl, uses_ssl = self._uses("SASL"), self._uses("SSL")
        protocol = f"TIDEMARK_KAFKA_SECURITY_PROTOCOL={self.kafka_security_protocol}"
        passwords = [self.kafka_sasl_password, self.kafka_sasl_password_file]
        own = [self.kafka_ssl_certificate, self.kafka_ssl_key]
        if (uses_sasl or uses_ssl) and self.kafka_bootstrap is None:
            yield f"{protocol} needs TIDEMARK_KAFKA_BOOTSTRAP: the embedded broker speaks plain text"
        if not uses_sasl and any(value is not None for value in (self.kafka_sasl_username, *passwords)):
            yield f"{protocol} uses no TIDEMARK_KAFKA_SASL_* settings"
        if not uses_ssl and any(v is not None for v in (self.kafka_ssl_ca, *own, self.kafka_ssl_key_password)):
            yield f"{protocol} uses no TIDEMARK_KAFKA_SSL_* settings"
        if uses_sasl and (self.kafka_sasl_username is None or passwords.count(None) != 1):
            yield (
                f"{protocol} needs TIDEMARK_KAFKA_SASL_USERNAME, and either TIDEMARK_KAFKA_SASL_PASSWORD_FILE or "
                "TIDEMARK_KAFKA_SASL_PASSWORD"
            )
        if own.count(None) == 1:
            yield "TIDEMARK_KAFKA_SSL_CERTIFICATE and TIDEMARK_KAFKA_SSL_KEY belong together"

    @property
    def kafka_client_options(self) -> dict[str, str]:
        """Options of librdkafka in addition to the address, including secrets.

        Raises:
            UsageError: a file cannot be read.
        """
        told = self._told_to_both()
        if self._uses("SASL"):
            told["sasl.mechanisms"] = self.kafka_sasl_mechanism
            told |= {"sasl.username": self.kafka_sasl_username or "", "sasl.password": self._password()}
        for name in ("ca", "certificate", "key"):
            path: Path | None = getattr(self, f"kafka_ssl_{name}")
            if path is not None:
                _content(f"TIDEMARK_KAFKA_SSL_{name.upper()}", path)
                told[f"ssl.{name}.location"] = str(path)
        return told

    @property
    def kafka_java_options(self) -> dict[str, str]:
        """Options of the Java client in addition to the address, without Spark's prefix `kafka.`; includes secrets.

        Raises:
            UsageError: a file cannot be read.
        """
        told = self._told_to_both()
        if self._uses("SASL"):
            told["sasl.mechanism"] = self.kafka_sasl_mechanism
            told["sasl.jaas.config"] = (
                f"{_LOGIN_MODULES[self.kafka_sasl_mechanism]} required "
                f"username={_quoted(self.kafka_sasl_username or '')} password={_quoted(self._password())};"
            )
        if self.kafka_ssl_ca:
            told["ssl.truststore.type"] = "PEM"
            told["ssl.truststore.certificates"] = _content("TIDEMARK_KAFKA_SSL_CA", self.kafka_ssl_ca)
        if self.kafka_ssl_certificate and self.kafka_ssl_key:
            told["ssl.keystore.type"] = "PEM"
            certificate = _content("TIDEMARK_KAFKA_SSL_CERTIFICATE", self.kafka_ssl_certificate)
            told["ssl.keystore.certificate.chain"] = certificate
            told["ssl.keystore.key"] = _content("TIDEMARK_KAFKA_SSL_KEY", self.kafka_ssl_key)
        return told

    def _uses(self, part: Literal["SASL", "SSL"]) -> bool:
        return part in self.kafka_security_protocol.split("_")

    def _password(self) -> str:
        if self.kafka_sasl_password_file is not None:
            return _content("TIDEMARK_KAFKA_SASL_PASSWORD_FILE", self.kafka_sasl_password_file).rstrip("\r\n")
        return self.kafka_sasl_password.get_secret_value() if self.kafka_sasl_password else ""

    def _told_to_both(self) -> dict[str, str]:
        if self.kafka_security_protocol == "PLAINTEXT":
            return {}
        told: dict[str, str] = {"security.protocol": self.kafka_security_protocol}
        if self.kafka_ssl_key_password:
            told["ssl.key.password"] = self.kafka_ssl_key_password.get_secret_value()
        return told


def _content(name: str, path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as stream:
            return stream.read(_LONGEST_FILE)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a text file"
        raise UsageError(
            f"{name}: {path} cannot be read: {why}",
            next="correct the path in the variable or in .env; certificates and keys are PEM files.",
        ) from error


def _quoted(text: str) -> str:
    """Quotes a word of a JAAS configuration."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
