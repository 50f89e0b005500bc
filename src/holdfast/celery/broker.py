"""The cluster as a broker, in one process: which queues there are, and what is asked about them.

The one rule: only who publishes relies on what is known of a queue, and finds out when it was deleted elsewhere; who declares it,
or asks whether there is one, asks the cluster.
"""

from holdfast.celery.exchanges import Exchanges
from holdfast.celery.messages import safe_name
from holdfast.celery.settings import TransportSettings
from holdfast.heap.administration import HeapDescription
from holdfast.heaps.background import BackgroundHeaps
from holdfast.log.topics import UnknownTopicError

_PURGE_MAX = 500
_PLACED_S = 20.0


class CeleryBroker:
    """One per process, cluster and prefix."""

    def __init__(self, heaps: BackgroundHeaps, prefix: str) -> None:
        self.heaps = heaps
        self.exchanges = Exchanges(heaps, prefix)
        self._queues: dict[str, HeapDescription] = {}

    def check(self, timeout: float) -> None:
        """Whether the cluster answers. `TimeoutError`, `UnavailableError`."""
        self.heaps.call(self._check(), timeout)

    def declare(self, queue: str, settings: TransportSettings) -> HeapDescription:
        """The heap of a queue, created if there is none."""
        return self.heaps.call(self.declared(queue, settings))

    def find(self, queue: str, settings: TransportSettings) -> HeapDescription | None:
        """The heap of a queue; None: there is none."""
        return self.heaps.call(self._find(queue, settings))

    def known(self, queue: str, settings: TransportSettings) -> HeapDescription | None:
        """The heap of a queue, which may have been deleted since; None: there is none."""
        return self._queues.get(queue) or self.find(queue, settings)

    def delete_queue(self, queue: str, settings: TransportSettings) -> None:
        """Delete the heap of a queue, if there is one."""
        self._queues.pop(queue, None)
        self.heaps.call(self._delete(safe_name(settings.prefix, queue)))

    def ready(self, queue: str, settings: TransportSettings) -> int:
        """How many messages wait."""
        return self.heaps.call(self._ready(safe_name(settings.prefix, queue)))

    def purge(self, queue: str, settings: TransportSettings) -> int:
        """Remove what waits; how many there were."""
        return self.heaps.call(self._purge(safe_name(settings.prefix, queue)))

    async def declared(self, queue: str, settings: TransportSettings) -> HeapDescription:
        """See `declare`; on the thread of leases."""
        found = self._queues[queue] = await self.heaps.client.create(
            safe_name(settings.prefix, queue),
            partitions=settings.partitions,
            config=settings.heap_config,
            log=settings.queue_log,
            exist_ok=True,
        )
        return found

    async def _check(self) -> None:
        try:
            await self.heaps.client.describe("celery")
        except UnknownTopicError:
            return

    async def _find(self, queue: str, settings: TransportSettings) -> HeapDescription | None:
        try:
            found = self._queues[queue] = await self.heaps.client.describe(safe_name(settings.prefix, queue))
        except UnknownTopicError:
            self._queues.pop(queue, None)
            return None
        return found

    async def _delete(self, heap: str) -> None:
        try:
            client = self.heaps.client  # who deletes a queue has said so
            await client.delete(heap, confirmation_token=await client.confirm("heap.delete", heap))
        except UnknownTopicError:
            return

    async def _ready(self, heap: str) -> int:
        try:
            return sum(each.ready for each in await self.heaps.client.stats(heap))
        except UnknownTopicError:
            return 0

    async def _purge(self, heap: str) -> int:
        count = 0
        while popped := await self.heaps.client.pop(heap, max_messages=_PURGE_MAX):
            for message in popped:
                await message.ack()
            count += len(popped)
        return count


def broker_of(heaps: BackgroundHeaps, prefix: str) -> CeleryBroker:
    """This process's broker."""
    found: CeleryBroker = heaps.loop.resources.setdefault(
        ("broker", heaps.bootstrap, prefix), CeleryBroker(heaps, prefix)
    )
    return found
