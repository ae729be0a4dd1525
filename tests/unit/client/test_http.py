from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from bkctl.client.http import Response, send
from bkctl.errors import Unavailable


class Server(BaseHTTPRequestHandler):
    """Answers /N with status N and a body of N bytes; remembers paths and a header."""

    location = "/200"
    requests: ClassVar[list[tuple[str, str, str | None, bytes]]] = []

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.requests.append((self.command, self.path, self.headers["Authorization"], body))
        status = int(self.path[1:])
        self.send_response(status)
        if status // 100 == 3:
            self.send_header("Location", self.location)
        self.send_header("Content-Length", str(status))
        self.end_headers()
        self.wfile.write(b"x" * status)

    do_GET = do_PUT

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Server.requests.clear()
    with HTTPServer(("127.0.0.1", 0), Server) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


def get(url: str, body_bytes_max: int = 1000) -> Response:
    return send("GET", url, timeout_s=5, body_bytes_max=body_bytes_max)


def test_method_body_and_headers_are_sent(server: str) -> None:
    found = send("PUT", f"{server}/200", b"body", {"Authorization": "t"}, timeout_s=5, body_bytes_max=200)
    assert found == Response(200, None, b"x" * 200)
    assert Server.requests == [("PUT", "/200", "t", b"body")]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_returned_and_not_followed(server: str, status: int) -> None:
    found = get(f"{server}/{status}")
    assert (found.status, found.location) == (status, "/200")
    assert [path for _, path, *_ in Server.requests] == [f"/{status}"]


def test_a_redirect_to_an_invalid_address_is_an_error(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "location", "data:,x")
    with pytest.raises(Unavailable, match="307"):
        get(f"{server}/307")


def test_an_error_status_is_a_response(server: str) -> None:
    assert get(f"{server}/503").status == 503


def test_a_response_longer_than_its_bound_is_an_error(server: str) -> None:
    with pytest.raises(Unavailable, match="more than 199 bytes"):
        get(f"{server}/200", body_bytes_max=199)


def test_other_schemes_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("secret")
    for url in ((tmp_path / "x").as_uri(), "ftp://127.0.0.1/x", "data:,x", "127.0.0.1:1/x", "http://[::1/x"):
        with pytest.raises(Unavailable):
            get(url)


def test_a_refused_connection_names_address_and_reason() -> None:
    with socket.socket() as bound:  # bound and not listening
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}/x"
        with pytest.raises(Unavailable, match="Connection refused") as caught:
            get(url)
    assert caught.value.message.startswith(url)


def test_a_response_byte_by_byte_ends_at_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        stopped = threading.Event()

        def drip() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                while not stopped.wait(0.02):
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            with pytest.raises(Unavailable, match=r"no response in 0\.2 s") as caught:
                send("GET", f"http://127.0.0.1:{server.getsockname()[1]}/", timeout_s=0.2, body_bytes_max=100_000)
        finally:
            stopped.set()
            thread.join()
    assert isinstance(caught.value.__cause__, TimeoutError)
