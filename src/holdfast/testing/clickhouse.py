"""The embedded ClickHouse for tests: the real process, on a free port, with a random password.

Its methods block; from async code call them with `asyncio.to_thread`.
"""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from holdfast.testing.server_process import ServerProcess
from holdfast.vocabulary.random import SystemRandom


class ClickHouseServer(ServerProcess):
    """`holdfast clickhouse` on `directory`."""

    name = "clickhouse"

    def __init__(self, directory: Path, *, user: str = "tester", options: Sequence[str] = ()) -> None:
        super().__init__(directory)
        self.host, self.user, self.password = "127.0.0.1", user, SystemRandom().token()
        self._options = options
        self._password_file = directory / "clickhouse-password"

    def argv(self) -> list[str]:
        """The command line that serves `self.data` on `self.port`."""
        return [
            *(sys.executable, "-m", "holdfast", "clickhouse", "--data", str(self.data), "--user", self.user),
            *("--listen", f"{self.host}:{self.port}", "--password-file", str(self._password_file), *self._options),
        ]

    def prepare(self) -> None:
        """Create the directory and the password file."""
        super().prepare()
        self._password_file.write_text(self.password + "\n")

    def ready(self) -> bool:
        """Whether it responds."""
        try:
            with urlopen(f"http://{self.host}:{self.port}/ping", timeout=5) as response:
                return bool(response.read() == b"Ok.\n")
        except (URLError, OSError):
            return False

    @property
    def url(self) -> str:
        """With user and password."""
        return f"http://{quote(self.user)}:{quote(self.password)}@{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """Process id of the server."""
        assert self._process is not None
        return self._process.pid

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        assert self._process is not None
        process, self._process = self._process, None
        os.kill(process.pid, signal.SIGTERM)
        return process.wait()

    def query(self, statement: str | bytes, body: bytes = b"", **parameters: str) -> bytes:
        """Run a statement, with the data of an insert as `body`, over plain HTTP; an error is an `HTTPError`."""
        text = statement.encode() if isinstance(statement, str) else statement
        headers = {"X-ClickHouse-User": self.user, "X-ClickHouse-Key": self.password}
        if body:
            parameters["query"] = text.decode()
        request = Request(
            f"http://{self.host}:{self.port}/?{urlencode(parameters)}",
            data=body or text,
            headers=headers,
            method="POST",
        )
        with urlopen(request, timeout=120) as response:
            return bytes(response.read())


@contextmanager
def clickhouse_server(path: Path, *, user: str = "tester", options: Sequence[str] = ()) -> Iterator[ClickHouseServer]:
    """A running server in `path`, for the body."""
    path.mkdir(parents=True, exist_ok=True)
    with ClickHouseServer(path, user=user, options=options).running() as server:
        yield server
