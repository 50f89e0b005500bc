"""The cluster as a broker, in one process: which queues there are, and what is asked about them.

The one rule: what is known of a queue is forgotten when it is deleted here; one that was deleted elsewhere is found missing when it
is used, and created by the next declaration.
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

    def queue(self, queue: str, settings: TransportSettings, *, create: bool) -> HeapDescription | None:
        """The heap of a queue; None: there is none."""
        found = self._queues.get(queue)
        if found is None:
            found = self.heaps.call(self._queue(queue, settings, create))
            if found is not None:
                self._queues[queue] = found
        return found

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

    async def _check(self) -> None:
        try:
            await self.heaps.client.describe("celery")
        except UnknownTopicError:
            return

    async def _queue(self, queue: str, settings: TransportSettings, create: bool) -> HeapDescription | None:
        name, client = safe_name(settings.prefix, queue), self.heaps.client
        if create:
            return await client.create(
                name,
                partitions=settings.partitions,
                config=settings.heap_config,
                log=settings.queue_log,
                exist_ok=True,
            )
        try:
            return await client.describe(name)
        except UnknownTopicError:
            return None

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
