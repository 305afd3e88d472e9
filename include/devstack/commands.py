"""`tidemark up | down | status | logs`: the embedded stack."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from devstack.demo import topic
from tidemark.cli.extensions import add_checks, add_login
from tidemark.cli.output import JsonFlag, note, show_rows
from tidemark.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devstack.control import ServiceStatus
    from tidemark.cli.airflow_api import AirflowApi
    from tidemark.cli.doctor import Check
    from tidemark.settings import Settings

Only = Annotated[
    str | None,
    typer.Option(metavar="GROUPS", help="Limit the command to some of kafka, spark, airflow, separated by commas."),
]


def register(app: typer.Typer) -> None:
    """Adds the commands, the stack's checks for `tidemark doctor`, and the login to its Airflow for `tidemark stop`."""
    for command in (up, down, status, logs):
        app.command()(command)
    topic.register(app)
    add_checks(_checks)
    add_login(embedded_airflow)


def _checks() -> "Mapping[str, Check]":
    from devstack.doctor import CHECKS

    return CHECKS


def embedded_airflow(settings: "Settings") -> "AirflowApi | None":
    """Returns a session of the embedded Airflow's administrator, or None if it is not up."""
    from devstack import control
    from devstack.credentials import ADMIN, load_credentials
    from tidemark.cli.airflow_api import AirflowApi

    login = load_credentials(settings.home)
    running = any(s.group == "airflow" and s.state == "running" for s in control.status(settings))
    if login is None or not running:
        return None
    return AirflowApi(settings.airflow_address, ADMIN, login.airflow_admin_password)


def up(only: Only = None, as_json: JsonFlag = False) -> None:
    """Start Kafka, Spark and Airflow, and wait until they are healthy. Services that already run are left alone.

    Examples:
      tidemark up
      tidemark up --only kafka,spark
    """
    from devstack import control
    from devstack.credentials import ADMIN, load_credentials, secrets_path
    from tidemark.settings import load_settings

    settings = load_settings()
    statuses = control.up(settings, _groups(only), report=note)
    _show(statuses, as_json=as_json)
    login = load_credentials(settings.home)
    if login is not None and any(s.group == "airflow" and s.state == "running" for s in statuses):
        note(f"Airflow: user {ADMIN}, password in {secrets_path(settings.home)}")


def down(only: Only = None, as_json: JsonFlag = False) -> None:
    """Stop the services that `up` started, and all of their child processes. Data stay.

    Examples:
      tidemark down
      tidemark down --only airflow
    """
    from devstack import control
    from tidemark.settings import load_settings

    _show(control.down(load_settings(), _groups(only), report=note), as_json=as_json)


def status(as_json: JsonFlag = False) -> None:
    """Show each service's state, uptime and address. `stale` means that a service was started and ended without `down`.

    Examples:
      tidemark status
      tidemark status --json
    """
    from devstack import control
    from tidemark.settings import load_settings

    _show(control.status(load_settings()), as_json=as_json)


def logs(
    name: Annotated[str, typer.Argument(help="A service, as listed by `tidemark status`.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new lines until interrupted.")] = False,
) -> None:
    """Print the log of a service.

    Examples:
      tidemark logs kafka
      tidemark logs airflow-scheduler -f
    """
    from devstack import control
    from tidemark.settings import load_settings

    for line in control.log_lines(load_settings(), name, follow=follow):
        sys.stdout.write(line + "\n")
        if follow:
            sys.stdout.flush()


def _groups(only: str | None) -> tuple[str, ...]:
    from devstack.services import GROUPS

    if only is None:
        return GROUPS
    groups = tuple(part.strip() for part in only.split(",") if part.strip())
    if not groups:
        raise UsageError(
            "--only names nothing", safe="nothing was started or stopped.", next="tidemark up --only kafka"
        )
    return groups


def _show(statuses: "list[ServiceStatus]", *, as_json: bool) -> None:
    show_rows([asdict(one) for one in statuses], as_json=as_json)
