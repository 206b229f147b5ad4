"""A real HTTP server on this machine that receives alerts, and answers as a test says."""

from __future__ import annotations

import json
import socketserver
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HANG = 0
"""Instead of a status: never answers."""

DRIP = -1
"""Answers one byte at a time, without an end."""


@dataclass
class Received:
    """What the server received.

    Attributes:
        url: The address of the server.
        requests: Path, headers and body of each request.
    """

    url: str
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)

    @property
    def bodies(self) -> list[Any]:
        return [body for _, _, body in self.requests]


@contextmanager
def receiving(
    answers: Sequence[int] = (),
    headers: dict[str, str] | None = None,
    certificate: Path | None = None,
) -> Iterator[Received]:
    """Runs a server that answers with these statuses, then with 200."""
    left = list(answers)
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.requests.append((self.path, dict(self.headers), json.loads(body)))
            status = left.pop(0) if left else 200
            if status == HANG:
                ended.wait()
            elif status == DRIP:
                while not ended.wait(0.05):
                    self.wfile.write(b"a")
                    self.wfile.flush()
            else:
                self.send_response(status)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.end_headers()

        def do_CONNECT(self) -> None:
            received.requests.append((self.path, dict(self.headers), None))
            self.send_error(403)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """The client has left."""

    server: socketserver.BaseServer = Server(("127.0.0.1", 0), Handler)
    assert isinstance(server, Server)
    scheme = "http"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    received = Received(f"{scheme}://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield received
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
