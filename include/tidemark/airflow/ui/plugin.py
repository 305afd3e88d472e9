"""The plugin as Airflow registers it. Every component of Airflow imports this file, so it imports nothing heavy."""

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from tidemark.airflow.ui import pausing, stopping


async def app(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
    """The routes, created at the API server's first request."""
    from tidemark.airflow.ui.app import shared_app

    await shared_app()(scope, receive, send)


class TidemarkPlugin(AirflowPlugin):
    """An app's name is the global that its bundle sets, and the label of its tab or menu entry."""

    name = "tidemark"
    listeners = [pausing, stopping]
    fastapi_apps = [{"app": app, "url_prefix": "/tidemark", "name": "Tidemark"}]
    react_apps = [
        {
            "name": "Checkpoints",
            "bundle_url": "tidemark/static/page.js",
            "destination": "nav",
            "url_route": "checkpoints",
        },
        {
            "name": "Checkpoint",
            "bundle_url": "tidemark/static/tab.js",
            "destination": "dag_run",
            "url_route": "checkpoint",
        },
    ]
