"""Settings from `TIDEMARK_*` variables and `.env`; without an address, the embedded service is used.

Settings are a frozen value that is read once, at an entry point. An unknown name is refused wherever it appears: a
misspelt setting that is silently ignored is how a test run writes to the wrong warehouse.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, SecretStr, ValidationError, ValidationInfo, field_validator, model_validator

from tidemark.deadlines import EVERY, parse_deadlines
from tidemark.embedded_services import recorded_service
from tidemark.errors import UsageError
from tidemark.model.core.connect_address import add_parameter
from tidemark.model.core.names import S3Url, is_url

ENDPOINT = re.compile(r"https?://([\w.-]+|\[[0-9a-fA-F:.]+\])(:\d{1,5})?(/[\w./-]*)?", re.ASCII)
"""A URL of a server, without a user name."""


class _Part(BaseModel):
    """A part of the settings; only the validators of all settings are built, because that takes time."""

    model_config = {"extra": "forbid", "frozen": True, "hide_input_in_errors": True, "defer_build": True}


class S3Settings(_Part):
    """Where buckets are, and the Airflow connection with credentials; by default Amazon S3 and AWS's own variables.

    Attributes:
        s3_connection: id of the Airflow connection from which tasks take credentials, region and endpoint; empty =
            none. It is ignored outside of tasks.
    """

    s3_endpoint: str | None = None
    s3_region: str | None = None
    s3_path_style: bool | None = None
    s3_connection: str | None = None

    @field_validator("s3_endpoint")
    @classmethod
    def _check_endpoint(cls, value: str | None) -> str | None:
        if value and (not ENDPOINT.fullmatch(value) or urlsplit(value).port == 0):  # raises if it is large
            raise ValueError("must be http://HOST:PORT or https://HOST, without a user name")
        return value or None


# How both clients authenticate to Kafka. librdkafka gets paths of files, because it runs on the machine that has them.
# Spark's Java client gets their contents, because its executors may run elsewhere.
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

_LOGIN_MODULES: dict[str, str] = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_REGISTRY_FILES = tuple(f"schema_registry_{name}" for name in ("password_file", "ssl_ca", "ssl_certificate", "ssl_key"))
_TOKEN_FILES = ("spark_token_file", "airflow_token_file", *_REGISTRY_FILES)
_REGISTRY = ("schema_registry", "schema_registry_user", "schema_registry_password")
_EMPTY_IS_UNSET = ("spark_token", "airflow_url", "airflow_token", *_REGISTRY)
_FILES = ("kafka_sasl_password_file", "kafka_ssl_ca", "kafka_ssl_certificate", "kafka_ssl_key")
_LONGEST_FILE = 1024 * 1024


class KafkaSettings(_Part):
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
    kafka_connection: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _place_files(cls, values: dict[str, Any]) -> dict[str, Any]:
        # Relative paths start at the project root. Compose passes unset variables as empty ones: they count as unset.
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


def _token(name: str, path: Path | None, secret: SecretStr | None) -> str:
    return _content(name, path).strip() if path else secret.get_secret_value() if secret else ""


def _quoted(text: str) -> str:
    """Quotes a word of a JAAS configuration."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


PREFIX = "TIDEMARK_"
ROOT_VARIABLE = "TIDEMARK_ROOT"
AIRFLOW_HOME_VARIABLE = "AIRFLOW_HOME"
STACK_VARIABLE = "TIDEMARK_STACK"
TEST_PREFIX = "TIDEMARK_TEST_"
"""Variables with the prefix that are not settings: those of the test suite, and the mark of the stack's processes."""

PIPELINE_FOLDERS = ("include/pipelines", "pipelines", "dags/pipelines")
"""Below the root, unless TIDEMARK_PIPELINES names other folders: of a checkout, of a project, next to DAG files."""

_HOST_AND_PORT = re.compile(r"([\w.-]+|\[[0-9a-fA-F:.]+\]):\d{1,5}", re.ASCII)
_TOPIC = re.compile(rf"kafka://{_HOST_AND_PORT.pattern}/[\w.-]{{1,249}}", re.ASCII)
Port = Annotated[int, Field(ge=0, le=65535)]


class ConnectSettings(_Part):
    """The Spark to use, and the token of a Connect server.

    Attributes:
        spark: `sc://HOST:PORT`, with parameters after `/;`, or the master of a driver; None = see `spark_address`.
        spark_token: the token, alternatively in a file.
        spark_connection: id of the Airflow connection from which tasks take the address and the token.
    """

    spark: str | None = Field(None, repr=False)
    spark_token: SecretStr | None = None
    spark_token_file: Path | None = None
    spark_connection: str | None = None

    @model_validator(mode="after")
    def _check_spark(self) -> "ConnectSettings":
        tokens = [value for value in (self.spark_token, self.spark_token_file) if value is not None]
        if self.spark and not self.spark.startswith(("sc://", "local", "spark://")):
            raise ValueError("TIDEMARK_SPARK must be sc://HOST:PORT, local[N] or spark://HOST:PORT")
        if tokens or ";" in (self.spark or ""):
            from tidemark.model.core.connect_address import refuse_address

            refuse_address(self.spark or "", tokens=len(tokens))
        return self

    @property
    def connect_token(self) -> str:
        """The token of the Connect server outside of its address; empty without one.

        Raises:
            UsageError: the file cannot be read.
        """
        return _token("TIDEMARK_SPARK_TOKEN_FILE", self.spark_token_file, self.spark_token)


class Settings(KafkaSettings, ConnectSettings, S3Settings, defer_build=False):
    """All settings. Relative paths are resolved against the project root.

    The warehouse is a local folder or a folder of a bucket (`s3://BUCKET/FOLDER`). The properties below the fields fill
    in what the fields leave open: an unset address means the embedded service.
    """

    root: Path
    home: Path
    warehouse: Path | S3Url
    pipelines: tuple[Path, ...]
    jars: Path | None = None
    kafka_port: Port | None = None
    kafka_controller_port: Port | None = None
    spark_port: Port | None = None
    spark_parallelism: int | None = Field(None, ge=1, le=10_000)
    schema_registry: str | None = Field(None, repr=False)
    schema_registry_user: str | None = None
    schema_registry_password: SecretStr | None = None
    schema_registry_password_file: Path | None = None
    schema_registry_ssl_ca: Path | None = None
    schema_registry_ssl_certificate: Path | None = None
    schema_registry_ssl_key: Path | None = None
    schema_registry_connection: str | None = None
    airflow_port: Port | None = None
    airflow_database: SecretStr | None = None
    airflow_url: str | None = None
    airflow_token: SecretStr | None = None
    airflow_token_file: Path | None = None
    spark_driver_memory: str = Field("2g", pattern=r"^[1-9][0-9]*[mg]$")
    spark_java_options: str = ""
    checkpoint_deadline: str = ""
    payloads: Literal["trigger", "read", "nobody"] = "trigger"
    statsd: str | None = None
    openlineage: str | None = None
    openlineage_namespace: str = "tidemark"
    openlineage_api_key: SecretStr | None = None
    crash_at: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _place(cls, values: dict[str, Any]) -> dict[str, Any]:
        root = Path(values["root"]).absolute()
        home = _below(root, values.get("home") or ".tidemark")
        folders = values.get("pipelines") or _default_pipelines(root)
        folders = folders.split(os.pathsep) if isinstance(folders, str) else folders
        return values | {
            "root": root,
            "home": home,
            "warehouse": _warehouse(root, values.get("warehouse") or home / "warehouse"),
            "jars": _below(root, values["jars"]) if values.get("jars") else None,
            "payloads": values.get("payloads") or "trigger",
            "pipelines": tuple(_below(root, folder) for folder in folders if folder),
            **{name: values.get(name) or None for name in _EMPTY_IS_UNSET},
            **{name: _below(root, values[name]) if values.get(name) else None for name in _TOKEN_FILES},
        }

    @field_validator("checkpoint_deadline")
    @classmethod
    def _check_deadline(cls, value: str) -> str:
        try:
            _ = value and parse_deadlines(value)
        except UsageError as error:
            raise ValueError(f"{error.what}; {error.next}") from error
        return value

    @model_validator(mode="after")
    def _check_airflow(self) -> "Settings":
        if self.airflow_url and not ENDPOINT.fullmatch(self.airflow_url):
            raise ValueError("TIDEMARK_AIRFLOW_URL must be http(s)://HOST:PORT, without a user name")
        if [self.airflow_token, self.airflow_token_file].count(None) != 2 - bool(self.airflow_url):
            raise ValueError("TIDEMARK_AIRFLOW_URL needs either TIDEMARK_AIRFLOW_TOKEN_FILE or TIDEMARK_AIRFLOW_TOKEN")
        return self

    @field_validator("statsd")
    @classmethod
    def _check_statsd(cls, value: str | None) -> str | None:
        if value and not _HOST_AND_PORT.fullmatch(value):
            raise ValueError("must be HOST:PORT")
        return value or None

    @field_validator("openlineage")
    @classmethod
    def _check_openlineage(cls, value: str | None) -> str | None:
        if value and not (ENDPOINT.fullmatch(value) or _TOPIC.fullmatch(value) or value.startswith("file:")):
            raise ValueError("must be http(s)://HOST:PORT, kafka://HOST:PORT/TOPIC or file:PATH, without a user name")
        return value or None

    @property
    def airflow_bearer(self) -> str:
        """The token of the Airflow at `airflow_url`."""
        return _token("TIDEMARK_AIRFLOW_TOKEN_FILE", self.airflow_token_file, self.airflow_token)

    def deadline_ms(self, pipeline: str) -> int | None:
        """Returns the longest time that a pipeline may take between completed checkpoints; None = no limit."""
        deadlines = parse_deadlines(self.checkpoint_deadline) if self.checkpoint_deadline else {}
        return deadlines.get(pipeline, deadlines.get(EVERY))

    @property
    def kafka_address(self) -> str:
        """The bootstrap servers: the configured ones, or the embedded broker.

        Raises:
            UsageError: none are configured and the embedded broker is not running.
        """
        if self.kafka_bootstrap:
            return self.kafka_bootstrap
        running = recorded_service(self.home, "kafka")
        if running is None:
            raise UsageError(
                "no Kafka: TIDEMARK_KAFKA_BOOTSTRAP is not set and the embedded broker is not running",
                next="tidemark up --only kafka    (or set TIDEMARK_KAFKA_BOOTSTRAP=host:port).",
            )
        return running.host_and_port

    @property
    def jar_folder(self) -> Path:
        """The folder of jars: the configured one, or that of the project."""
        return self.jars or self.root / ".jars"

    @property
    def spark_address(self) -> str:
        """The configured Spark, or the embedded Connect server while it runs, or this process with all cores.

        It contains the token of a Connect server: print it only through `redact`.
        """
        if self.spark:
            token = self.connect_token
            return add_parameter(self.spark, "token", token) if token else self.spark
        running = recorded_service(self.home, "spark")
        return f"sc://{running.host_and_port}" if running else "local[*]"

    @property
    def airflow_address(self) -> str:
        """The embedded Airflow's base URL.

        Raises:
            UsageError: it is not running.
        """
        running = recorded_service(self.home, "airflow")
        if running is None:
            raise UsageError("the embedded Airflow is not running", next="tidemark up --only airflow")
        return f"http://{running.host_and_port}"


def load_settings(**overrides: Any) -> Settings:  # noqa: ANN401
    """Reads the settings of this project.

    Args:
        **overrides: fields that take precedence over the environment and `.env`; for tests.

    Returns:
        The validated settings.

    Raises:
        UsageError: a name is unknown or a value invalid. The message lists them, without values, which may be secret.
    """
    from dotenv import dotenv_values

    root = Path(overrides.pop("root", None) or find_root(os.environ, Path.cwd()))
    in_file = dotenv_values(root / ".env") if (root / ".env").exists() else {}
    _refuse_unknown(os.environ, "the environment")
    _refuse_unknown(in_file, ".env")
    values: dict[str, Any] = {**_fields_of(in_file), **_fields_of(os.environ), "root": root, **overrides}
    try:
        return Settings(**values)
    except ValidationError as error:
        complaints = "; ".join(f"{_variable(item['loc'])}: {item['msg']}" for item in error.errors())
        raise UsageError(f"invalid settings: {complaints}", next="correct the variable or the line in .env.") from error


def find_root(env: Mapping[str, str], start: Path) -> Path:
    """Returns the project root: `TIDEMARK_ROOT`, or the next folder upwards whose pyproject.toml names Tidemark.

    Processes of Airflow have no working directory of their own choice, so without such a folder the root is Airflow's
    home, if the environment names it.

    Args:
        env: the environment.
        start: where the search begins, usually the working directory.

    Returns:
        The root; `start` if there is neither a project nor a home of Airflow.
    """
    if env.get(ROOT_VARIABLE):
        return Path(env[ROOT_VARIABLE]).absolute()
    for folder in (start.absolute(), *start.absolute().parents):
        if (folder / "pyproject.toml").is_file() and _mentions_tidemark(folder / "pyproject.toml"):
            return folder
    home = env.get(AIRFLOW_HOME_VARIABLE)
    return Path(home).expanduser().absolute() if home else start.absolute()


def _warehouse(root: Path, place: Path | str | S3Url) -> Path | S3Url:
    if isinstance(place, S3Url):
        return place
    try:
        return S3Url.parsed(str(place)) if is_url(str(place)) else _below(root, place)
    except UsageError as error:
        raise ValueError(f"warehouse: {error.what}; {error.next}") from error


def _default_pipelines(root: Path) -> str:
    """Returns the first of the usual folders that exists below a root, or the first of all if none does."""
    return next((folder for folder in PIPELINE_FOLDERS if (root / folder).is_dir()), PIPELINE_FOLDERS[0])


def _below(root: Path, path: Path | str) -> Path:
    return Path(os.path.normpath(root / Path(path).expanduser()))


def _fields_of(variables: Mapping[str, str | None]) -> dict[str, str]:
    """The values of settings among variables, in upper or lower case; other tools, such as compose, have others."""
    given = {name.upper(): value for name, value in variables.items() if value is not None}
    return {field: given[PREFIX + field.upper()] for field in Settings.model_fields if PREFIX + field.upper() in given}


def _refuse_unknown(names: Mapping[str, str | None], where: str) -> None:
    known = {PREFIX + field.upper() for field in Settings.model_fields}
    ours = (name for name in names if name.upper().startswith(PREFIX) and not name.startswith(TEST_PREFIX))
    unknown = sorted(name for name in ours if name.upper() not in known | {STACK_VARIABLE})
    if unknown:
        raise UsageError(
            f"{where} sets {', '.join(unknown)}, which Tidemark does not know",
            next=f"correct the name; settings are {', '.join(sorted(known))}.",
        )


def _mentions_tidemark(pyproject: Path) -> bool:
    import tomllib

    return "tidemark" in json.dumps(tomllib.loads(pyproject.read_text()).get("project", {}))


def _variable(location: tuple[int | str, ...]) -> str:
    return PREFIX + str(location[0]).upper() if location else "settings"
