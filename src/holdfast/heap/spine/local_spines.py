"""The spines one process owns, session after session, and pops of heaps with several partitions wherever their spine is.

Implements `agent.lease_handlers.LeaseHandlerFactory`.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

from holdfast.contracts.store import Store
from holdfast.heap.model import PoppedMessage
from holdfast.heap.spine.driver import Leaders, SpineDriver
from holdfast.heap.spine.keys import spine_resource, spine_shard_of
from holdfast.heap.spine.lease_handler import SpineLeaseHandler
from holdfast.kernel.session import HeldSession
from holdfast.log.topics import Topic
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import Random

_RETRY_MS: Final = 50
_FORWARDED_WAIT_MS: Final = 500  # of one request to another agent


class SpineNetwork(Protocol):
    """The way to leaders and spines of other agents."""

    def leaders(self, topic: Topic) -> Leaders:
        """The leaders of a heap's partitions."""
        ...

    async def pop(
        self, resource: str, topic: Topic, *, count: int, consumer: str, visibility_ms: int, wait_ms: float
    ) -> list[PoppedMessage]:
        """A pop at the owner of a shard. `UnavailableError`: it cannot be reached, and nothing was popped for certain."""
        ...


class LocalSpines:
    """Runs spines for as long as there is a session."""

    def __init__(
        self,
        network: SpineNetwork,
        *,
        store: Store,
        clock: Clock,
        random: Random,
        shards: int,
        topics: Callable[[], Sequence[Topic]],
        topic: Callable[[str], Topic | None],
    ) -> None:
        self._network, self._store, self._clock, self._random = network, store, clock, random
        self._shards_wanted, self._topics, self._topic = shards, topics, topic
        self._handler: SpineLeaseHandler | None = None

    # ── sessions ──

    async def prepare(self) -> None:
        """Nothing to do: spines have no state."""

    async def start(self, session: HeldSession) -> SpineLeaseHandler:
        """Serve the shards that come."""
        self._handler = SpineLeaseHandler(
            store=self._store,
            session=session,
            clock=self._clock,
            random=self._random,
            shards_wanted=self._shards_wanted,
            topics=self._topics,
            leaders=self._network.leaders,
        )
        return self._handler

    def stop(self) -> None:
        """Own nothing."""
        self._handler = None

    def topics_changed(self, names: Collection[str]) -> None:
        """Heaps were created, altered or deleted."""
        if self._handler is not None:
            self._handler.topics_changed(names)

    # ── pops ──

    def driver(self, topic: Topic) -> SpineDriver | None:
        """The spine of a heap, if it runs here."""
        return None if self._handler is None else self._handler.driver(topic)

    def resource(self, topic: Topic) -> str | None:
        """The lease of the shard in which a heap's spine is; None: that is not known yet."""
        shards = self._handler.shards if self._handler is not None else 0
        return spine_resource(spine_shard_of(topic.name, shards)) if shards else None

    async def pop(
        self, topic: Topic, *, count: int, consumer: str, visibility_ms: int, wait_ms: float
    ) -> list[PoppedMessage]:
        """Lease messages of a heap, each within its rank bound; none after `wait_ms` without any.

        While there is no spine, or it has no leader to pop from, this waits, and is no error. `UnavailableError`: the heap was
        deleted meanwhile; there may be another one of its name.
        """
        deadline_ms = self._clock.boot_ms() + wait_ms
        while True:
            left_ms = max(0.0, deadline_ms - self._clock.boot_ms())
            driver = self.driver(topic)
            try:
                if driver is not None:
                    return await driver.pop(
                        count=count, consumer=consumer, visibility_ms=visibility_ms, wait_ms=left_ms
                    )
                resource = self.resource(topic)
                if resource is None:
                    raise UnavailableError(f"spine of heap {topic.name}", "it is not placed yet")
                found = await self._network.pop(
                    resource,
                    topic,
                    count=count,
                    consumer=consumer,
                    visibility_ms=visibility_ms,
                    wait_ms=min(left_ms, _FORWARDED_WAIT_MS),
                )
                if found or left_ms <= _FORWARDED_WAIT_MS:
                    return found
            except UnavailableError:
                if left_ms <= 0:
                    return []
                await self._clock.sleep_ms(min(left_ms, _RETRY_MS))
            known = self._topic(topic.name)
            if known is None or known.id != topic.id:
                raise UnavailableError(f"heap {topic.name}", "it was deleted")
