"""An address that is no ClickHouse: the error says so, and nothing of what that service answered."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.errors import ClickHouseError, ClickHouseUnreachableError

SECRET = "AKIA-the-instance-credentials"


@contextmanager
def answering(status: int, body: str, headers: dict[str, str] | None = None) -> Iterator[str]:
    """A server that gives every request this answer; its DSN."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", "0")))
            self.send_response(status, SECRET)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        do_GET = do_POST  # noqa: N815 (the module's name)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.mark.parametrize("status", [200, 301, 400, 401, 403, 404, 500, 503])
@pytest.mark.parametrize("body", [SECRET, f'{{"token": "{SECRET}"}}', f"{SECRET}\t{SECRET}\n" * 20, ""])
def test_nothing_of_its_answer_is_shown(status: int, body: str) -> None:
    with answering(status, body) as dsn, pytest.raises((ClickHouseError, ClickHouseUnreachableError)) as failed:
        ClickHouseClient(dsn, timeout_ms=60_000).value("SELECT version()")
    shown = f"{failed.value} {failed.value.args}"
    assert SECRET not in shown
    assert "this is no ClickHouse" in shown


def test_why_nobody_answers_is_shown() -> None:
    with answering(200, "") as dsn:
        pass
    with pytest.raises(ClickHouseUnreachableError, match=r"(?i)refused"):
        ClickHouseClient(dsn, timeout_ms=60_000).value("SELECT version()")


def test_what_clickhouse_says_is_shown() -> None:
    text = "Code: 516. DB::Exception: default: Authentication failed. (AUTHENTICATION_FAILED)"
    headers = {"X-ClickHouse-Exception-Code": "516"}
    with answering(403, text, headers) as dsn, pytest.raises(ClickHouseError, match="Authentication failed") as failed:
        ClickHouseClient(dsn, timeout_ms=60_000).value("SELECT version()")
    assert failed.value.code == 516
