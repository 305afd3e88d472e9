"""The store of `make demo WAREHOUSE=s3`, as a process: moto's server, whose conditional puts pass one by one.

moto looks whether there is an object before it writes, and lets two puts win in between: no store does that which
`tidemark doctor` lets pass. Run as `python -m devstack.demo.store HOST PORT`.
"""

import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]
"""Of WSGI."""


def one_by_one(application: Application) -> Application:
    """The same application, which answers one conditional request at a time; all others as before."""
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
