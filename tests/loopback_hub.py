"""A server on this machine that answers as the Hugging Face hub does, and can misbehave.

As there, a file's address answers with its checksum and a redirect to another host, which sends the
bytes and understands Range.
"""

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Request:
    """One request as the server saw it, and how many bytes of a body it sent."""

    method: str
    path: str
    range: str | None
    sent: int = 0


@dataclass
class LoopbackHub:
    """What is served, how it misbehaves, and what was asked."""

    files: dict[str, bytes] = field(default_factory=dict)  # name in the repository → content
    plain: dict[str, bytes] = field(default_factory=dict)  # path → content, served directly
    cuts: list[int] = field(default_factory=list)  # the next bodies end after so many bytes
    wrong: list[bytes] = field(default_factory=list)  # the next bodies are these instead
    ranges: bool = True  # whether Range is understood
    requests: list[Request] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        """The endpoint."""
        return f"http://127.0.0.1:{self.port}"

    def bodies(self) -> list[Request]:
        """The requests that asked for content."""
        return [request for request in self.requests if request.method == "GET"]


@contextmanager
def loopback_hub(hub: LoopbackHub) -> Iterator[LoopbackHub]:
    """Serve `hub` on a free port of 127.0.0.1."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer()

        def do_GET(self) -> None:
            self.answer()

        def answer(self) -> None:
            request = Request(self.command, self.path, self.headers["Range"])
            hub.requests.append(request)
            name = self.path.removeprefix("/datasets/uoft-cs/cifar10/resolve/main/")
            by_hash = {f"/lfs/{sha256(content)}": content for content in hub.files.values()}
            if name in hub.files:
                self.redirect(hub.files[name])
            elif content := (by_hash | hub.plain).get(self.path):
                self.send(request, content)
            else:
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()

        def redirect(self, content: bytes) -> None:
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{hub.port}/lfs/{sha256(content)}")
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("X-Linked-Etag", f'"{sha256(content)}"')
            self.send_header("X-Linked-Size", str(len(content)))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def send(self, request: Request, content: bytes) -> None:
            total = len(content)
            start = 0
            if hub.ranges and (asked := re.fullmatch(r"bytes=(\d+)-", request.range or "")):
                start = int(asked[1])
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
            else:
                self.send_response(200)
            if self.command == "GET" and hub.wrong:
                content = hub.wrong.pop(0)
            body = content[start:]
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                if hub.cuts:
                    body = body[: hub.cuts.pop(0)]
                    self.close_connection = True
                self.wfile.write(body)
                request.sent = len(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hub.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()


def sha256(content: bytes) -> str:
    """In hexadecimal."""
    return hashlib.sha256(content).hexdigest()
