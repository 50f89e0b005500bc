"""The embedded ClickHouse as tests have it: the real process, on a free port, with a password nobody knows.

Its methods block; from async code call them with `asyncio.to_thread`.
"""

import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.error import URLError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from holdfast.testing.server_process import ServerProcess
from holdfast.vocabulary.random import SystemRandom

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class ClickHouseServer(ServerProcess):
    """`holdfast clickhouse` on `directory`, started, killed, paused and started again."""

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
        """Make the directory, and a file with the password."""
        super().prepare()
        self._password_file.write_text(self.password + "\n")

    def ready(self) -> bool:
        """Whether it answers."""
        try:
            with urlopen(f"http://{self.host}:{self.port}/ping", timeout=5) as answer:
                return bool(answer.read() == b"Ok.\n")
        except (URLError, OSError):
            return False

    @property
    def url(self) -> str:
        """With the name and the password in it."""
        return f"http://{quote(self.user)}:{quote(self.password)}@{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """Of the process that serves."""
        assert self._process is not None
        return self._process.pid

    def pause(self) -> None:
        """SIGSTOP."""
        self.freeze()

    def resume(self) -> None:
        """SIGCONT."""
        self.thaw()

    def stop(self) -> int:
        """SIGTERM; the exit code once it is gone."""
        assert self._process is not None
        process, self._process = self._process, None
        os.kill(process.pid, signal.SIGTERM)
        return process.wait()

    def ask(self, statement: str | bytes, body: bytes = b"", **parameters: str) -> bytes:
        """A statement, and behind it an insert's data, over plain HTTP; an error is an `HTTPError`."""
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
        with urlopen(request, timeout=120) as answer:
            return bytes(answer.read())


@contextmanager
def clickhouse_server(path: Path, *, user: str = "tester", options: Sequence[str] = ()) -> Iterator[ClickHouseServer]:
    """A running server on `path`, for the body."""
    path.mkdir(parents=True, exist_ok=True)
    with ClickHouseServer(path, user=user, options=options).running() as server:
        yield server
