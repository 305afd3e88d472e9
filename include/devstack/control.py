"""Starts, stops and shows the embedded stack, and its logs. You can repeat each function at any time, after any crash.

This module alone knows the order of the services; each service has its own module.
"""

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

from devstack import jars, processes
from devstack.addresses import (
    Addresses,
    choose_addresses,
    exclusive,
    port_lock,
    record_process,
    recorded_addresses,
)
from devstack.airflow_services import prepare_airflow
from devstack.broker import prepare_broker
from devstack.processes import ProcessRecord, load_record
from devstack.services import GROUPS, LISTENERS, SERVICES, Group, Service
from devstack.spark_server import prepare_spark, warm_up
from tidemark.errors import NotFoundError, TidemarkError, UsageError
from tidemark.settings import Settings

State = Literal["running", "stopped", "stale"]
Report = Callable[[str], None]
Preparation = Callable[[Settings, Addresses], tuple[Service, ...]]

PREPARATIONS: dict[Group, Preparation] = {"kafka": prepare_broker, "spark": prepare_spark, "airflow": prepare_airflow}
WARMED = "spark-warmed"
LOG_TAIL = 15
ORPHAN_GRACE = 1.0
"""Seconds for children whose leader was killed; there is no leader left that could end them in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """The status of one service.

    Attributes:
        state: `stale` means that the service was started and ended without `down`.
        address: the address for clients, if the service has any.
        uptime: seconds since its start, if it runs.
    """

    name: str
    group: Group
    state: State
    pid: int | None = None
    address: str | None = None
    uptime: float | None = None


def up(
    settings: Settings, only: Collection[str] = GROUPS, report: Report = lambda _: None, *, warm: bool = True
) -> list[ServiceStatus]:
    """Start the services that do not run yet, and wait until all are healthy.

    Args:
        settings: the home and the ports.
        only: the groups to start, of kafka, spark and airflow.
        report: called with each step, to show progress.
        warm: whether to run a first query on a new Spark server, so that the first checkpoint does not wait for it.

    Returns:
        The status of every service, started or not.

    Raises:
        UsageError: a group is unknown, or a configured port is taken.
        NotFoundError: jars or DAGs are missing, as outside of a checkout.
        TidemarkError: a prerequisite is missing, or a service did not become healthy; then the services that this call
            started are stopped again, and their logs are kept.
    """
    groups = [group for group in GROUPS if group in _known(only)]
    _refuse_incomplete(settings, groups)
    with ExitStack() as locks:
        locks.enter_context(exclusive(settings.home / "stack.lock", report))
        # All checkouts share a lock for choosing and binding ports, so that no two of them choose the same one.
        locks.enter_context(exclusive(port_lock(), report))
        started: list[ProcessRecord] = []
        try:
            _start_groups(settings, groups, report, started)
            if warm and "spark" in groups:
                _warm_spark(settings, report)
        except BaseException:
            _stop(settings, {record.name for record in started})
            raise
    return status(settings)


def down(settings: Settings, only: Collection[str] = GROUPS, report: Report = lambda _: None) -> list[ServiceStatus]:
    """Stop services and all of their child processes, in whatever state a crash left them.

    Args:
        settings: the home.
        only: the groups to stop; if it has all groups, unrecorded child processes are found and stopped too.
        report: called with each step.

    Returns:
        The status of every service afterwards.

    Raises:
        TidemarkError: a process survived SIGKILL.
    """
    wanted = _known(only)
    immortal: list[int] = []
    with exclusive(settings.home / "stack.lock", report):
        # Clients stop before their services, so that Airflow's tasks do not lose Spark and Kafka.
        for group in reversed([group for group in GROUPS if group in wanted]):
            names = {name for name, its_group in SERVICES.items() if its_group == group}
            if any(load_record(settings.home, name) for name in names):
                report(f"{group}: stopping")
            immortal += _stop(settings, names)
        if wanted == set(GROUPS):
            immortal += processes.stop(processes.marked_strays(settings.home))
    if immortal:
        raise TidemarkError(
            f"processes {', '.join(map(str, immortal))} are still there after SIGKILL",
            safe="data are safe; all others have ended.",
            next="wait for the disk that blocks them, then tidemark down again.",
        )
    return status(settings)


def status(settings: Settings) -> list[ServiceStatus]:
    """Return the status of all services, from the process table, without asking the services."""
    addresses = recorded_addresses(settings.home)
    return [_status_of(settings, name, group, addresses) for name, group in SERVICES.items()]


def log_lines(settings: Settings, name: str, follow: bool = False) -> Iterator[str]:
    """Yield the lines of a log, without line ends.

    Args:
        settings: the home.
        name: a service, or a preparation with a log (kafka-format, airflow-migrate, spark-warm-up).
        follow: keep yielding new lines forever, even after a restart.

    Raises:
        NotFoundError: there is no such log.
    """
    path = processes.log_path(settings.home, name)
    if "/" in name or not path.is_file():
        known = ", ".join(sorted(log.stem for log in (settings.home / "logs").glob("*.log"))) or "none yet"
        raise NotFoundError(f"there is no log {name}", next=f"tidemark logs NAME, with one of: {known}.")
    return _follow(settings, name) if follow else iter(path.read_text(errors="replace").splitlines())


def _start_groups(settings: Settings, groups: list[Group], report: Report, started: list[ProcessRecord]) -> None:
    running = frozenset(group for group in GROUPS if _is_up(settings, group))
    for group in groups:
        bury(settings, group)
    addresses = choose_addresses(settings, running, frozenset(groups) - running)
    services: list[Service] = []
    for group in groups:  # a slow start overlaps with the next group's preparation
        prepared = PREPARATIONS[group](settings, addresses)
        services += prepared
        for service in prepared:
            record = _start(settings, service, report)
            if record is not None:
                started.append(record)
    new = {record.name for record in started}
    for service in services:
        _await_health(settings, service)
        report(f"{service.name}: {'healthy' if service.name in new else 'already running'}")


def bury(settings: Settings, group: Group) -> None:
    """Stop the remains of killed services before choosing ports, which they may hold."""
    for name in (name for name, its_group in SERVICES.items() if its_group == group):
        before = load_record(settings.home, name)
        if before is not None and not before.is_running:
            processes.stop(processes.family_of([before]), ORPHAN_GRACE)


def _start(settings: Settings, service: Service, report: Report) -> ProcessRecord | None:
    """Start a service, unless it runs."""
    before = load_record(settings.home, service.name)
    if before is not None and before.is_running:
        return None
    report(f"{service.name}: starting")
    record = processes.start(service.name, service.argv, service.env, settings.home)
    if LISTENERS[service.group] == service.name:
        record_process(settings.home, service.group, record)
    return record


def _await_health(settings: Settings, service: Service) -> None:
    record = load_record(settings.home, service.name)
    if record is None:
        raise TidemarkError(f"the record of {service.name} was removed by another process", next="tidemark up")
    since = time.time() - record.started
    deadline = time.monotonic() + max(service.patience - since, 10.0)
    ended_or_healthy = processes.wait_until(
        lambda: not record.is_running or service.is_healthy(record.started), deadline
    )
    if ended_or_healthy and record.is_running:
        return
    tail = "\n".join(list(log_lines(settings, service.name))[-LOG_TAIL:])
    happened = "ended" if not record.is_running else f"was not healthy after {service.patience:.0f} s"
    raise TidemarkError(
        f"{service.name} {happened}; the end of its log:\n{tail}",
        safe="services that this call started are stopped again; data and checkpoints are intact.",
        next=f"tidemark logs {service.name}; tidemark doctor",
    )


def _warm_spark(settings: Settings, report: Report) -> None:
    record, addresses = load_record(settings.home, "spark"), recorded_addresses(settings.home)
    warmed = load_record(settings.home, WARMED)
    if record is None or addresses is None or (warmed is not None and warmed.is_running):
        return
    report("spark: warming")
    began = time.monotonic()
    warm_up(settings, addresses)
    ProcessRecord(name=WARMED, pid=record.pid, started=record.started).save(settings.home)
    report(f"spark: warm after {time.monotonic() - began:.1f} s")


def _stop(settings: Settings, names: set[str]) -> list[int]:
    records = [record for name in names if (record := load_record(settings.home, name))]
    immortal = processes.stop(processes.family_of(records)) if records else []
    for record in records:
        if record.pid in immortal:
            continue
        processes.forget(settings.home, record.name)
        group = SERVICES[record.name]
        if LISTENERS[group] == record.name:
            record_process(settings.home, group, None)
        if record.name == "spark":
            processes.forget(settings.home, WARMED)
    return immortal


def _status_of(settings: Settings, name: str, group: Group, addresses: Addresses | None) -> ServiceStatus:
    record = load_record(settings.home, name)
    address = addresses.of(group) if addresses and LISTENERS[group] == name else None
    if record is None:
        return ServiceStatus(name=name, group=group, state="stopped")
    if not record.is_running:
        return ServiceStatus(name=name, group=group, state="stale", pid=record.pid)
    uptime = round(time.time() - record.started, 1)
    return ServiceStatus(name=name, group=group, state="running", pid=record.pid, address=address, uptime=uptime)


def _refuse_incomplete(settings: Settings, groups: Collection[Group]) -> None:
    """Checks that jars and DAGs exist, because Java would only name a missing class.

    Raises:
        NotFoundError: something is missing; the message names each folder.
    """
    wanted = {settings.jar_folder / group: "jars" for group in groups if group in jars.PROFILES}
    missing = [f"{what} in {folder}" for folder, what in wanted.items() if not any(folder.glob("*.jar"))]
    if "airflow" in groups and not (settings.root / "dags").is_dir():
        missing.append(f"DAGs in {settings.root / 'dags'}")
    if missing:
        raise NotFoundError(
            f"there are no {', no '.join(missing)}",
            safe="nothing was started.",
            next="cd to the checkout of the project, or set TIDEMARK_ROOT to it; make setup fetches the jars.",
        )


def _is_up(settings: Settings, group: Group) -> bool:
    record = load_record(settings.home, LISTENERS[group])
    return record is not None and record.is_running


def _known(only: Collection[str]) -> set[str]:
    unknown = set(only) - set(GROUPS)
    if unknown:
        raise UsageError(
            f"there is no service {', '.join(sorted(unknown))}",
            safe="nothing was started or stopped.",
            next=f"choose from {', '.join(GROUPS)}, separated by commas.",
        )
    return set(only)


def _follow(settings: Settings, name: str) -> Iterator[str]:
    path = processes.log_path(settings.home, name)
    while True:
        with path.open(errors="replace") as stream:
            inode = path.stat().st_ino
            while path.exists() and path.stat().st_ino == inode:
                line = stream.readline()
                if line:
                    yield line.rstrip("\n")
                else:
                    time.sleep(0.3)
        processes.wait_until(path.exists, time.monotonic() + 10.0)
