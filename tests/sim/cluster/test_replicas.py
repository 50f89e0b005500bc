"""Connections between simulated agents' replicas: in order, as bytes, and None for whatever a break leaves open."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import pytest

from holdfast.log.replication.messages import Answer, Request, Seal, Sealed
from holdfast.log.replication.network import OnAnswer
from holdfast.log.replication.positions import NOWHERE
from holdfast.log.replication.replica_host import ReplicaHost
from holdfast.sim.cluster.history import ClusterHistory
from holdfast.sim.cluster.loop import ClusterLoop
from holdfast.sim.cluster.replicas import ReplicaWires, SimReplicaNetwork
from holdfast.sim.network import NetworkConditions, NetworkLink
from holdfast.sim.process import RUNNING, SimClock, SimProcess
from holdfast.vocabulary.random import SeededRandom

PARTITION = (bytes(16), 0)


@dataclass
class SealedHost:
    """Seals whatever epoch it is asked for, at once."""

    wal_id: str
    taken: list[int] = field(default_factory=list)

    def handle(self, message: Request, sender: str, on_answer: OnAnswer) -> None:
        self.taken.append(message.epoch)
        on_answer(Sealed(partition=message.partition, epoch=message.epoch, base=NOWHERE, position=NOWHERE, epochs=()))

    def heard(self, wal_id: str, at_ms: int) -> None:
        pass


class Wired:
    """Two agents, ann and bob, whose connections are looked at as in a world."""

    def __init__(self) -> None:
        random = SeededRandom(1)
        self.loop = ClusterLoop(random, callbacks_max=100_000)
        history = ClusterHistory(self.loop, tracing=False)
        conditions = NetworkConditions(delay_ms=5, slow_ms=100, timeout_ms=500)
        wires = ReplicaWires(loop=self.loop, conditions=conditions, random=random, history=history, ttl_ms=2_000)
        self.answers: list[tuple[int, Answer | None]] = []
        self.ann, self.bob = (self._agent(name, wires) for name in ("ann", "bob"))

    def _agent(self, name: str, wires: ReplicaWires) -> tuple[SimReplicaNetwork, SealedHost, SimProcess, NetworkLink]:
        process, host, link = SimProcess(name, self.loop), SealedHost(name), NetworkLink()
        token = RUNNING.set(process)
        try:
            connect = wires.connect(link)
            network = connect(cast(ReplicaHost, host), None, clock=SimClock(self.loop, process))
        finally:
            RUNNING.reset(token)
        self.loop.create_task(network.run(), name=name)
        return network, host, process, link

    def run(self, duration_ms: float) -> None:
        self.loop.post_at(self.loop.now_ms + duration_ms, self.loop.stop)
        self.loop.run_forever()

    def send(self, epoch: int) -> None:
        message = Seal(partition=PARTITION, epoch=epoch, wal_id="bob")
        self.loop.call_soon(self.ann[0].send, "bob", message, lambda answer: self.answers.append((epoch, answer)))

    def close(self) -> None:
        for _, _, process, _ in (self.ann, self.bob):
            process.die()
        self.run(1)
        self.loop.close()


@pytest.fixture
def wired() -> Iterator[Wired]:
    wired = Wired()
    yield wired
    wired.close()


def test_messages_arrive_in_order_and_are_answered(wired: Wired) -> None:
    wired.run(200)
    for epoch in range(1, 30):
        wired.send(epoch)
    wired.run(50)
    assert wired.bob[1].taken == list(range(1, 30))
    assert {epoch for epoch, answer in wired.answers if isinstance(answer, Sealed)} == set(range(1, 30))


def test_what_cannot_be_sent_is_answered_with_none(wired: Wired) -> None:
    wired.bob[3].up = False
    wired.run(200)
    assert not wired.ann[0].is_connected("bob")
    wired.send(1)
    wired.run(1)
    assert wired.answers == [(1, None)]


def test_a_cut_leaves_what_was_sent_unanswered_until_it_is_seen(wired: Wired) -> None:
    wired.run(200)
    wired.send(1)
    wired.loop.call_soon(setattr, wired.bob[3], "up", False)
    wired.run(300)
    wired.send(2)
    assert wired.answers == []
    wired.run(500)
    assert wired.answers == [(1, None), (2, None)]
    wired.bob[3].up = True
    wired.run(300)
    wired.send(3)
    wired.run(50)
    assert isinstance(wired.answers[-1][1], Sealed)


def test_behind_a_lost_message_none_arrives(wired: Wired) -> None:
    wired.run(200)
    wired.loop.call_soon(setattr, wired.bob[3], "up", False)
    wired.send(1)
    wired.run(10)
    wired.loop.call_soon(setattr, wired.bob[3], "up", True)
    wired.send(2)
    wired.run(300)
    assert wired.bob[1].taken == []
    assert wired.answers == [(1, None), (2, None)]


def test_a_death_is_seen_at_once(wired: Wired) -> None:
    wired.run(200)
    wired.bob[2].die()
    wired.run(6)
    assert not wired.ann[0].is_connected("bob")
