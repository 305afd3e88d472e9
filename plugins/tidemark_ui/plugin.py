"""What Airflow is told of the plugin. Every component of Airflow imports this file, so it loads nothing itself."""

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from tidemark_ui import pausing


async def app(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
    """The routes, made when the API server is asked for the first one."""
    from tidemark_ui.app import shared_app

    await shared_app()(scope, receive, send)


class TidemarkPlugin(AirflowPlugin):
    """Names of the apps are those of the globals that their bundles set, and the words on tab and menu."""

    name = "tidemark"
    listeners = [pausing]
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
