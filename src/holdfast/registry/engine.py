"""ConsumerEngine: one consumer of the registry that calls a handler for each message of its partitions.

The one rule: in this process, no two handlers of one partition run at once, not even one that was abandoned and its successor.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Final, cast

from holdfast.registry.claim_loop import ClaimLoop
from holdfast.registry.delivery import AsyncHandler, Delivery, Handler, MessageSource, ThreadDelivery, ThreadHandler
from holdfast.registry.handler_thread import HandlerThread
from holdfast.registry.member import RegistryMember
from holdfast.registry.model import Assignment, DeliveryFailure
from holdfast.registry.partition_loop import LoopComponents, PartitionLoop
from holdfast.registry.settings import EngineSettings
from holdfast.registry.store import RegistryStore
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

_log: Final = logging.getLogger(__name__)


class ConsumerEngine(RegistryMember):
    """Delivers the messages of this consumer's partitions to its handler. See `docs/registry.md` for what is promised."""

    def __init__(
        self,
        registry: RegistryStore,
        consumer: str,
        *,
        source: MessageSource,
        handler: Handler,
        clock: Clock,
        random: Random,
        settings: EngineSettings | None = None,
        on_failure: Callable[[DeliveryFailure], None] | None = None,
    ) -> None:
        super().__init__(registry, consumer, clock=clock, random=random)
        self._handler, self._in_threads = handler, not _is_async(handler)
        self._components = LoopComponents(
            registry=registry,
            source=source,
            call_handler=self._call_in_thread if self._in_threads else cast(AsyncHandler, handler),
            on_failure=on_failure or _log_failure,
            settings=settings or EngineSettings(),
            clock=clock,
            random=random,
        )
        self._threads: dict[int, HandlerThread] = {}

    def _open_loop(self, assignment: Assignment) -> PartitionLoop:
        return PartitionLoop(assignment, self._components)

    def _close_handlers(self) -> None:
        threads, self._threads = self._threads, {}
        for thread in threads.values():
            thread.close()

    async def _when_free(self, number: int, held: ClaimLoop | None) -> None:
        await super()._when_free(number, held)
        if number in self._threads:
            await self._threads[number].idle.wait()

    async def _call_in_thread(self, delivery: Delivery) -> None:
        number = delivery.message.partition
        loop = asyncio.get_running_loop()
        thread = self._threads.get(number)
        if thread is None:
            thread = self._threads[number] = HandlerThread(f"{self.consumer}-{number}", loop)
        handler = cast(ThreadHandler, self._handler)
        given = ThreadDelivery(delivery.message, delivery.epoch, delivery.attempt, delivery.claim, loop)
        await thread.call(lambda: handler(given))


def _is_async(handler: Handler) -> bool:
    call = getattr(handler, "__call__", None)  # noqa: B004 - an object may have an async __call__
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)


def _log_failure(failure: DeliveryFailure) -> None:
    _log.error(
        "%s: partition %d, offset %d, attempt %d%s",
        failure.consumer,
        failure.partition,
        failure.offset,
        failure.attempt,
        ": giving the partition up" if failure.gave_up else "",
        exc_info=failure.error,
    )
