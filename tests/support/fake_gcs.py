"""A stand-in for Google Cloud Storage's XML API: objects, conditional creation, lists. `python -m … PORT`.

A creation with `x-goog-if-generation-match: 0` is refused with 412 when the object is there, as the real one does.
"""

from __future__ import annotations

import sys
import threading
from bisect import bisect_right
from datetime import UTC, datetime
from email.utils import format_datetime
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

Object = tuple[bytes, datetime, int]
BUCKETS: dict[str, dict[str, Object]] = {}
# As services that take the condition for an unknown header do.
CARELESS = {"careless"}
LOCK = threading.Lock()
PAGE = 1_000


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.parts = urlsplit("")
        self.bucket, self.name = "", ""

    def parse_request(self) -> bool:
        good = super().parse_request()
        if good:
            self.parts = urlsplit(self.path)
            bucket, _, name = self.parts.path.removeprefix("/").partition("/")
            self.bucket, self.name = unquote(bucket), unquote(name)
        return good

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        with LOCK:
            if not self.name:
                BUCKETS.setdefault(self.bucket, {})
                return self.answer(200)
            objects = BUCKETS.get(self.bucket)
            if objects is None:
                return self.problem(404, "NoSuchBucket")
            conditional = self.headers.get("x-goog-if-generation-match") == "0" and self.bucket not in CARELESS
            if conditional and self.name in objects:
                return self.problem(412, "PreconditionFailed")
            objects[self.name] = (body, datetime.now(UTC), 1)
        return self.answer(200, {"ETag": f'"{md5(body).hexdigest()}"', "x-goog-generation": "1"})

    def do_GET(self) -> None:
        with LOCK:
            objects = BUCKETS.get(self.bucket)
            if objects is None:
                return self.problem(404, "NoSuchBucket")
            if not self.name:
                return self.listing(objects)
            found = objects.get(self.name)
        if found is None:
            return self.problem(404, "NoSuchKey")
        body, stored, _ = found
        headers = {
            "ETag": f'"{md5(body).hexdigest()}"',
            "Last-Modified": format_datetime(stored, usegmt=True),
            "x-goog-generation": "1",
        }
        return self.answer(200, headers, body)

    do_HEAD = do_GET  # noqa: N815 - the base class looks for this name

    def do_DELETE(self) -> None:
        with LOCK:
            if not self.name:
                BUCKETS.pop(self.bucket, None)
                return self.answer(204)
            if self.bucket not in BUCKETS:
                return self.problem(404, "NoSuchBucket")
            gone = BUCKETS[self.bucket].pop(self.name, None)
        if gone is None:
            return self.problem(404, "NoSuchKey")
        return self.answer(204)

    def listing(self, objects: dict[str, Object]) -> None:
        asked = {name: values[0] for name, values in parse_qs(self.parts.query, keep_blank_values=True).items()}
        prefix = asked.get("prefix", "")
        after = asked.get("continuation-token") or asked.get("start-after") or ""
        names = sorted(name for name in objects if name.startswith(prefix))
        page = names[bisect_right(names, after) :][:PAGE] if after else names[:PAGE]
        more = bool(page) and page[-1] != names[-1]
        entries = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>{objects[name][1].isoformat(timespec='milliseconds')[:23]}Z"
            f"</LastModified><Size>{len(objects[name][0])}</Size></Contents>"
            for name in page
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        body = f"<?xml version='1.0' encoding='UTF-8'?><ListBucketResult>{entries}{token}</ListBucketResult>"
        self.answer(200, {"Content-Type": "application/xml"}, body.encode())

    def problem(self, status: int, code: str) -> None:
        self.answer(status, {"Content-Type": "application/xml"}, f"<Error><Code>{code}</Code></Error>".encode())

    def answer(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    ThreadingHTTPServer.daemon_threads = True
    ThreadingHTTPServer.request_queue_size = 128
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
