"""The store of `make demo WAREHOUSE=s3`, as a process: moto's server, which handles conditional puts one by one.

moto checks for an existing object before it writes, so two concurrent puts can both succeed. `tidemark doctor` refuses
such a store. Run it with `python -m devstack.demo.store HOST PORT`.
"""

import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]
"""A WSGI application."""


def one_by_one(application: Application) -> Application:
    """Returns the same application, but it answers only one conditional request at a time."""
    turn = threading.Lock()

    def gated(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:  # noqa: ANN401
        with turn if "HTTP_IF_NONE_MATCH" in environ else nullcontext():
            return application(environ, start_response)

    return gated


def main() -> None:
    """Serves until it is stopped."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import run_simple

    moto = one_by_one(DomainDispatcherApplication(create_backend_app))
    run_simple(sys.argv[1], int(sys.argv[2]), moto, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main()
