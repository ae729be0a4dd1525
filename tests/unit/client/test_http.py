from __future__ import annotations

import threading
import urllib.error
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from bkctl.client.http import opener


class Redirects(BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(int(self.path[1:]))
        self.send_header("Location", "/200")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def redirects() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), Redirects) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(redirects: int, status: int) -> None:
    Redirects.asked.clear()
    with pytest.raises(urllib.error.HTTPError) as caught:
        opener().open(f"http://127.0.0.1:{redirects}/{status}", timeout=5)
    caught.value.close()
    assert (caught.value.code, Redirects.asked) == (status, [f"/{status}"])


def test_other_schemes_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("secret")
    for url in ((tmp_path / "x").as_uri(), "ftp://127.0.0.1/x", "data:,x"):
        with pytest.raises(urllib.error.URLError, match="unknown url type"):
            opener().open(url, timeout=5)
