"""What a context takes from its surroundings: clock and ids, the warehouse, pipeline files, observers."""

import getpass
import hashlib
import importlib.util
import os
import sys
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tidemark.declare.pipeline import BESIDE, Pipeline
from tidemark.errors import DeclarationError, NotFoundError, TidemarkError, UsageError
from tidemark.model.core.names import EMBEDDED_BROKER, S3Url, checked_name
from tidemark.ports import HeldLock
from tidemark.settings import Settings
from tidemark.telemetry.bounded import Bounded
from tidemark.telemetry.lazy_logger import log

if TYPE_CHECKING:
    from tidemark.kafka.schema_registry import HttpRegistry
    from tidemark.ports.observing import LineageSink, Metrics
    from tidemark.storage.local_store import Root
    from tidemark.storage.s3_folder import S3Folder


# The clock, the random ids and the user of this machine; code that needs them takes them as arguments.
class SystemClock:
    """The wall clock."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch (UTC)."""
        return time.time_ns() // 1_000_000


def random_id() -> str:
    """Returns a new random id of 32 hex digits."""
    return uuid.uuid4().hex


def user_name() -> str:
    """The user of this process; `unknown` where the system does not know either."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


T = TypeVar("T")
_AT_ONCE = 16
"""Requests to a bucket at a time."""


# A proxy for parts whose library is imported, and whose address is looked up, on first use.
class _Lazy:
    """Creates an object on first access to one of its attributes, then forwards every access to it."""

    def __init__(self, make: Callable[[], object]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> object:
        return self._make()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._made, name)


def lazy_proxy(make: Callable[[], T]) -> T:
    """Returns a proxy for the object that `make` returns; `make` is called on first use.

    The coordinator takes its log in the constructor, but most commands never contact Kafka. A cached property would
    import the client and look for a broker each time a command lists checkpoints.
    """
    return cast(T, _Lazy(make))


class HostLocks:
    """The locks of timelines that this process holds, so that no other one of this host does the same work."""

    def __init__(self, warehouse: "WarehouseLocation", now_ms: Callable[[], int]) -> None:
        self._warehouse, self._now_ms = warehouse, now_ms
        self._held: dict[tuple[str, str], HeldLock] = {}

    @contextmanager
    def hold(self, name: str, timeline: str, timeout: timedelta) -> Iterator[None]:
        """Holds the lock of a pipeline's timeline for a block, or until `timeout`.

        Raises:
            BusyError: another process holds it.
        """
        from tidemark.storage.local_store import FileTimelineLock

        folder = self._warehouse.local_folder / name / "locks"
        with FileTimelineLock(folder, self._now_ms).hold(timeline, timeout) as held:
            self._held[name, timeline] = held
            try:
                yield
            finally:
                del self._held[name, timeline]

    def renew(self, name: str, timeline: str, timeout: timedelta) -> None:
        """Restarts the timeout of a lock; does nothing if it is not held."""
        held = self._held.get((name, timeline))
        if held is not None:
            held.renew(timeout)


def open_registry(settings: Settings) -> "HttpRegistry":
    """Returns the schema registries of the settings; nothing is sent before the first question."""
    from tidemark.kafka.schema_registry import HttpRegistry, RegistryLogin

    password = settings.schema_registry_password
    return HttpRegistry(
        login=RegistryLogin(
            address=settings.schema_registry or "",
            user=settings.schema_registry_user or "",
            password=password.get_secret_value() if password else "",
            password_file=settings.schema_registry_password_file,
            ca=settings.schema_registry_ssl_ca,
            certificate=settings.schema_registry_ssl_certificate,
            key=settings.schema_registry_ssl_key,
        )
    )


class WarehouseLocation:
    """The location of all tables and objects. It imports and connects to nothing before its first use.

    Args:
        settings: contains the warehouse.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._is_conditional = False

    @cached_property
    def bucket(self) -> "S3Folder | None":
        """The warehouse if it is in a bucket, else None; its connections close with this object.

        Raises:
            UsageError: the variables of AWS are invalid.
        """
        if not isinstance(self._settings.warehouse, S3Url):
            return None
        folder = open_bucket_folder(self._settings, self._settings.warehouse)
        weakref.finalize(self, folder.close)
        return folder

    @property
    def root(self) -> "Root":
        """The root of all tables, as the table classes take it."""
        return self.bucket or str(self._settings.warehouse)

    @property
    def local_folder(self) -> Path:
        """The local folder of the warehouse; for a warehouse in a bucket, the folder of its locks and scratch files."""
        if isinstance(self._settings.warehouse, Path):
            return self._settings.warehouse
        named = hashlib.sha256(f"{self._settings.s3_endpoint} {self._settings.warehouse}".encode()).hexdigest()
        return self._settings.home / "buckets" / named[:16]

    def refuse_unconditional(self) -> None:
        """Checks once that the store supports conditional writes: of two objects with one name, the first must stay.

        Raises:
            NotFoundError: the bucket does not exist.
            StoreError: the store does not support them, or does not answer.
        """
        if self.bucket is not None and not self._is_conditional:
            from tidemark.storage.s3_store import refuse_unconditional

            refuse_unconditional(self.bucket, random_id)
            self._is_conditional = True

    def has_begun(self, name: str) -> bool:
        """Whether a pipeline has anything in the warehouse."""
        checked_name("pipeline", name)
        if self.bucket is None:
            return (self.local_folder / name).is_dir()
        return self.bucket.has_any(f"{name}/")

    def has_planned(self, name: str) -> bool:
        """Whether a pipeline has planned a checkpoint."""
        checked_name("pipeline", name)
        if self.bucket is None:
            return (self.local_folder / name / "ids").is_dir()
        return self.bucket.has_any(f"{name}/ids/")

    def list_pipelines(self) -> list[str]:
        """Returns the pipelines that have planned a checkpoint, ordered by name."""
        if self.bucket is None:
            return sorted(p.parent.name for p in self.local_folder.glob("*/ids") if p.is_dir())
        from concurrent.futures import ThreadPoolExecutor

        names = [name for name in self.bucket.folders() if not name.startswith(".")]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return [name for name, planned in zip(names, pool.map(self.has_planned, names), strict=True) if planned]

    @contextmanager
    def scratch(self, name: str) -> Iterator[str]:
        """Yields a scratch folder relative to the warehouse, then deletes it, with those that dead processes have left.

        The lock that marks its owner is on this machine, even if the warehouse is in a bucket, so only the host that
        left a scratch folder deletes it.

        Raises:
            StoreError: the folder cannot be created.
        """
        from tidemark.storage.scratch import scratch_folder

        with scratch_folder(self.local_folder, name, random_id, self._empty_in_bucket) as scratch:
            yield scratch

    def _empty_in_bucket(self, folder: str) -> None:
        if self.bucket is not None:
            self.bucket.empty(folder)

    def arrow(self) -> Any:  # noqa: ANN401
        """Returns the warehouse's file system for pyarrow; None = the local file system.

        Raises:
            UsageError: there are no credentials.
        """
        return None if self.bucket is None else self.bucket.access.arrow()

    @property
    def spark_conf(self) -> dict[str, str]:
        """The configuration with which Spark reaches a bucket, without secrets; empty for a local warehouse."""
        return {} if self.bucket is None else self.bucket.access.spark_conf()


def driver_conf(settings: Settings) -> dict[str, str]:
    """Returns Spark's options for a driver that this process starts."""
    made = {"spark.driver.memory": settings.spark_driver_memory}
    return made | ({"spark.driver.extraJavaOptions": o} if (o := settings.spark_java_options) else {})


def open_bucket_folder(settings: Settings, url: S3Url) -> "S3Folder":
    """Opens a folder of a bucket without contacting the store; the caller closes it.

    Raises:
        UsageError: the variables of AWS are invalid.
    """
    from tidemark.storage.s3_folder import open_folder
    from tidemark.storage.s3_location import S3Place

    return open_folder(
        S3Place(
            bucket=url.bucket,
            prefix=url.prefix,
            endpoint=settings.s3_endpoint,
            region=settings.s3_region,
            path_style=settings.s3_path_style,
        )
    )


# Finds pipelines by name: the `Pipeline` values in the files of the `TIDEMARK_PIPELINES` folders.
def find_pipeline(name: str, folders: Sequence[Path]) -> Pipeline:
    """Returns the pipeline called `name`.

    Raises:
        NotFoundError: no file declares it; the message lists the declared ones.
        DeclarationError: two files declare it, or a file cannot be imported and no other file declares it.
    """
    checked_name("pipeline", name)
    found: dict[str, tuple[Pipeline, Path]] = {}
    broken: list[TidemarkError] = []
    for path in _files(folders):
        try:
            declared = declared_in(path)
        except TidemarkError as error:
            broken.append(error)
            continue
        for pipeline in declared:
            if pipeline.name in found and found[pipeline.name][1] != path:
                raise DeclarationError(
                    f"two files declare the pipeline {pipeline.name}: {found[pipeline.name][1]} and {path}",
                    next="rename one of them.",
                )
            found[pipeline.name] = (pipeline, path)
    if name in found:
        return found[name][0]
    if broken:
        raise broken[0]
    known = ", ".join(sorted(found)) or "none"
    raise NotFoundError(f"no pipeline {name!r}", next=f"name one of: {known}; or set TIDEMARK_PIPELINES.")


def declared_in(path: Path) -> list[Pipeline]:
    """Returns the pipelines that one file declares at module level.

    Raises:
        DeclarationError: the file cannot be imported; the message says where and why.
    """
    module = _imported(path)
    seen: dict[int, Pipeline] = {id(v): v for v in vars(module).values() if isinstance(v, Pipeline)}
    return list(seen.values())


def _files(folders: Sequence[Path]) -> Iterator[Path]:
    for folder in folders:
        if not folder.is_dir():
            raise NotFoundError(f"no such folder of pipelines: {folder}", next="correct TIDEMARK_PIPELINES.")
        yield from sorted(p for p in folder.glob("*.py") if not p.name.startswith("_"))


def _imported(path: Path) -> ModuleType:
    # Resolve links: a link that now points to other code must not show the old file.
    real = path.resolve()
    name = f"{path.parent.name}.{path.stem}"
    # One module per file, under the name that `from pipelines.x import y` gives it if that is the same file, so that
    # classes declared in it have one identity in a process. The name from a second such folder gets a suffix.
    for known_as in (name, name + BESIDE + hashlib.sha256(str(real).encode()).hexdigest()[:12]):
        known = sys.modules.get(known_as)
        if known is None:
            return _loaded(known_as, real)
        if Path(known.__file__ or "").resolve() == real:
            return known
    raise DeclarationError(f"cannot import {path}: the module name {known_as} is taken", next="rename the file.")


def _loaded(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise DeclarationError(f"cannot import {path}", next="give it a .py name.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except TidemarkError:
        del sys.modules[name]
        raise
    except Exception as error:
        del sys.modules[name]
        raise _unimportable(path, error) from error
    return module


def _unimportable(path: Path, error: Exception) -> DeclarationError:
    line = error.lineno if isinstance(error, SyntaxError) else _line_in(path, error)
    where = f"{path}:{line}" if line else str(path)
    return DeclarationError(
        f"cannot import the pipeline file {where}: {type(error).__name__}: {error}",
        next="fix the file; `python " + str(path) + "` shows the whole traceback.",
    )


def _line_in(path: Path, error: Exception) -> int | None:
    found, step = None, error.__traceback__
    while step is not None:
        if Path(step.tb_frame.f_code.co_filename) == path:
            found = step.tb_lineno
        step = step.tb_next
    return found


# The receivers of metrics and lineage events named by the settings.
SECONDS = 2.0
"""How long a run waits for a receiver, in seconds."""
_CLIENT_VARIABLES = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT")
"""How variables begin that name a receiver to the client of OpenLineage."""
_OPENLINEAGE = "openlineage"
"""The package."""


class Observers:
    """The receivers of one context. After its first failure, a receiver is not called again.

    Args:
        settings: the settings that name the receivers.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def metrics(self) -> "list[Metrics]":
        """The StatsD server from the settings; empty if there is none."""
        if not self._settings.statsd:
            return []
        from tidemark.telemetry.statsd import StatsdMetrics

        return [StatsdMetrics(self._settings.statsd)]

    @cached_property
    def metrics_calls(self) -> Bounded:
        """Calls the receivers of metrics."""
        return Bounded("metrics", SECONDS)

    def refuse_unsendable(self) -> None:
        """Checks, before a checkpoint is planned, that the events that the settings ask for can be made.

        Raises:
            UsageError: the package for them is not installed.
        """
        from tidemark.extras import require

        if self._settings.openlineage:
            require(_OPENLINEAGE)

    @cached_property
    def lineage(self) -> "LineageSink | None":
        """The receiver of lineage events; None if events are not sent, or if the package for them is not installed."""
        if not self._settings.openlineage and not names_receiver(os.environ):
            return None
        from tidemark.extras import require

        try:
            require(_OPENLINEAGE)
        except UsageError as error:
            # Other programs use the variables of OpenLineage, too; and a published checkpoint must not fail.
            log.warning("lineage_not_sent", why=error.what, next=error.next)
            return None
        return _open_lineage(self._settings)

    @cached_property
    def lineage_calls(self) -> Bounded:
        """Calls the receiver of lineage events."""
        return Bounded("lineage", SECONDS)


def names_receiver(variables: Mapping[str, str]) -> bool:
    """Whether environment variables name a receiver to OpenLineage's own client."""
    if variables.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    return any(value and name.startswith(_CLIENT_VARIABLES) for name, value in variables.items())


def _open_lineage(settings: Settings) -> "LineageSink":
    """Returns the receiver of the settings, or else that of OpenLineage's variables."""
    from tidemark.telemetry.openlineage import (
        ClientLineage,
        OpenTransport,
        TransportLineage,
        file_transport,
        http_transport,
    )
    from tidemark.telemetry.openlineage_columns import Naming

    server = (settings.kafka_bootstrap or EMBEDDED_BROKER).split(",")[0].strip()
    naming = Naming(jobs=settings.openlineage_namespace, broker=server, warehouse=str(settings.warehouse))
    address, key = settings.openlineage, settings.openlineage_api_key
    made: OpenTransport
    if address is None:
        return ClientLineage(naming=naming, timeout=SECONDS)
    if address.startswith("file:"):
        made = partial(file_transport, settings.root / Path(address.removeprefix("file:")))
    elif address.startswith("kafka://"):
        from tidemark.telemetry.openlineage_kafka import AcknowledgedKafka

        bootstrap, _, topic = address.removeprefix("kafka://").rpartition("/")
        # The credentials are for the Kafka in the settings; another Kafka must not get them.
        is_ours = bootstrap == settings.kafka_bootstrap

        def open_kafka() -> AcknowledgedKafka:
            options = settings.kafka_client_options if is_ours else {}
            return AcknowledgedKafka(bootstrap, topic, SECONDS, options)

        made = open_kafka
    else:
        made = partial(http_transport, address, None if key is None else key.get_secret_value(), SECONDS)
    return TransportLineage(open_transport=made, naming=naming)
