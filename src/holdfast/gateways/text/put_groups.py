"""Payloads of several connections, appended together: those of one topic that arrive in one turn of the loop are one batch.

The one rule: whoever's payload is refused is refused alone. A group that is refused is appended caller by caller, each of which was
appended as a whole or not at all. Nothing waits for more to come.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from holdfast.gateways.text.errors import RemoteRefusal
from holdfast.gateways.text.records import PAYLOAD_BYTES
from holdfast.vocabulary.errors import HoldfastError, InvalidError

GroupKey = tuple[str, bool, bool]
"""Topic, whether it was forwarded, whether it may create the topic."""
Append = Callable[[Sequence[bytes]], Awaitable[None]]


class _PutGroup:
    """What is appended with one call."""

    def __init__(self) -> None:
        self.callers: list[Sequence[bytes]] = []
        self.size_bytes = 0
        self.task: asyncio.Future[HoldfastError | None]


class PutGroups:
    """The groups of one node that have not begun, by topic, and those that are being appended."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._open: dict[GroupKey, _PutGroup] = {}
        self._tasks: set[asyncio.Future[HoldfastError | None]] = set()

    async def close(self) -> None:
        """Give up what is being appended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def put(self, key: GroupKey, payloads: Sequence[bytes], append: Append) -> None:
        """Append the payloads, all or none, with those of others that have the same key. Raises what `append` raises."""
        size = sum(PAYLOAD_BYTES + len(payload) for payload in payloads)
        group = self._open.get(key)
        if group is None or group.size_bytes + size > self._bytes_max:
            group = self._open[key] = _PutGroup()
            group.task = task = asyncio.ensure_future(self._append(key, group, append))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        group.callers.append(payloads)
        group.size_bytes += size
        error = await asyncio.shield(group.task)  # a caller that goes away takes nobody with it
        if error is None:
            return
        if len(group.callers) > 1 and isinstance(error, (InvalidError, RemoteRefusal)):
            await append(payloads)
            return
        raise error

    async def _append(self, key: GroupKey, group: _PutGroup, append: Append) -> HoldfastError | None:
        if self._open.get(key) is group:
            del self._open[key]
        try:
            await append([payload for payloads in group.callers for payload in payloads])
        except HoldfastError as error:
            return error
        return None
