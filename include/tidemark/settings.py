"""Settings from `TIDEMARK_*` variables and `.env`, and the addresses of the embedded stack.

Settings are a frozen value that is read once, at an entry point. An unknown name is refused wherever it appears: a
misspelt setting that is silently ignored is how a test run writes to the wrong warehouse.
"""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import psutil
from dotenv import dotenv_values
from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from tidemark.errors import UsageError
from tidemark.kafka_settings import KafkaSettings
from tidemark.model.checkpoint.deadline import EVERY, parse_deadlines
from tidemark.model.core.bucket_url import S3Url, is_url
from tidemark.s3_settings import ENDPOINT, S3Settings

PREFIX = "TIDEMARK_"
ROOT_VARIABLE = "TIDEMARK_ROOT"
STACK_VARIABLE = "TIDEMARK_STACK"
TEST_PREFIX = "TIDEMARK_TEST_"
"""Variables with the prefix that are not settings: those of the test suite, and the mark of the stack's processes."""

SAME_START = 1.5
"""Seconds by which two readings of a process's start time may differ; process ids are not reused that quickly."""

_HOST_AND_PORT = re.compile(r"([\w.-]+|\[[0-9a-fA-F:.]+\]):\d{1,5}", re.ASCII)
_TOPIC = re.compile(rf"kafka://{_HOST_AND_PORT.pattern}/[\w.-]{{1,249}}", re.ASCII)
Port = Annotated[int, Field(ge=0, le=65535)]
EmbeddedService = Literal["kafka", "spark", "airflow"]


class Settings(KafkaSettings, S3Settings):
    """All settings. Relative paths are resolved against the project root.

    The warehouse is a local folder or a folder of a bucket (`s3://BUCKET/FOLDER`). The properties below the fields fill
    in what the fields leave open: an unset address means the embedded service.
    """

    # Other tools, such as compose, read .env too, so names without the prefix are ignored.
    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        case_sensitive=False,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        dotenv_filtering="only_existing",
    )

    root: Path
    home: Path
    warehouse: Path | S3Url
    pipelines: Annotated[tuple[Path, ...], NoDecode]
    jars: Path | None = None
    spark: str | None = Field(None, repr=False)
    kafka_port: Port | None = None
    kafka_controller_port: Port | None = None
    spark_port: Port | None = None
    airflow_port: Port | None = None
    airflow_database: SecretStr | None = None
    spark_driver_memory: str = Field("2g", pattern=r"^[1-9][0-9]*[mg]$")
    spark_java_options: str = ""
    checkpoint_deadline: str = ""
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
        folders = values.get("pipelines") or "include/pipelines"
        folders = folders.split(os.pathsep) if isinstance(folders, str) else folders
        return values | {
            "root": root,
            "home": home,
            "warehouse": _warehouse(root, values.get("warehouse") or home / "warehouse"),
            "jars": _below(root, values["jars"]) if values.get("jars") else None,
            "pipelines": tuple(_below(root, folder) for folder in folders if folder),
        }

    @field_validator("spark")
    @classmethod
    def _check_spark(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("sc://", "local", "spark://")):
            raise ValueError("must be sc://HOST:PORT, local[N] or spark://HOST:PORT")
        return value

    @field_validator("checkpoint_deadline")
    @classmethod
    def _check_deadline(cls, value: str) -> str:
        try:
            parse_deadlines(value)
        except UsageError as error:
            raise ValueError(f"{error.what}; {error.next}") from error
        return value

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

    def deadline_ms(self, pipeline: str) -> int | None:
        """Returns the longest time that a pipeline may take between completed checkpoints; None = no limit."""
        deadlines = parse_deadlines(self.checkpoint_deadline)
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
        """The configured Spark, or the embedded Connect server while it runs, or `local[2]`."""
        if self.spark:
            return self.spark
        running = recorded_service(self.home, "spark")
        return f"sc://{running.host_and_port}" if running else "local[2]"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedService:
    """The address of an embedded service, as `tidemark up` writes it to `<home>/stack.json`."""

    port: int
    pid: int
    started: float

    @property
    def host_and_port(self) -> str:
        """The address for clients; the embedded stack listens on the loopback interface only."""
        return f"127.0.0.1:{self.port}"


def load_settings(**overrides: Any) -> Settings:  # noqa: ANN401
    """Reads the settings of this project.

    Args:
        **overrides: fields that take precedence over the environment and `.env`; for tests.

    Returns:
        The validated settings.

    Raises:
        UsageError: a name is unknown or a value invalid. The message lists them, without values, which may be secret.
    """
    root = Path(overrides.pop("root", None) or find_root(os.environ, Path.cwd()))
    env_file = root / ".env"
    _refuse_unknown(os.environ, "the environment")
    _refuse_unknown(dotenv_values(env_file), ".env")
    values: dict[str, Any] = {"root": root, "_env_file": env_file, **overrides}
    try:
        return Settings(**values)
    except ValidationError as error:
        complaints = "; ".join(f"{_variable(item['loc'])}: {item['msg']}" for item in error.errors())
        raise UsageError(f"invalid settings: {complaints}", next="correct the variable or the line in .env.") from error


def find_root(env: Mapping[str, str], start: Path) -> Path:
    """Returns the project root: `TIDEMARK_ROOT`, or the next folder upwards whose pyproject.toml names Tidemark.

    Args:
        env: the environment.
        start: where the search begins, usually the working directory.

    Returns:
        The root, or `start` if no folder above it is a project.
    """
    if env.get(ROOT_VARIABLE):
        return Path(env[ROOT_VARIABLE]).absolute()
    for folder in (start.absolute(), *start.absolute().parents):
        if (folder / "pyproject.toml").is_file() and _mentions_tidemark(folder / "pyproject.toml"):
            return folder
    return start.absolute()


def recorded_service(home: Path, service: EmbeddedService) -> RecordedService | None:
    """Returns the recorded address of an embedded service if its process is still alive.

    Args:
        home: the folder with `stack.json`.
        service: the service; Airflow means its API server.

    Returns:
        None if it was never started, was stopped, or died.
    """
    path = home / "stack.json"
    entry = json.loads(path.read_text()).get(service, {}) if path.is_file() else {}
    if not (entry.get("pid") and entry.get("port")):
        return None
    recorded = RecordedService(port=entry["port"], pid=entry["pid"], started=entry["started"])
    return recorded if is_same_process(recorded.pid, recorded.started) else None


def is_same_process(pid: int, started: float) -> bool:
    """Whether `pid` is alive and started at that time, rather than being a later process with the same number."""
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - started) < SAME_START and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _warehouse(root: Path, place: Path | str | S3Url) -> Path | S3Url:
    if isinstance(place, S3Url):
        return place
    try:
        return S3Url.parsed(str(place)) if is_url(str(place)) else _below(root, place)
    except UsageError as error:
        raise ValueError(f"warehouse: {error.what}; {error.next}") from error


def _below(root: Path, path: Path | str) -> Path:
    return Path(os.path.normpath(root / Path(path).expanduser()))


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
    return "tidemark" in json.dumps(tomllib.loads(pyproject.read_text()).get("project", {}))


def _variable(location: tuple[int | str, ...]) -> str:
    return PREFIX + str(location[0]).upper() if location else "settings"
