"""Calls of a heap's clients that are written down: before they are sent, and when their outcome is known.

The one rule: an error is `info` unless it is known that nothing happened. A lease that is lost is `fail`.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from random import Random  # noqa: TID251 (seeded, for each client)
from typing import Any, Final, TypeVar

from tests.chaos.history import Recorder

from holdfast.heap.errors import LeaseLostError, MessageNotFoundError
from holdfast.heap.lease_token import parse_token
from holdfast.heap.message_id import parse_message_id
from holdfast.heap.model import Enqueued
from holdfast.log.errors import NotEnoughReplicasError, NotLeaderError
from holdfast.vocabulary.errors import HoldfastError, OutcomeUnknownError, UnavailableError

T = TypeVar("T")

PASSING: Final = (NotLeaderError, NotEnoughReplicasError, OutcomeUnknownError, UnavailableError)
WITHOUT_EFFECT: Final = (LeaseLostError, MessageNotFoundError)


@dataclass(slots=True)
class Backlog:
    """Messages that are known to be enqueued, and not known to be done: value → id."""

    ids: dict[str, str] = field(default_factory=dict)

    def chosen(self, random: Random) -> tuple[str, str] | None:
        """One of them, if there is any."""
        return random.choice(list(self.ids.items())) if self.ids else None


class Calls:
    """The calls of one client. `topic_ids`: of the heap and its dead letters."""

    def __init__(self, name: str, record: Recorder, topic_ids: dict[str, str], backlog: Backlog) -> None:
        self.name, self.record, self.backlog = name, record, backlog
        self._topic_ids, self._numbers = topic_ids, count()

    def place(self, topic: str, message_id: str) -> list[Any]:
        """Where a message is."""
        place = parse_message_id(bytes.fromhex(self._topic_ids[topic]), message_id)
        return [topic, place.partition, place.offset]

    async def enqueue(self, value: str, priority: int, delay_ms: int, made: Awaitable[Enqueued], topic: str) -> bool:
        """Whether it is known to be enqueued."""
        self.record(self.name, "invoke", "enqueue", value=value, priority=priority, delay_ms=delay_ms)
        with self._refusals() as failed:
            found = await made
            place = self.place(topic, found.message_id)
            self.backlog.ids.setdefault(value, found.message_id)
            self.record(self.name, "ok", "enqueue", value=value, place=place, duplicate=found.duplicate)
            return True
        self.record(self.name, "info", "enqueue", value=value, error=failed[0])
        return False

    async def pop(self, popped: Awaitable[list[T]]) -> list[T]:
        """What a pop got; nothing if it failed."""
        number = next(self._numbers)
        self.record(self.name, "invoke", "pop", call=number)
        with self._refusals() as failed:
            found = await popped
            self.record(self.name, "ok", "pop", call=number, messages=[delivered(each) for each in found])
            return found
        self.record(self.name, "info", "pop", call=number, error=failed[0])
        return []

    async def settle(self, f: str, message: Any, settling: Awaitable[object], *, exact: bool = True) -> bool:
        """Whether an operation on a lease is known to have had its effect."""
        told = {"value": message.payload.decode(), "lease": lease_of(message), "exact": exact}
        is_done = await self._called(f, settling, **told)
        if is_done and f == "ack":
            self.backlog.ids.pop(told["value"], None)
        return is_done

    async def change(self, f: str, value: str, place: list[Any], changing: Awaitable[object], **told: object) -> bool:
        """Whether an operation on a message is known to have had its effect."""
        is_done = await self._called(f, changing, value=value, place=place, **told)
        if f == "cancel" or not is_done:  # it may be gone; whoever has it settles it
            self.backlog.ids.pop(value, None)
        return is_done

    async def _called(self, f: str, called: Awaitable[object], **told: object) -> bool:
        number = next(self._numbers)
        self.record(self.name, "invoke", f, call=number, **told)
        with self._refusals() as failed:
            try:
                await called
            except WITHOUT_EFFECT as error:
                self.record(self.name, "fail", f, call=number, error=str(error))
                return False
            self.record(self.name, "ok", f, call=number)
            return True
        self.record(self.name, "info", f, call=number, error=failed[0])
        return False

    @contextmanager
    def _refusals(self) -> Iterator[list[str]]:
        """Errors of the body are kept; those that no client of a healthy heap gets are written down."""
        failed: list[str] = []
        try:
            yield failed
        except HoldfastError as error:
            failed.append(f"{type(error).__name__}: {error}")
            if not isinstance(error, PASSING):
                self.record(self.name, "fail", "refuse", error=failed[0])


def lease_of(message: Any) -> list[Any]:
    """The name of the lease of a message of the SDK or of the protocol."""
    token = parse_token(message.lease_token)
    return [message.topic, token.partition, token.offset, token.granted_at]


def delivered(message: Any) -> list[Any]:
    """A message as the history has it."""
    token = parse_token(message.lease_token)
    told = [message.payload.decode(), message.priority, message.rank_bound, token.epoch]
    return [*told, *lease_of(message)]


Ending = Callable[[], bool]
