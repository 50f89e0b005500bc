"""Heaps as queues of tasks: how a queue is configured, and how a task's message is settled.

The one rule: a worker that lives keeps its message. No cap ends the extensions of a lease; an ack is tried until it is answered,
or its heap is gone.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from holdfast.heap.errors import LeaseLostError, MessageNotFoundError, NotAHeapError
from holdfast.heap.wire import LostLease
from holdfast.heaps.message import Message
from holdfast.log.topics import UnknownTopicError
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.random import SystemRandom, backoff_ms

_log: Final = logging.getLogger(__name__)

_GONE: Final = (UnknownTopicError, NotAHeapError, MessageNotFoundError)
_RETRY_MS: Final = 200
_RETRY_MAX_MS: Final = 5_000
_CLOCK: Final = RealClock()
_RANDOM: Final = SystemRandom()
_YEAR_MS: Final = 366 * 86_400_000

QUEUE_CONFIG: Final[Mapping[str, object]] = {
    "mode": "max",
    "max_retries": 20,  # as RabbitMQ's quorum queues: a task that kills its worker each time ends as a dead letter
    "lease_ms_max": _YEAR_MS,  # a task that runs is never given to another worker because it runs for long
    "backoff_base_ms": 0,
    "backoff_cap_ms": 60_000,
}


def queue_config(lease: float, config: Mapping[str, object]) -> dict[str, object]:
    """The settings of a new queue whose leases last so many seconds."""
    return {**QUEUE_CONFIG, "visibility_timeout_ms": round(lease * 1000), **config}


async def settle(message: Message, settle: Callable[[Message], Awaitable[None]]) -> bool:
    """Settle a message, however long that takes; it is leased until then. False: its lease is lost, or its heap is gone."""
    attempt = 0
    while True:
        try:
            await settle(message)
        except LeaseLostError:
            return False
        except _GONE as error:
            message.mark_lost(LostLease(message.id, str(error)))
            return False
        except HoldfastError as error:
            if message.is_unknown:  # to ask again would get the same answer
                _log.warning("message %s of %s is done, or a dead letter: %s", message.id, message.topic, error)
                return True
            if is_logged(attempt):
                _log.warning("message %s of %s is not settled, trying again: %s", message.id, message.topic, error)
            message.resume()
        else:
            return True
        await pause(attempt)
        attempt += 1


async def pause(attempt: int) -> None:
    """The pause after a try that failed; the first one is number 0."""
    await _CLOCK.sleep_ms(backoff_ms(attempt, base_ms=_RETRY_MS, max_ms=_RETRY_MAX_MS, random=_RANDOM))


def is_logged(attempt: int) -> bool:
    """Whether a try that failed is logged: the first, second, fourth, eighth … one."""
    return attempt & (attempt + 1) == 0


def log_refused(message: Message) -> None:
    """A worker woke too late: somebody else has the message."""
    _log.warning("message %s of %s: its ack is refused: %s", message.id, message.topic, message.lost_reason)
