"""PartitionLoop: one partition in one consumer, from assignment to revocation.

The one rule: the heartbeat comes from here, between messages, so that a stuck handler loses its partition although its
process lives. In turn: renew if due, read the message at the cursor, call the handler, move the checkpoint under the epoch of
the assignment. Any refusal ends the loop. At least once: what was handled but not checkpointed is handled again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from holdfast.registry.claim_loop import ClaimLoop
from holdfast.registry.delivery import Delivery, MessageSource
from holdfast.registry.model import Assignment, DeliveryFailure, Message
from holdfast.registry.settings import EngineSettings
from holdfast.registry.store import RegistryStore
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import Random, backoff_ms

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopComponents:
    """What all loops of an engine share. `call_handler` runs the handler, in a task or a thread."""

    registry: RegistryStore
    source: MessageSource
    call_handler: Callable[[Delivery], Awaitable[None]]
    on_failure: Callable[[DeliveryFailure], None]
    settings: EngineSettings
    clock: Clock
    random: Random


class PartitionLoop(ClaimLoop):
    """Delivers one message after the other to the handler."""

    def __init__(self, assignment: Assignment, parts: LoopComponents) -> None:
        super().__init__(
            assignment, parts.registry, drain_ms=parts.settings.drain_ms, clock=parts.clock, random=parts.random
        )
        self.cursor = assignment.checkpoint
        self._components = parts

    async def _work(self) -> None:
        while not self.stopped and await self._step():
            pass

    async def _step(self) -> bool:
        """One message, through all its attempts. False: the loop is over."""
        for attempt in range(1, self._components.settings.attempts_max + 1):
            ready = await self._ready()
            if ready is None:
                return False
            try:
                message = self._checked(ready.result())
                await self._components.call_handler(Delivery(message, self.assignment.epoch, attempt, self))
            except Exception as error:
                self._report(attempt, error)
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                self._report(attempt, error)  # the handler awaited something cancelled: a failure of its own
            else:
                return await self._checkpoint(message)
            if not await self._pause(backoff_ms(attempt - 1, **self._retry(), random=self._components.random)):
                return False
        # Expire it now instead of after the TTL: it then goes to another consumer if there is one.
        await self._retry_until_answered(
            lambda: self._components.registry.expire_claim(self.assignment.partition, self.assignment.epoch)
        )
        return False

    async def _ready(self) -> "asyncio.Future[Message] | None":
        """The finished read at the cursor, with heartbeats until then; None: stopped or lost."""
        reading = asyncio.ensure_future(self._components.source.next(self.assignment.partition, self.cursor))
        reading.add_done_callback(self._woken_by)
        try:
            while await self._heartbeat_if_due():
                if reading.done():
                    return reading
                await self._wake.wait_ms(self._clock, self._heartbeat_due_ms - self._clock.boot_ms())
            return None
        finally:
            if not reading.done():
                reading.cancel()
                await asyncio.wait((reading,))

    def _woken_by(self, reading: "asyncio.Future[Message]") -> None:
        if not reading.cancelled():
            reading.exception()  # retrieved, so that asyncio does not log it as never retrieved
        self._wake.notify()

    def _checked(self, message: Message) -> Message:
        if message.partition != self.assignment.partition or message.offset < self.cursor:
            given = f"partition {message.partition}, offset {message.offset}"
            allowed = f"partition {self.assignment.partition}, offset at least {self.cursor}"
            raise InvalidError("message from the source", given, allowed)
        return message

    async def _checkpoint(self, message: Message) -> bool:
        offset = message.offset + 1
        moved = await self._retry_until_answered(
            lambda: self._components.registry.update_checkpoint(
                self.assignment.partition, self.assignment.consumer, offset, self.assignment.epoch
            )
        )
        self.cursor = offset
        return moved is True

    async def _pause(self, duration_ms: float) -> bool:
        until_ms = self._clock.boot_ms() + duration_ms
        while await self._heartbeat_if_due():
            now_ms = self._clock.boot_ms()
            if now_ms >= until_ms:
                return True
            await self._wake.wait_ms(self._clock, min(until_ms, self._heartbeat_due_ms) - now_ms)
        return False

    def _report(self, attempt: int, error: BaseException) -> None:
        failure = DeliveryFailure(
            consumer=self.assignment.consumer,
            partition=self.assignment.partition,
            offset=self.cursor,
            epoch=self.assignment.epoch,
            attempt=attempt,
            gave_up=attempt == self._components.settings.attempts_max,
            error=error,
        )
        try:
            self._components.on_failure(failure)
        except Exception:
            _log.exception("on_failure callback raised for %r", failure)

    def _retry(self) -> dict[str, float]:
        return {
            "base_ms": float(self._components.settings.retry_base_ms),
            "max_ms": float(self._components.settings.retry_max_ms),
        }
