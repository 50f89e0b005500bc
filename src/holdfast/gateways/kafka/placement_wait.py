"""Waits until a change is visible on this node: a new topic is served, a deleted one is gone. Always bounded.

A client that gets a topic without leaders retries with pauses of its own; a short wait here is cheaper. Other nodes may lag behind
for a moment, as in Kafka.
"""

from collections.abc import Callable, Iterable
from typing import Final

from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.leaders import nodes_of
from holdfast.kafka.special_offsets import NO_NODE

PLACED_WAIT_MS: Final = 5_000

_POLL_MS: Final = 20  # opening a partition notifies nobody


class PlacementWait:
    """Topics whose partitions should be served; partitions already seen are not checked again."""

    def __init__(self, backend: KafkaBackend, names: Iterable[str]) -> None:
        self._backend = backend
        self._left = list(names)
        self._number = 0

    def done(self) -> bool:
        """Whether every partition has a leader, and those led here are open, except for what is offline."""
        while self._left:
            topic = self._backend.cluster.topic(self._left[-1])
            if topic is None or not all(self._served(topic.name, n) for n in range(self._number, topic.partitions)):
                return False
            self._left.pop()
            self._number = 0
        return True

    def _served(self, name: str, number: int) -> bool:
        backend = self._backend
        held = backend.cluster.leader(name, number)
        if held is None or backend.cluster.offline(held) is None:  # for what is offline a moment is not enough
            leader, me = nodes_of(backend.cluster, held).leader, backend.me()
            ours = me is not None and leader == me.node
            if leader == NO_NODE or (ours and not backend.log.is_serving(name, number)):
                return False
        self._number = number + 1
        return True


async def wait_until_placed(backend: KafkaBackend, names: Iterable[str], wait_ms: float) -> bool:
    """Whether all partitions of these topics are served within `wait_ms`."""
    return await wait_until(backend, PlacementWait(backend, names).done, wait_ms)


async def wait_until(backend: KafkaBackend, condition: Callable[[], bool], wait_ms: float) -> bool:
    """Whether the condition about the cluster comes true within `wait_ms`."""
    clock = backend.clock
    deadline_ms = clock.boot_ms() + wait_ms
    while not condition():
        left_ms = deadline_ms - clock.boot_ms()
        if left_ms <= 0:
            return False
        await backend.cluster.changed.wait_ms(clock, min(left_ms, _POLL_MS))
    return True
