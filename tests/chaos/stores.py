"""The coordination stores of a chaos run: where an agent reaches one, and what can be done to it."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Protocol

from tests.chaos.embedded_members import EmbeddedMembers
from tests.chaos.links import Links
from tests.chaos.store_access import StoreAccess
from tests.support.store_engines import etcd, postgres


class ChaosStore(Protocol):
    """A store that agents reach over links of their own."""

    @property
    def direct_url(self) -> str:
        """For commands, past all links."""
        ...

    def access(self, links: Links, name: str) -> StoreAccess:
        """How an agent reaches it."""
        ...

    def start_options(self, name: str, *, lost_disk: bool) -> tuple[str, ...]:
        """What an agent's next start needs on its command line."""
        ...

    def before_kill(self, name: str) -> None:
        """The agent is about to be killed."""
        ...

    def restart(self) -> None:
        """As a crash and a supervisor would do it; of several members, one."""
        ...

    def pause(self) -> AbstractContextManager[None]:
        """Nobody gets an answer, for the body."""
        ...

    def member_cut_off(self, name: str) -> AbstractContextManager[None]:
        """The agent's own member and the others do not reach each other, for the body."""
        ...


class _WithoutMembers:
    """A store beside which agents run nothing."""

    def start_options(self, name: str, *, lost_disk: bool) -> tuple[str, ...]:
        return ()

    def before_kill(self, name: str) -> None:
        pass

    def member_cut_off(self, name: str) -> AbstractContextManager[None]:
        raise NotImplementedError("agents have no members")


class SqliteFile(_WithoutMembers):
    """One file. It has no connections to cut, and no process to restart: it is locked instead, as by a writer that hangs."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "store.db"
        self.direct_url = f"sqlite:///{self._path}"

    def access(self, links: Links, name: str) -> StoreAccess:
        return StoreAccess(self.direct_url, [])

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


class PostgresStore(_WithoutMembers):
    """One server, killed and started again."""

    def __init__(self, server: postgres.PostgresServer) -> None:
        self._server = server
        self.direct_url = server.url(schema="chaos")

    def access(self, links: Links, name: str) -> StoreAccess:
        link = links.to(self._server.port)
        return StoreAccess(self._server.url(schema="chaos", port=link.port), [link])

    def restart(self) -> None:
        self._server.restart()

    @contextmanager
    def pause(self) -> Iterator[None]:
        self._server.freeze()
        try:
            yield
        finally:
            self._server.thaw()


class EtcdCluster(_WithoutMembers):
    """Three members; each in turn is killed and started again."""

    def __init__(self, members: list[etcd.EtcdServer]) -> None:
        self._members, self._turn = members, 0
        self.direct_url = self._url([each.port for each in members])

    def _url(self, ports: list[int]) -> str:
        return f"etcd://{','.join(f'127.0.0.1:{port}' for port in ports)}/chaos"

    def access(self, links: Links, name: str) -> StoreAccess:
        to_members = [links.to(each.port) for each in self._members]
        return StoreAccess(self._url([each.port for each in to_members]), to_members)

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


@contextmanager
def _embedded(directory: Path) -> Iterator[ChaosStore]:
    yield EmbeddedMembers(directory)


STORES: Final[dict[str, Callable[[Path], AbstractContextManager[ChaosStore]]]] = {
    "sqlite": _sqlite,
    "postgres": _postgres,
    "etcd": _etcd,
    "embedded": _embedded,
}
