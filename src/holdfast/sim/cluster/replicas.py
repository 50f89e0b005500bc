"""How simulated agents reach each other's replicas: a connection for each direction of each pair, which breaks and is made again.

The one rule: messages of a connection arrive in the order in which they were sent, each as its bytes. Behind one that was lost none
arrives: the connection is of no use any more, which is seen after a silence, or at once if the other process died. When it ends,
each message that has no answer gets None, and may have arrived all the same.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from holdfast.log.replication.messages import Answer, Request, decode, encode_parts
from holdfast.log.replication.network import OnAnswer, ReplicaListener
from holdfast.log.replication.replica_host import ReplicaHost
from holdfast.sim.cluster.history import ClusterHistory
from holdfast.sim.loop import SimLoop
from holdfast.sim.network import NetworkConditions, NetworkLink
from holdfast.sim.process import RUNNING, SimProcess
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import SeededRandom

LOOK_TTLS: Final = 0.1  # how often connections are looked at
SILENCE_TTLS: Final = 0.25  # after which one ends
DELAY_TTLS: Final = 0.0025  # one way, at most, normally


@dataclass(slots=True, eq=False)
class _Connection:
    """From one agent to another. `at_ms`: when the last message arrives."""

    to: "SimReplicaNetwork"
    at_ms: float = 0.0
    waiting: dict[int, OnAnswer] = field(default_factory=dict)
    silent_ms: float = 0.0
    stalled: bool = False  # something was lost
    broken: bool = False


class ReplicaWires:
    """The replicas of all agents, by the ids of their WALs."""

    def __init__(
        self,
        *,
        loop: SimLoop,
        conditions: NetworkConditions,
        random: SeededRandom,
        history: ClusterHistory,
        ttl_ms: int,
    ) -> None:
        self.look_ms, self.silence_ms, self.delay_ms = LOOK_TTLS * ttl_ms, SILENCE_TTLS * ttl_ms, DELAY_TTLS * ttl_ms
        self.loop, self.conditions, self.random, self.history = loop, conditions, random, history
        self.reached: dict[str, SimReplicaNetwork] = {}
        self.on_request: Callable[[SimReplicaNetwork, SimReplicaNetwork, Request], None] | None = (
            None  # before it is sent
        )

    def connect(self, link: NetworkLink) -> Callable[..., "SimReplicaNetwork"]:
        """What makes the network of an agent behind this link."""
        return partial(SimReplicaNetwork, wires=self, link=link)


class SimReplicaNetwork:
    """One agent's way to the replicas. A `RunningReplicaNetwork`."""

    def __init__(
        self, host: ReplicaHost, peers: object, *, clock: Clock, wires: ReplicaWires, link: NetworkLink
    ) -> None:
        process = RUNNING.get()
        assert process is not None
        self.process: SimProcess = process
        self.link, self._host, self._clock, self._wires = link, host, clock, wires
        self._context: Context = copy_context()
        self._connections: dict[str, _Connection] = {}
        self._listeners: dict[ReplicaListener, None] = {}
        self._sent = 0
        wires.reached[self.wal_id] = self
        process.on_death.append(self._gone)

    @property
    def wal_id(self) -> str:
        return self._host.wal_id

    def is_connected(self, wal_id: str) -> bool:
        return wal_id == self.wal_id or wal_id in self._connections

    def send(self, wal_id: str, message: Request, on_answer: OnAnswer) -> None:
        connection = self._connections.get(wal_id)
        if wal_id == self.wal_id:
            self._host.handle(message, wal_id, on_answer)
        elif connection is None:
            asyncio.get_running_loop().call_soon(on_answer, None)
        else:
            if self._wires.on_request is not None:
                self._wires.on_request(self, connection.to, message)
            self._sent = number = self._sent + 1
            connection.waiting[number] = on_answer
            self._post(connection, connection.to._arrive, b"".join(encode_parts(message)), self, connection, number)

    def listen(self, listener: ReplicaListener) -> Callable[[], None]:
        self._listeners[listener] = None
        return partial(self._listeners.pop, listener, None)

    async def run(self) -> None:
        """Look who can be reached, and tell leaders and replicas who is alive, until cancelled."""
        while True:
            self._look()
            await self._clock.sleep_ms(self._wires.look_ms)

    def _look(self) -> None:
        for wal_id, other in list(self._wires.reached.items()):
            connection = self._connections.get(wal_id)
            if other is self:
                continue
            if self._reaches(other):
                if connection is None or connection.to is not other or connection.stalled:
                    self._disconnect(wal_id)
                    self._connections[wal_id] = _Connection(other)
                    self._wires.history.note(self.process.name, f"is connected to {other.process.name}")
                    for listener in list(self._listeners):
                        listener.connected(wal_id)
                for listener in list(self._listeners):
                    listener.heard(wal_id)
                other._host.heard(self.wal_id, other._clock.boot_ms())
                self._connections[wal_id].silent_ms = 0.0
            elif connection is not None:
                connection.silent_ms += self._wires.look_ms
                if connection.silent_ms > self._wires.silence_ms:
                    self._disconnect(wal_id)
        for wal_id in [each for each in self._connections if each not in self._wires.reached]:
            self._disconnect(wal_id)
        for listener in list(self._listeners):
            listener.heard(self.wal_id)

    def _reaches(self, other: "SimReplicaNetwork") -> bool:
        return self.link.up and other.link.up and not other.process.dead and not other.process.paused

    def _disconnect(self, wal_id: str) -> None:
        connection = self._connections.pop(wal_id, None)
        if connection is None:
            return
        self._wires.history.count("replica connections lost")
        self._wires.history.note(self.process.name, f"has lost the connection to {connection.to.process.name}")
        connection.broken = True
        waiting, connection.waiting = connection.waiting, {}
        for on_answer in waiting.values():
            on_answer(None)
        for listener in list(self._listeners):
            listener.disconnected(wal_id)

    def _post(self, connection: _Connection, callback: Callable[..., object], *args: object) -> None:
        """Deliver after all that was sent before."""
        loop, draw = self._wires.loop, self._wires.random.random.random
        delay_ms = draw() * self._wires.delay_ms
        if draw() < self._wires.conditions.slow_share:
            delay_ms += draw() * self._wires.conditions.timeout_ms
        connection.at_ms = max(connection.at_ms, loop.now_ms + delay_ms)
        loop.post_at(connection.at_ms, connection.to.process.deliver, callback, *args)

    def _arrive(self, data: bytes, sender: "SimReplicaNetwork", connection: _Connection, number: int) -> None:
        """A message of another agent, at this one. What was sent before a connection broke may arrive after that."""
        if not (self.link.up and sender.link.up):
            connection.stalled = True
        if connection.stalled or (connection.broken and self._wires.random.random.random() < 0.5):
            connection.stalled = True
            return
        message = decode(data)
        assert isinstance(message, Request)
        self._context.copy().run(
            self._host.handle, message, sender.wal_id, partial(self._reply, sender, connection, number)
        )

    def _reply(self, sender: "SimReplicaNetwork", connection: _Connection, number: int, answer: Answer | None) -> None:
        data = None if answer is None else b"".join(encode_parts(answer))
        delay_ms = self._wires.random.random.random() * self._wires.delay_ms
        sender.process.deliver_in(delay_ms, sender._answered, connection, number, data)

    def _answered(self, connection: _Connection, number: int, data: bytes | None) -> None:
        if self.link.deaf or not (self.link.up and connection.to.link.up):
            connection.stalled = True
        if connection.broken or connection.stalled:
            return
        on_answer = connection.waiting.pop(number, None)
        if on_answer is not None:
            answer = None if data is None else decode(data)
            assert answer is None or isinstance(answer, Answer)
            self._context.copy().run(on_answer, answer)

    def _gone(self) -> None:
        """The process died, and its connections with it: the others see that at once."""
        if self._wires.reached.get(self.wal_id) is self:
            del self._wires.reached[self.wal_id]
        for other in list(self._wires.reached.values()):
            if self.link.up and other.link.up and self.wal_id in other._connections:
                other.process.deliver_in(
                    self._wires.delay_ms, other._context.copy().run, other._disconnect, self.wal_id
                )
