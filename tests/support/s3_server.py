"""moto's S3 with one thing mended: a conditional PUT is one step, as the real service's is. `python -m … PORT`.

moto serves each connection in a thread of its own, looks whether an object is there, and stores it afterwards; between
the two another thread does the same, and both are told that they made it. Here one PUT follows another. And S3 alone is
served, so that moto does not look through all its services at each request, which takes longer than the answer.
"""

from __future__ import annotations

import sys
from threading import Lock
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.s3.responses import S3Response
from werkzeug.serving import run_simple

_PUTS = Lock()
_put_object = S3Response.put_object


def put_object(self: S3Response) -> Any:
    with _PUTS:
        return _put_object(self)


class Handler(MotoRequestHandler):
    """Without a line in the log for each request."""

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        pass


def main(port: int) -> None:
    """Serve on loopback until killed."""
    S3Response.put_object = put_object  # type: ignore[method-assign]
    whole = DomainDispatcherApplication(create_backend_app)
    s3 = create_backend_app("s3")

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        return (whole if environ["PATH_INFO"].startswith("/moto-api/") else s3)(environ, start_response)

    run_simple("127.0.0.1", port, application, threaded=True, request_handler=Handler)


if __name__ == "__main__":
    main(int(sys.argv[1]))
