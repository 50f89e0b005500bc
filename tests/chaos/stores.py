"""The coordination stores of a chaos run: where an agent reaches one, and what can be done to it."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Protocol

from tests.chaos.links import Link, Links
from tests.support.store_engines import etcd, postgres


class ChaosStore(Protocol):
    """A store that agents reach over links of their own. `direct_url`: for commands, past all links."""

    direct_url: str

    def url(self, links: Links) -> tuple[str, list[Link]]:
        """An agent's URL, and what it goes through: nothing for a file."""
        ...

    def restart(self) -> None:
        """As a crash and a supervisor would do it; of several members, one."""
        ...

    def pause(self) -> AbstractContextManager[None]:
        """Nobody gets an answer, for the body."""
        ...


class SqliteFile:
    """One file. It has no connections to cut, and no process to restart: it is locked instead, as by a writer that hangs."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "store.db"
        self.direct_url = f"sqlite:///{self._path}"

    def url(self, links: Links) -> tuple[str, list[Link]]:
        return self.direct_url, []

    def restart(self) -> None:
        with self.pause():
            threading.Event().wait(1)

    @contextmanager
    def pause(self) -> Iterator[None]:
        with sqlite3.connect(self._path, isolation_level=None, timeout=30) as writer:
            writer.execute("BEGIN IMMEDIATE")
            try:
                yield
            finally:
                writer.execute("ROLLBACK")
        writer.close()


class PostgresStore:
    """One server, killed and started again."""

    def __init__(self, server: postgres.PostgresServer) -> None:
        self._server = server
        self.direct_url = server.url(schema="chaos")

    def url(self, links: Links) -> tuple[str, list[Link]]:
        link = links.to(self._server.port)
        return self._server.url(schema="chaos", port=link.port), [link]

    def restart(self) -> None:
        self._server.restart()

    @contextmanager
    def pause(self) -> Iterator[None]:
        self._server.freeze()
        try:
            yield
        finally:
            self._server.thaw()


class EtcdCluster:
    """Three members; each in turn is killed and started again."""

    def __init__(self, members: list[etcd.EtcdServer]) -> None:
        self._members, self._turn = members, 0
        self.direct_url = self._url([each.port for each in members])

    def _url(self, ports: list[int]) -> str:
        return f"etcd://{','.join(f'127.0.0.1:{port}' for port in ports)}/chaos"

    def url(self, links: Links) -> tuple[str, list[Link]]:
        to_members = [links.to(each.port) for each in self._members]
        return self._url([each.port for each in to_members]), to_members

    def restart(self) -> None:
        self._members[self._turn % len(self._members)].restart()
        self._turn += 1

    @contextmanager
    def pause(self) -> Iterator[None]:
        for member in self._members[:2]:  # without a majority there is no answer
            member.freeze()
        try:
            yield
        finally:
            for member in self._members[:2]:
                member.thaw()


@contextmanager
def _sqlite(directory: Path) -> Iterator[ChaosStore]:
    yield SqliteFile(directory)


@contextmanager
def _postgres(directory: Path) -> Iterator[ChaosStore]:
    with postgres.PostgresServer(directory / "postgres").running() as server:
        yield PostgresStore(server)


@contextmanager
def _etcd(directory: Path) -> Iterator[ChaosStore]:
    with etcd.cluster(directory / "etcd") as members:
        yield EtcdCluster(members)


STORES: Final[dict[str, Callable[[Path], AbstractContextManager[ChaosStore]]]] = {
    "sqlite": _sqlite,
    "postgres": _postgres,
    "etcd": _etcd,
}
