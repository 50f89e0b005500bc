"""Agents' replicas on real WALs in one event loop, with links that can be cut: a `ReplicaNetwork` without sockets."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.wal import SMALL, opened

from holdfast.log.replication.messages import Answer, Request, decode, encode
from holdfast.log.replication.network import OnAnswer, ReplicaListener
from holdfast.log.replication.replica_host import ReplicaHost
from holdfast.log.replication.settings import ReplicaSettings
from holdfast.log.wal import WalDisk, WalSettings
from holdfast.vocabulary.clock import Clock, RealClock


class InProcessCluster:
    """Hosts by WAL id. Every two are linked until `cut`; what was under way then arrives, and its answer is None."""

    def __init__(self) -> None:
        self.networks: dict[str, InProcessNetwork] = {}
        self._cut: set[frozenset[str]] = set()

    def join(self, host: ReplicaHost) -> "InProcessNetwork":
        """The network of an agent with this host, reachable from now on."""
        network = self.networks[host.wal_id] = InProcessNetwork(self, host)
        for other in list(self.networks.values()):
            if other is not network and self.linked(host.wal_id, other.wal_id):
                other.changed(host.wal_id, connected=True)
        return network

    def leave(self, wal_id: str) -> None:
        """The agent is dead."""
        if self.networks.pop(wal_id, None) is None:
            return
        for other in list(self.networks.values()):
            other.changed(wal_id, connected=False)

    def linked(self, one: str, other: str) -> bool:
        reachable = one in self.networks and other in self.networks
        return reachable and frozenset((one, other)) not in self._cut

    def cut(self, one: str, other: str) -> None:
        self._cut.add(frozenset((one, other)))
        for here, there in ((one, other), (other, one)):
            if here in self.networks:
                self.networks[here].changed(there, connected=False)

    def heal(self, one: str, other: str) -> None:
        self._cut.discard(frozenset((one, other)))
        for here, there in ((one, other), (other, one)):
            if self.linked(here, there):
                self.networks[here].changed(there, connected=True)

    def isolate(self, wal_id: str) -> None:
        """Cut all links of an agent."""
        for other in list(self.networks):
            if other != wal_id:
                self.cut(wal_id, other)

    def heartbeat(self) -> None:
        """Every connection is alive."""
        for network in self.networks.values():
            network.heartbeat()


class InProcessNetwork:
    """One agent's way to the replicas. A `ReplicaNetwork`. Messages and answers are encoded, as between processes."""

    def __init__(self, cluster: InProcessCluster, host: ReplicaHost) -> None:
        self.host, self.wal_id = host, host.wal_id
        self.sent: list[tuple[str, Request]] = []
        self._cluster = cluster
        self._listeners: list[ReplicaListener] = []
        self._pending: dict[str, list[_Exchange]] = {}

    def is_connected(self, wal_id: str) -> bool:
        return wal_id == self.wal_id or self._cluster.linked(self.wal_id, wal_id)

    def send(self, wal_id: str, message: Request, on_answer: OnAnswer) -> None:
        self.sent.append((wal_id, message))
        if wal_id == self.wal_id:
            self.host.handle(message, self.wal_id, on_answer)
            return
        exchange = _Exchange(on_answer)
        if not self.is_connected(wal_id):
            exchange.end(None)
            return
        self._pending.setdefault(wal_id, []).append(exchange)
        asyncio.get_running_loop().call_soon(self._deliver, wal_id, encode(message), exchange)

    def listen(self, listener: ReplicaListener) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def changed(self, wal_id: str, *, connected: bool) -> None:
        for exchange in self._pending.pop(wal_id, []):
            exchange.end(None)
        for listener in list(self._listeners):
            if connected:
                listener.connected(wal_id)
            else:
                listener.disconnected(wal_id)

    def heartbeat(self) -> None:
        for wal_id in self._cluster.networks:
            if self.is_connected(wal_id):
                for listener in list(self._listeners):
                    listener.heard(wal_id)

    def _deliver(self, wal_id: str, data: bytes, exchange: "_Exchange") -> None:
        """It arrives, though its answer may be lost: a message under way is not taken back by a cut."""
        there = self._cluster.networks.get(wal_id)
        message = decode(data)
        assert isinstance(message, Request)
        if there is not None:
            there.host.handle(message, self.wal_id, lambda answer: self._answered(answer, exchange))

    def _answered(self, answer: Answer | None, exchange: "_Exchange") -> None:
        if answer is None:
            exchange.end(None)
            return
        decoded = decode(encode(answer))
        assert isinstance(decoded, Answer)
        exchange.end(decoded)


class _Exchange:
    """A message and its one answer, later in the loop."""

    def __init__(self, on_answer: OnAnswer) -> None:
        self._on_answer: OnAnswer | None = on_answer

    def end(self, answer: Answer | None) -> None:
        on_answer, self._on_answer = self._on_answer, None
        if on_answer is not None:
            asyncio.get_running_loop().call_soon(on_answer, answer)


@asynccontextmanager
async def hosted(
    directory: Path,
    wal_id: str,
    *,
    clock: Clock | None = None,
    settings: ReplicaSettings | None = None,
    wal_settings: WalSettings = SMALL,
    disk: WalDisk | None = None,
    seed: int = 1,
) -> AsyncIterator[ReplicaHost]:
    """A host on the WAL in `directory`."""
    clock = clock or RealClock()
    async with (
        opened(directory, settings=wal_settings, disk=disk, seed=seed, clock=clock) as wal,
        ReplicaHost.open(wal, wal_id, clock=clock, settings=settings) as host,
    ):
        yield host


@asynccontextmanager
async def in_process_agent(
    cluster: InProcessCluster, directory: Path, wal_id: str, **options: object
) -> AsyncIterator[InProcessNetwork]:
    """An agent's host, joined to the cluster for the body. Leaving is its death: what it had not answered is not."""
    async with hosted(directory, wal_id, **options) as host:  # type: ignore[arg-type]
        network = cluster.join(host)
        try:
            yield network
        finally:
            cluster.leave(host.wal_id)
