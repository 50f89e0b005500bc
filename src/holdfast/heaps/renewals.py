"""Renewals of the leases of one client, from delivery until they are settled.

The rules: one request renews leases of one partition that were asked for with one visibility, and such a group waits for no other
one. A lease that was lost is said to its message at once. The clock only decides when to renew; whether a lease is held is decided
where it was granted.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from holdfast.heap.errors import NotAHeapError
from holdfast.heap.wire import ExtendRequest, LostLease
from holdfast.heaps.nodes import HeapNodes
from holdfast.log.topics import UnknownTopicError
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.tasks import Notify

if TYPE_CHECKING:
    from holdfast.heaps.message import Message

_log: Final = logging.getLogger(__name__)

_RENEWALS: Final = 3  # within the time of a lease
_RENEWAL_MS_MIN: Final = 500  # a connection is not given up for less
_TOKENS_MAX: Final = 1_000


_Group: TypeAlias = tuple[str, int, int]
"""Leases that are renewed together: topic, partition, visibility in milliseconds."""

_group: Final[Callable[["Message"], _Group]] = attrgetter("topic", "partition", "visibility_ms")


class Renewals:
    """What a client holds. `changed` is notified when a lease was lost."""

    def __init__(self, nodes: HeapNodes, changed: Notify) -> None:
        self._nodes, self._changed = nodes, changed
        self._held: dict[_Group, dict[bytes, Message]] = {}
        self._tasks: dict[_Group, asyncio.Task[None]] = {}
        self._closed = False

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def keep(self, messages: Iterable["Message"]) -> None:
        """Renew these from now on, unless it is closed."""
        if self._closed:
            return
        for group, mine in groupby(messages, _group):
            held = self._held.setdefault(group, {})
            held.update([(message.lease_token, message) for message in mine])
            if group not in self._tasks:
                self._tasks[group] = asyncio.ensure_future(self._renew(group))

    def forget(self, messages: Iterable["Message"]) -> int:
        """Renew these no more; how many were."""
        forgotten = 0
        for group, mine in groupby(messages, _group):
            held = self._held.get(group)
            if held:
                forgotten += len([1 for message in mine if held.pop(message.lease_token, None) is not None])
        return forgotten

    async def close(self) -> None:
        """Renew nothing more."""
        self._closed = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _renew(self, group: _Group) -> None:
        """Renew the leases of a group, until it has none."""
        _, _, visibility_ms = group
        try:
            while held := self._held.get(group):
                await self._nodes.clock.sleep_ms(visibility_ms / _RENEWALS)
                messages = list(held.values())
                for at in range(0, len(messages), _TOKENS_MAX):
                    await self._renew_some(group, messages[at : at + _TOKENS_MAX])
        finally:
            del self._tasks[group]
            self._held.pop(group, None)

    async def _renew_some(self, group: _Group, messages: list["Message"]) -> None:
        tokens = [message.lease_token for message in messages]
        topic, partition, visibility_ms = group
        request = ExtendRequest(topic=topic, partition=partition, tokens=tokens, extension_ms=visibility_ms)
        try:
            found: list[Any] = await self._nodes.call(
                request, again=True, timeout_ms=max(_RENEWAL_MS_MIN, visibility_ms // _RENEWALS)
            )
        except (UnknownTopicError, NotAHeapError) as error:  # the heap is gone, and they with it
            found = [LostLease(message.id, str(error)) for message in messages]
        except HoldfastError as error:
            _log.warning("leases of heap %s could not be renewed, trying again: %s", topic, error)
            return
        for message, result in zip(messages, found, strict=True):
            if not isinstance(result, LostLease):
                message.lease_deadline_ms = result
            elif not message.settled and self.forget((message,)):
                message.mark_lost(result)
                self._changed.notify()
