"""The cursors of one lease: read ahead from the log, handed out, saved.

The one rule: every position is saved by a commit that the lease fences. A position that is saved late, or by a commit whose answer
was lost, is lower than it could be, which delivers records again and never skips one. A read holds up the readers of its own topic
alone.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

import msgspec

from holdfast.contracts.store import Delete, Operation, Put, Store
from holdfast.contracts.validation import StoreLimits
from holdfast.cursors.cursor import CursorDeliveries, CursorRead, CursorRecord, SharedCursor, in_runs
from holdfast.cursors.errors import NotCursorOwnerError
from holdfast.cursors.keys import cursor_key, shard_from_resource
from holdfast.cursors.settings import CursorCounters, CursorSettings
from holdfast.kernel.lease import Lease, commit_fenced
from holdfast.kernel.session import HeldSession
from holdfast.log.topics import Topic
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import Notify

ReadRecords = Callable[[Topic, int, int], Awaitable[CursorRead]]
"""Reads a topic from an offset on, at most so many bytes: from the leader, wherever it is."""

_OPS_MAX: Final = StoreLimits().ops_max // 2
_GAPS_MAX: Final = 1_000  # reads in a row that bring no record: only gaps of compaction do that


class StoredPosition(msgspec.Struct, frozen=True):
    """The value of `cursor/…`."""

    topic_id: str
    offset: int


class CursorShard:
    """The cursors of one lease."""

    def __init__(
        self,
        lease: Lease,
        *,
        store: Store,
        session: HeldSession,
        clock: Clock,
        random: Random,
        settings: CursorSettings,
        counters: CursorCounters,
    ) -> None:
        self.lease, self.number = lease, shard_from_resource(lease.resource)
        self.accepting = True
        self.changed = Notify()  # a position has moved
        self._store, self._session, self._clock, self._random = store, session, clock, random
        self._settings, self._counters = settings, counters
        self._cursors: OrderedDict[str, SharedCursor] = OrderedDict()  # the one used last is last
        self._locks: dict[str, asyncio.Lock] = {}
        self._save_lock = asyncio.Lock()

    @property
    def buffered_bytes(self) -> int:
        """What its cursors have read ahead."""
        return sum(cursor.buffered_bytes for cursor in self._cursors.values())

    async def take(self, topic: Topic, count: int, read: ReadRecords) -> CursorDeliveries:
        """The next records, at most `count`; none: the end of the topic. Raises what `read` raises."""
        async with self._locks.setdefault(topic.name, asyncio.Lock()):
            self._check(topic.name)
            cursor = await self._cursor(topic)
            if not cursor.has_records:
                await self._read_ahead(topic, cursor, read)
            await self._until_saved(topic.name, cursor)
            self._check(topic.name)  # both take their time
            self._cursors.move_to_end(topic.name)
            new_at = cursor.new_at
            taken = cursor.take(count, ahead_max=self._settings.unsaved_max)
            self._counters.redelivered += sum(record.offset < new_at for record in taken)
        return CursorDeliveries(taken, lambda runs: self._settle(cursor, taken, runs))

    def _settle(self, cursor: SharedCursor, taken: Sequence[CursorRecord], runs: Sequence[int]) -> None:
        for run, delivered in in_runs(taken, runs):
            cursor.settle(run, len(run) if delivered else 0)
            if delivered:
                self._counters.delivered += len(run)
            else:
                self._counters.returned += len(run)
        self.changed.notify()

    async def _until_saved(self, topic: str, cursor: SharedCursor) -> None:
        """Wait until the next record is not too far ahead of what is saved. `UnavailableError`: an answer is not being read."""
        deadline_ms = self._clock.boot_ms() + self._settings.settle_ms
        while cursor.is_ahead(self._settings.unsaved_max):
            await self.save([topic])
            if not cursor.is_ahead(self._settings.unsaved_max):
                return
            left_ms = deadline_ms - self._clock.boot_ms()
            if left_ms <= 0:
                raise UnavailableError(f"cursor of topic {topic}", "a reader has not taken the records it was given")
            await self.changed.wait_ms(self._clock, min(left_ms, self._settings.save_ms))

    def _check(self, topic: str) -> None:
        if not self.accepting or not self._session.alive():
            raise NotCursorOwnerError(topic, self.number)

    async def _cursor(self, topic: Topic) -> SharedCursor:
        """The topic's cursor; one of a topic that was deleted and created again starts over."""
        known = self._cursors.get(topic.name)
        if known is None or known.topic_id != topic.id:
            entry = await self._store.get(cursor_key(self.number, topic.name))
            stored = None if entry is None else msgspec.json.decode(entry.value, type=StoredPosition)
            offset = stored.offset if stored is not None and stored.topic_id == topic.id else 0
            known = self._cursors[topic.name] = SharedCursor(topic.id, offset)
        return known

    async def _read_ahead(self, topic: Topic, cursor: SharedCursor, read: ReadRecords) -> None:
        for _ in range(_GAPS_MAX):
            at = cursor.read_at
            found = await read(topic, at, self._settings.read_bytes)
            self._counters.reads += 1
            cursor.add(found)
            if cursor.has_records or cursor.read_at == at:
                return

    def forget_buffers(self, bytes_max: int) -> None:
        """Drop what was read ahead for those not used lately, until no more than `bytes_max` is left."""
        left = self.buffered_bytes
        for cursor in self._cursors.values():
            if left <= bytes_max:
                return
            left -= cursor.buffered_bytes
            cursor.forget_buffer()

    async def save(self, topics: Collection[str] | None = None) -> None:
        """Save the positions that have moved, of these topics or of all. `FencedError`: the lease is lost."""
        async with self._save_lock:
            moved = [
                (name, cursor, cursor.position)
                for name, cursor in self._cursors.items()
                if cursor.position != cursor.saved and (topics is None or name in topics)
            ]
            for at in range(0, len(moved), _OPS_MAX):
                some = moved[at : at + _OPS_MAX]
                await self._commit(
                    [
                        Put(
                            cursor_key(self.number, name),
                            msgspec.json.encode(StoredPosition(cursor.topic_id, position)),
                        )
                        for name, cursor, position in some
                    ]
                )
                for _, cursor, position in some:
                    cursor.saved = position

    async def forget(self, topics: Collection[str]) -> None:
        """These topics are no more, or are new ones of the same names: their cursors go."""
        for name in topics:
            self._cursors.pop(name, None)
            self._locks.pop(name, None)
        keys = [cursor_key(self.number, name) for name in topics]
        for at in range(0, len(keys), _OPS_MAX):
            await self._commit([Delete(key) for key in keys[at : at + _OPS_MAX]])

    async def _commit(self, apply: Sequence[Operation]) -> None:
        self._counters.store_commits += 1
        await commit_fenced(self._store, self.lease, clock=self._clock, random=self._random, apply=apply)

    async def drain(self) -> None:
        """Hand out nothing more, wait for the answers that are being written, and save."""
        self.accepting = False
        deadline_ms = self._clock.boot_ms() + self._settings.settle_ms
        while not all(cursor.is_settled for cursor in self._cursors.values()):
            left_ms = deadline_ms - self._clock.boot_ms()
            if left_ms <= 0 or not await self.changed.wait_ms(self._clock, left_ms):
                break
        await self.save()
