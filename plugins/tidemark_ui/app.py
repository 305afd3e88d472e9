"""The application below `/tidemark`: guarded as a whole, JSON only, errors in the three lines of the command line."""

from collections.abc import Awaitable, Callable
from functools import cache

from airflow.api_fastapi.core_api.security import requires_authenticated
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse

from tidemark.errors import ConflictError, NameRefusedError, NotFoundError, TidemarkError, UsageError
from tidemark_ui import routes, writes
from tidemark_ui.reading import shared_context

MOST_BYTES = 64 * 1024
"""Of the body of a request."""
STATUS: tuple[tuple[type[TidemarkError], int], ...] = (
    (NameRefusedError, 404),
    (NotFoundError, 404),
    (UsageError, 422),
    (ConflictError, 409),
)
"""Of an error of ours; of all others 503: they are of the store, of Kafka, of what is damaged."""


async def json_only(request: Request) -> None:
    """Refuses what a form of another site could send, and what is too large, before anything reads it.

    Raises:
        HTTPException: 415, 411 or 413.
    """
    if request.method in ("GET", "HEAD", "OPTIONS"):
        return
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "send application/json")
    size = request.headers.get("content-length", "")
    if not size.isdecimal():
        raise HTTPException(411, "say Content-Length")
    if int(size) > MOST_BYTES:
        raise HTTPException(413, f"at most {MOST_BYTES} bytes")


def create_app() -> FastAPI:
    """The application. The guard stands above all routes; no mount is below it, because mounts would be unguarded."""
    made = FastAPI(
        title="Tidemark",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=[Depends(requires_authenticated()), Depends(json_only)],
    )
    made.include_router(routes.router)
    made.include_router(writes.router)
    made.add_exception_handler(TidemarkError, told)
    made.middleware("http")(cautious)
    return made


@cache
def shared_app() -> FastAPI:
    """That of this process."""
    shared_context()
    return create_app()


async def told(_: Request, error: Exception) -> JSONResponse:
    """An error of ours: what happened, what is safe, what to do next."""
    assert isinstance(error, TidemarkError)  # noqa: S101  (for the type checker)
    status = next((code for kind, code in STATUS if isinstance(error, kind)), 503)
    body = {"error": type(error).__name__, "what": error.what, "safe": error.safe, "next": error.next}
    return JSONResponse(body, status)


async def cautious(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    """Nothing is kept by a cache, taken for another type, or shown in a frame of another site."""
    response = await answer(request)
    response.headers["Cache-Control"] = "no-cache" if "/static/" in request.url.path else "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Security-Policy"] = "default-src 'none'; frame-ancestors 'self'"
    return response
