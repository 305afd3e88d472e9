"""The plugin as Airflow registers it. Every component of Airflow imports this file, so it imports nothing heavy."""

from typing import Any, cast

from airflow.plugins_manager import AirflowPlugin

from tidemark.airflow.ui import pausing, stopping
from tidemark.airflow.ui.bundle import VERSION

ICONS = {"icon": "tidemark/static/icon.svg", "icon_dark_mode": "tidemark/static/icon-dark.svg"}


class _Apps:
    """The routes, made when an API server asks for them, which has FastAPI loaded."""

    def __get__(self, _: object, __: type) -> list[dict[str, Any]]:
        from tidemark.airflow.ui.late_app import LateApp

        return [{"app": LateApp(), "url_prefix": "/tidemark", "name": "Tidemark"}]


class TidemarkPlugin(AirflowPlugin):
    """An app's name is the global that its bundle sets, and the label of its tab or menu entry.

    The menu entry and the tab of a DAG have the same name, hence the same bundle: its component shows the pipelines of
    the DAG if it gets one. Airflow requires a route of its own for each app.
    """

    name = "tidemark"
    listeners = [pausing, stopping]
    fastapi_apps = cast("list[dict[str, Any]]", _Apps())
    react_apps = [
        {
            "name": "Checkpoints",
            "bundle_url": f"tidemark/static/{VERSION}/page.js",
            "destination": "nav",
            "url_route": "checkpoints",
            **ICONS,
        },
        {
            "name": "Checkpoints",
            "bundle_url": f"tidemark/static/{VERSION}/page.js",
            "destination": "dag",
            "url_route": "dag-checkpoints",
            **ICONS,
        },
        {
            "name": "Checkpoint",
            "bundle_url": f"tidemark/static/{VERSION}/tab.js",
            "destination": "dag_run",
            "url_route": "checkpoint",
            **ICONS,
        },
        {
            "name": "PipelineVerdicts",
            "bundle_url": f"tidemark/static/{VERSION}/home.js",
            "destination": "dashboard",
            "url_route": "pipeline-verdicts",
        },
    ]
