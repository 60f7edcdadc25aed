"""The HTTP server that Kubernetes probes: `/healthz`, that the command runs, and `/readyz`, that all works."""

from __future__ import annotations

import json
import os
import threading
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import override

from echannel_ray.pod.health import Health
from echannel_ray.pod.settings import PORT_VARIABLE, CommandRefused


class Probes:
    """The server for the probes of one pod, on threads of its own."""

    def __init__(self, host: str, port: int, health: Health) -> None:
        try:
            self._server = ThreadingHTTPServer((host, port), partial(_Handler, health))
        except OSError as error:
            raise CommandRefused(
                f"the probes can't listen on {host}:{port}: {error.strerror or error}; set {PORT_VARIABLE} to a port "
                "that is free, and ECHANNEL_PROBE_HOST to an address of this pod, or 0.0.0.0 for all of them"
            ) from None
        self.url = f"http://{host}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, name="echannel-probes", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    timeout = 5  # of a client that sends no request
    server_version = "echannel"
    sys_version = ""

    def __init__(self, health: Health, *of_request: Any) -> None:
        self._health = health
        super().__init__(*of_request)  # which answers the request

    def do_GET(self) -> None:
        """Answer a probe (`http.server` calls it by this name)."""
        path = self.path.partition("?")[0]
        if path == "/healthz":
            self._answer(HTTPStatus.OK, {"alive": True, "pid": os.getpid()})
        elif path == "/readyz":
            document = self._health.document()
            self._answer(HTTPStatus.OK if document["ready"] else HTTPStatus.SERVICE_UNAVAILABLE, document)
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"error": "ask for /healthz or /readyz"})

    def _answer(self, status: HTTPStatus, document: dict[str, Any]) -> None:
        body = json.dumps(document, indent=2).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of probes, which come every few seconds."""
