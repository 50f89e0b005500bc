"""Three real servers that serve text, on one store: SQLite, PostgreSQL, or an etcd member beside each of them.

Between nodes there are fault proxies, so that one of them can be cut off from the store and from the others; clients connect to the
nodes themselves. The one rule: whatever a scenario stops or cuts is whole again after it.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final, Protocol

from tests.chaos.links import Link, Links
from tests.support.etcd_nodes import EtcdNode, member_marker, start_all, stop_all, survives_kills
from tests.support.failpoints import FailpointFolder
from tests.support.server_process import ServeProcess
from tests.support.store_engines.postgres import PostgresServer
from tests.support.text_processes import BRISK, metrics, text_process

from holdfast.testing.server_process import free_port

NAMES: Final = ("ann", "bob", "cid")
ROTATION_ENTRIES: Final = 10
REQUEST_MS: Final = 5_000


class StoreOfNodes(Protocol):
    """How nodes reach the store."""

    kills: bool
    """Whether a node may be killed: an etcd that is known to forget entries then is stopped."""

    def node(self, directory: Path, name: str, options: tuple[str, ...], env: dict[str, str]) -> ServeProcess:
        """A node that is not started."""
        ...

    def cut(self, number: int) -> None:
        """Nothing passes between a node and the store, or its own member and the others."""
        ...

    def release(self) -> None:
        """All nodes reach it."""
        ...


class SqliteStore:
    """A file: nothing leads to it that could be cut."""

    kills = True

    def node(self, directory: Path, name: str, options: tuple[str, ...], env: dict[str, str]) -> ServeProcess:
        return text_process(directory, name, *options, env=env)

    def cut(self, number: int) -> None:
        raise NotImplementedError("a SQLite file cannot be cut off")

    def release(self) -> None:
        pass


class PostgresStore:
    """One server, which each node reaches by a link of its own."""

    kills = True

    def __init__(self, server: PostgresServer, links: Links) -> None:
        self._server, self._links = server, links
        self._to_store: list[Link] = []

    def node(self, directory: Path, name: str, options: tuple[str, ...], env: dict[str, str]) -> ServeProcess:
        link = self._links.to(self._server.port)
        self._to_store.append(link)
        url = self._server.url(schema="scenarios", port=link.port)
        return text_process(directory, name, *options, store=url, env=env)

    def cut(self, number: int) -> None:
        self._to_store[number].hold()

    def release(self) -> None:
        for link in self._to_store:
            link.release()


class EmbeddedEtcd:
    """A member beside each node, which reaches the store through it alone. Members reach each other by links."""

    def __init__(self, links: Links) -> None:
        self.kills = survives_kills()
        self._links = links
        self._nodes: list[EtcdNode] = []
        self._to_members: list[Link] = []

    def node(self, directory: Path, name: str, options: tuple[str, ...], env: dict[str, str]) -> ServeProcess:
        node = EtcdNode(directory, name, *BRISK, *options, env=env)
        link = self._links.to(int(node.peer.rpartition(":")[2]))
        node.options = tuple(each.replace("?unsafe=1", "?unsafe=1&members_every_ms=0") for each in node.options)
        node.options += ("--set", f"etcd.peer_advertise=127.0.0.1:{link.port}")
        node.joins = ",".join(each.peer for each in self._nodes)
        self._nodes.append(node)
        self._to_members.append(link)
        return node

    def cut(self, number: int) -> None:
        marker = member_marker(self._nodes[number].peer, self._nodes[number].name)
        for at, link in enumerate(self._to_members):
            link.hold(opening="" if at == number else marker)

    def release(self) -> None:
        for link in self._to_members:
            link.release()


class ScenarioCluster:
    """The nodes. Made by `running`."""

    def __init__(
        self, store: StoreOfNodes, nodes: list[ServeProcess], to_text: list[Link], failpoints: FailpointFolder
    ):
        self.store, self.nodes, self.failpoints = store, nodes, failpoints
        self._to_text = to_text

    @classmethod
    @contextmanager
    def running(cls, directory: Path, store: str) -> "Iterator[ScenarioCluster]":
        """Started, for the body."""
        with ExitStack() as stack:
            links = stack.enter_context(Links.running())
            engine = stack.enter_context(STORES[store](directory, links))
            failpoints = FailpointFolder(directory / "failpoints")
            env = {"WALRUS_MAX_SEGMENT_ENTRIES": str(ROTATION_ENTRIES), **failpoints.environment}
            nodes, to_text = [], []
            for name in NAMES:
                port = free_port()
                to_text.append(links.to(port))
                options = (
                    *("--set", f"text.request_ms={REQUEST_MS}", "--text", f"127.0.0.1:{port}"),
                    *("--advertise-text", f"127.0.0.1:{to_text[-1].port}"),
                )
                nodes.append(engine.node(directory, name, options, env))
                stack.callback(_killed, nodes[-1])
            start_all(*nodes)
            yield cls(engine, nodes, to_text, failpoints)

    def others(self, number: int) -> list[ServeProcess]:
        return [node for at, node in enumerate(self.nodes) if at != number]

    def end(self, node: ServeProcess) -> None:
        """Kill a node, or stop it if its store may not be killed."""
        if self.store.kills:
            node.kill()
        else:
            node.terminate()

    def restart(self) -> None:
        """End all nodes and start them again."""
        if self.store.kills:
            for node in self.nodes:
                node.kill()
        else:
            stop_all(*self.nodes)
        start_all(*self.nodes)

    def number_of(self, node_number: int) -> int:
        """The place in `nodes` of the node with this number."""
        return [self._node_number(node) for node in self.nodes].index(node_number)

    def _node_number(self, node: ServeProcess) -> int:
        return int(metrics(node)["node"])

    @contextmanager
    def cut_off(self, number: int) -> Iterator[None]:
        """A node reaches neither the store nor other nodes, nor they it, for the body."""
        mine = self._node_number(self.nodes[number])
        try:
            self.store.cut(number)
            for at, link in enumerate(self._to_text):
                link.hold(opening="VIA " if at == number else f"VIA {mine} ")
            yield
        finally:
            for link in self._to_text:
                link.release()
            self.store.release()


def _killed(node: ServeProcess) -> None:
    if hasattr(node, "process"):
        node.kill()


@contextmanager
def _sqlite(directory: Path, links: Links) -> Iterator[StoreOfNodes]:
    yield SqliteStore()


@contextmanager
def _postgres(directory: Path, links: Links) -> Iterator[StoreOfNodes]:
    with PostgresServer(directory / "postgres").running() as server:
        yield PostgresStore(server, links)


@contextmanager
def _etcd(directory: Path, links: Links) -> Iterator[StoreOfNodes]:
    yield EmbeddedEtcd(links)


STORES: Final[dict[str, Callable[[Path, Links], AbstractContextManager[StoreOfNodes]]]] = {
    "sqlite": _sqlite,
    "postgres": _postgres,
    "etcd": _etcd,
}
