"""What leaders ask of each other, and the operator of dead letters: messages that move, enqueues of before a growth, replays.

The one rule: as calls of clients, these get lost, and are asked again by whoever needs them.
"""

from collections.abc import Sequence
from typing import Final

from holdfast.heap.dead_letters import DeadLetterFilter, DeadLetters
from holdfast.heap.growth.growing_partition import GrowingPartition
from holdfast.heap.growth.look_up import Found, LookUp
from holdfast.heap.message_id import parse_message_id
from holdfast.heap.model import Enqueued, NewMessage
from holdfast.sim.heap.driven.clients import DrivenCluster, SimClients
from holdfast.sim.heap.driven.history import EnqueueAnswered
from holdfast.sim.heap.driven.topic import LETTERS, TOPIC, TOPIC_ID, place_of
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.tasks import LoopTurns

_REPLAY_MS: Final = (20.0, 300.0)


class SimPartitions:
    """The leaders of all partitions. Implements `heap.growth.EarlierPartitions`, and is where messages that move go."""

    def __init__(self, cluster: DrivenCluster, clients: SimClients) -> None:
        self._cluster, self._clients = cluster, clients
        self._letters = cluster.configuration.features.letters

    async def look_up(self, topic: str, partition: int, look_up: LookUp) -> Found:
        found: Found = await self._clients.call(partition, lambda view: view.look_up(look_up))
        return found

    async def deliver(self, topic: str, partition: int, messages: Sequence[NewMessage]) -> object:
        """Enqueue messages that were moved."""
        place = place_of(topic, partition, self._letters)

        async def enqueue(view: GrowingPartition) -> list[Enqueued]:
            found = await view.enqueue(messages)
            if place < LETTERS:
                for message, each in zip(messages, found, strict=True):
                    if each.duplicate:  # a mover's are known by the newest alone: the answer names that one
                        continue
                    offset = parse_message_id(bytes.fromhex(TOPIC_ID), each.message_id).offset
                    now_ms = self._clients.now_ms
                    self._cluster.add(EnqueueAnswered(now_ms, place, offset, message.payload, False))
            return found

        return await self._clients.call(place, enqueue)


class SimOperator:
    """Replays dead letters, now and then, until all are done."""

    def __init__(self, cluster: DrivenCluster, clock: Clock) -> None:
        self._cluster, self._network = cluster, cluster.network
        self._letters = DeadLetters(self._led, clock=clock, turns=LoopTurns())

    async def run(self) -> None:
        """Until the world ends."""
        random = self._network.random
        while True:
            await self._network.sleep_ms(random.uniform(*_REPLAY_MS))
            chosen = DeadLetterFilter(limit=random.choice((None, 1, 2)))
            try:
                await self._letters.replay(TOPIC, chosen)
            except HoldfastError:
                continue

    async def _led(self, topic: str, partition: int | None) -> list[GrowingPartition]:
        count = self._cluster.configuration.features.letters
        return [self._cluster.leader(LETTERS + number).open_view() for number in range(count)]
