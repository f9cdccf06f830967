"""Stands in for one of our processes: serves /ready if it is to listen, and waits to be stopped."""

import os
import signal
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


class Ready(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        return


if listen := os.environ.get("PENSTOCK_LISTEN"):
    host, port = listen.split(":")
    HTTPServer((host, int(port)), Ready).serve_forever()
else:
    signal.pause()
