"""Objects, copied and verified, several at a time, in bounded memory.

The one rule: an object counts as copied once it was read back from the target and has the SHA-256 of what the source has. Objects
complete in key order, so one key says how far it is: a later run begins after it. What it finds at the target beyond that key, from
a run that was killed, is verified and not sent again.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from holdfast.app.migration.inventory import objects_of
from holdfast.app.migration.model import MigrationSettings
from holdfast.contracts.objects import Missing, ObjectInfo, Objects
from holdfast.kernel.cluster_move import CopyProgress
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError
from holdfast.vocabulary.tasks import leaf_errors, task_group

_COPIES: Final = 2  # an engine may join the parts of a body into another one

Record = Callable[[CopyProgress], Awaitable[None]]
"""Makes progress durable."""
OnDone = Callable[[CopyProgress], None]


@dataclass(frozen=True, slots=True)
class _Copied:
    info: ObjectInfo
    sha256: str
    sent: bool


def chained(progress: CopyProgress, key: str, size_bytes: int, sha256: str) -> CopyProgress:
    """The progress after one more object or entry."""
    link = f"{progress.digest}\n{key}\n{size_bytes}\n{sha256}"
    return CopyProgress(
        after=key,
        count=progress.count + 1,
        bytes=progress.bytes + size_bytes,
        digest=hashlib.sha256(link.encode()).hexdigest(),
    )


class ObjectCopy:
    """The copying of one cluster's objects. `sent` counts those that this run has uploaded."""

    def __init__(
        self,
        source: Objects,
        target: Objects,
        cluster: str,
        *,
        clock: Clock,
        settings: MigrationSettings,
        record: Record,
        on_done: OnDone,
    ) -> None:
        self._source, self._target, self._cluster = source, target, cluster
        self._clock, self._settings = clock, settings
        self._record, self._on_done = record, on_done
        self.sent = 0

    async def run(self, progress: CopyProgress) -> CopyProgress:
        """Copy everything after `progress`, which is recorded now and then, and at the end."""
        try:
            return await self._run(progress)
        except BaseExceptionGroup as failed:
            raise next(leaf_errors(failed)) from None  # several copies may have met the same outage

    async def _run(self, progress: CopyProgress) -> CopyProgress:
        window: deque[tuple[ObjectInfo, asyncio.Task[_Copied | None]]] = deque()
        settings, held = self._settings, 0
        recorded, recorded_ms = progress, self._clock.boot_ms()
        async with task_group() as group, aclosing(self._listed_with_presence(progress.after)) as listed:

            async def next_done() -> None:
                nonlocal progress, held, recorded, recorded_ms
                info, task = window.popleft()
                copied = await task
                held -= info.size_bytes * _COPIES
                if copied is not None:
                    progress = chained(progress, info.key, info.size_bytes, copied.sha256)
                    self.sent += copied.sent
                    self._on_done(progress)
                due = self._clock.boot_ms() - recorded_ms >= settings.record_every_ms
                if progress.count - recorded.count >= settings.record_every or (due and progress != recorded):
                    await self._record(progress)
                    recorded, recorded_ms = progress, self._clock.boot_ms()

            async for info, present in listed:
                wanted = info.size_bytes * _COPIES
                while window and (len(window) >= settings.parallel or held + wanted > settings.memory_bytes_max):
                    await next_done()
                held += wanted
                window.append((info, group.create_task(self._copy(info, present=present))))
            while window:
                await next_done()
        await self._record(progress)
        return progress

    async def settle(self) -> int:
        """Make the target's keys those of the source: what appeared since is copied, what is gone is removed; how many differed."""
        differed = 0
        source = aclosing(objects_of(self._source, self._cluster))
        target = aclosing(objects_of(self._target, self._cluster))
        async with source as ours, target as theirs:
            mine, other = await anext(ours, None), await anext(theirs, None)
            while mine is not None or other is not None:
                if other is not None and (mine is None or other.key < mine.key):
                    await self._target.delete([other.key])
                    differed, other = differed + 1, await anext(theirs, None)
                elif mine is not None and (other is None or mine.key < other.key):
                    self.sent += await self._copy(mine, present=False) is not None
                    differed, mine = differed + 1, await anext(ours, None)
                else:
                    assert mine is not None
                    assert other is not None
                    if mine.size_bytes != other.size_bytes:
                        raise _differs(
                            mine.key, f"{other.size_bytes} bytes at the target, {mine.size_bytes} at the source"
                        )
                    mine, other = await anext(ours, None), await anext(theirs, None)
        return differed

    async def _listed_with_presence(self, after: str) -> AsyncGenerator[tuple[ObjectInfo, bool], None]:
        """The source's objects after a key, each with whether the target listed it at the beginning."""
        theirs = objects_of(self._target, self._cluster, after=after)
        async with aclosing(theirs), aclosing(objects_of(self._source, self._cluster, after=after)) as ours:
            other = await anext(theirs, None)
            async for info in ours:
                while other is not None and other.key < info.key:
                    other = await anext(theirs, None)
                yield info, other is not None and other.key == info.key

    async def _copy(self, info: ObjectInfo, *, present: bool) -> _Copied | None:
        """Copy and verify one object; None: the source has removed it since it was listed."""
        body = await self._source.get(info.key)
        if isinstance(body, Missing):
            return None
        if len(body) != info.size_bytes:
            raise _differs(info.key, f"{len(body)} bytes were read of {info.size_bytes} that the source lists")
        expected = await asyncio.to_thread(_sha256, body)
        if not present:
            await self._target.put(info.key, [body])
        del body
        found = await self._target.get(info.key)
        if isinstance(found, Missing):
            raise _differs(info.key, "the target does not have it after it was put")
        if await asyncio.to_thread(_sha256, found) != expected:
            raise _differs(info.key, "the target has other bytes than the source")
        return _Copied(info, expected, sent=not present)


def _sha256(body: "bytes | bytearray | memoryview") -> str:
    return hashlib.sha256(body).hexdigest()


def _differs(key: str, found: str) -> CorruptError:
    return CorruptError(f"the copy of object {key}", found)
