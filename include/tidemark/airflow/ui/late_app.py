"""The application that Airflow mounts: an error of Tidemark's must not keep Airflow's API server from starting."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from threading import Thread

from fastapi import FastAPI
from starlette.types import Receive, Scope, Send


class LateApp(FastAPI):
    """Makes the routes at the first request, or in the background once the server has started, whichever is first."""

    def __init__(self) -> None:
        super().__init__(title="Tidemark", lifespan=_prepared)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        from tidemark.airflow.ui.app import shared_app

        await shared_app()(scope, receive, send)


@asynccontextmanager
async def _prepared(_: FastAPI) -> AsyncIterator[None]:
    """Airflow enters this when all its own parts are loaded."""
    Thread(target=_prepare, name="tidemark-prepare", daemon=True).start()
    yield


def _prepare() -> None:
    from tidemark.airflow.ui.app import read_pipelines

    read_pipelines()
