"""The application below `/tidemark`: every route requires a login, bodies are JSON, errors are the command line's."""

import logging
from collections.abc import Awaitable, Callable
from functools import cache

from airflow.api_fastapi.core_api.security import bearer_scheme, get_user, requires_authenticated
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse

from tidemark.airflow.ui import routes, writes
from tidemark.airflow.ui.access import PayloadsHiddenError
from tidemark.airflow.ui.shared import shared_context
from tidemark.errors import ConflictError, NameRefusedError, NotFoundError, ReleasedError, TidemarkError, UsageError
from tidemark.web import history_cache

_log = logging.getLogger(__name__)
MOST_BYTES = 64 * 1024
"""The largest body of a request."""
MOST_PREPARED = 20
"""Pipelines whose newest checkpoints a server reads when it starts."""
STATUS: tuple[tuple[type[TidemarkError], int], ...] = (
    (NameRefusedError, 404),
    (ReleasedError, 409),
    (NotFoundError, 404),
    (UsageError, 422),
    (ConflictError, 409),
    (PayloadsHiddenError, 403),
)
"""HTTP status per class of error; all other errors (store, Kafka, damage) are 503."""


async def refuse_early(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    """Refuses a body before anything reads it: without a login, too large, or from a form of another site."""
    try:
        if request.method not in ("GET", "HEAD", "OPTIONS"):
            await get_user(request, None, await bearer_scheme(request))
            check_body(request)
    except HTTPException as error:
        return JSONResponse({"detail": error.detail}, error.status_code)
    return await answer(request)


def check_body(request: Request) -> None:
    """Refuses large bodies, and bodies that a form of another site could send.

    Raises:
        HTTPException: 415, 411 or 413.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "send application/json")
    size = request.headers.get("content-length", "")
    if not size.isdecimal():
        raise HTTPException(411, "send Content-Length")
    if int(size) > MOST_BYTES:
        raise HTTPException(413, f"at most {MOST_BYTES} bytes")


def create_app() -> FastAPI:
    """The application. The login is a dependency of the whole application; it has no mounts, which would bypass it."""
    made = FastAPI(
        title="Tidemark",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=[Depends(requires_authenticated())],
    )
    made.include_router(routes.router)
    made.include_router(writes.router)
    made.add_exception_handler(TidemarkError, error_response)
    made.middleware("http")(refuse_early)
    made.middleware("http")(add_safe_headers)
    return made


@cache
def shared_app() -> FastAPI:
    """The application of this process."""
    shared_context()
    return create_app()


def read_pipelines() -> None:
    """Reads what the first page asks for: the pipelines, and the newest checkpoints of some of them (adr/0080).

    An error is logged only: the page will show it.
    """
    try:
        shared_app()
        for name in history_cache.list_pipelines(shared_context())[:MOST_PREPARED]:
            history_cache.read_newest(shared_context(), name)
    except Exception:  # noqa: BLE001  (nothing waits for this thread)
        _log.warning("the pipelines could not be read when the server started", exc_info=True)


async def error_response(_: Request, error: Exception) -> JSONResponse:
    """A Tidemark error as JSON: the three lines that the command line prints."""
    assert isinstance(error, TidemarkError)  # noqa: S101  (for the type checker)
    status = next((code for kind, code in STATUS if isinstance(error, kind)), 503)
    body = {"error": type(error).__name__, "what": error.what, "safe": error.safe, "next": error.next}
    return JSONResponse(body, status)


async def add_safe_headers(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    """Forbids caches, guesses at the type of a body, and frames of other sites."""
    response = await answer(request)
    response.headers.setdefault("Cache-Control", "no-cache" if "/static/" in request.url.path else "no-store")
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Security-Policy"] = "default-src 'none'; frame-ancestors 'self'"
    return response
