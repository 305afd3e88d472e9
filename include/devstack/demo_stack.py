"""What the demos ask of the stack: Airflow's login, services that have ended, an Airflow with the demo's variables."""

from collections.abc import Mapping

import psutil

from devstack import control
from devstack.credentials import Credentials, load_credentials
from tidemark.cli.output import note
from tidemark.errors import NotFoundError
from tidemark.settings import Settings


def stop_other_airflow(settings: Settings, wanted: Mapping[str, str]) -> None:
    """Stops an Airflow that was started with other values of some variables, because its tasks inherit them.

    Args:
        settings: the project's settings.
        wanted: the variables and their values.
    """
    scheduler = next(service for service in control.status(settings) if service.name == "airflow-scheduler")
    if scheduler.state != "running":
        return
    found = _environment_of(scheduler.pid)
    other = [name for name, value in wanted.items() if found.get(name) != value]
    if other:
        note(f"airflow: was started with another {', '.join(other)} than the demo's")
        control.down(settings, ["airflow"], report=note)


def ended_service(settings: Settings) -> str | None:
    """Returns a service of the stack that has ended, or None."""
    return next((service.name for service in control.status(settings) if service.state == "stale"), None)


def airflow_login(settings: Settings) -> Credentials:
    """Returns the login of the embedded Airflow.

    Raises:
        NotFoundError: it was never started.
    """
    login = load_credentials(settings.home)
    if login is None:
        raise NotFoundError("the embedded Airflow has no password yet", next="tidemark up --only airflow")
    return login


def _environment_of(pid: int | None) -> dict[str, str]:
    try:
        return psutil.Process(pid).environ()
    except psutil.Error:
        return {}
