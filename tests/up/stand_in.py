"""Stands in for one of our processes: answers if it is to listen, and waits to be stopped."""

import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


class Ready(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        if self.path == "/managers":
            self.wfile.write(
                b'{"items": []}' if sys.argv[1:] else b'{"items": [{"state": "idle"}]}'
            )

    def log_message(self, *_: Any) -> None:
        return


if listen := os.environ.get("PENSTOCK_LISTEN"):
    host, port = listen.split(":")
    HTTPServer((host, int(port)), Ready).serve_forever()
else:
    signal.pause()
