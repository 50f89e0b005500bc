"""Requests for dead letters of a heap: listed, replayed, deleted, in all its partitions or one.

The rules: a replay or deletion is many small requests to leaders, so that its limit holds and its report is right wherever it
stops, and nobody waits behind it. It goes on in the heap in which it began, and nowhere else.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeAlias

import msgspec

from holdfast.heap.dead_letters import (
    RATE_MAX,
    RATE_MIN,
    WITHOUT_EFFECT,
    DeadLetterFilter,
    DeadLetterProgress,
    DeadLetterReport,
    NamedLetters,
    letters_unknown,
    named_letters,
)
from holdfast.heap.local_heaps import DLQ_SUFFIX
from holdfast.heap.model import PeekedMessage
from holdfast.heap.service import HeapService
from holdfast.heap.waiting_pops import POP_BYTES_MAX
from holdfast.heap.wire import DeadLettersRequest
from holdfast.log.errors import NotEnoughReplicasError
from holdfast.log.topics import Topic, UnknownTopicError
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError, OutcomeUnknownError
from holdfast.vocabulary.settings import check_between, check_one_of

_LISTED: Final = 100
_PACES_PER_S: Final = 10
_ACTIONS: Final = ("list", "replay", "delete")
_LETTERS_TOGETHER: Final = 100  # changed by one request to their leader, which is one append if all match
_IDS_TOGETHER: Final = 1_000  # named in one

_Tried: TypeAlias = Callable[[DeadLettersRequest], Awaitable[Any]]


class DeadLetterCalls:
    """What a node does with them. `tried`: a request to the leader of its partition, wherever that is."""

    def __init__(self, heaps: HeapService, clock: Clock, tried: _Tried) -> None:
        self._heaps, self._clock, self._tried = heaps, clock, tried

    async def list(self, request: DeadLettersRequest) -> list[PeekedMessage]:
        """Those of one partition after the other, up to the limit of all of them together."""
        limit = request.limit or _LISTED
        heap, named = await self._heap(request)
        found: list[PeekedMessage] = []
        for number in range(heap.partitions):
            ids = request.message_ids if named is None else named[number].ids if number in named else ()
            part = msgspec.structs.replace(request, partition=number, limit=limit - len(found), message_ids=ids)
            found += await self._tried(part)
            if len(found) >= limit or sum(len(each.payload) for each in found) >= POP_BYTES_MAX:
                break
        return found

    async def _heap(self, request: DeadLettersRequest) -> tuple[Topic, dict[int, NamedLetters] | None]:
        """The heap of dead letters, and where in it those are that the request names, if it does."""
        heap = await self._heaps.heap(request.topic + DLQ_SUFFIX)
        if request.message_ids is None:
            return heap, None
        return heap, await named_letters(heap.id, request.message_ids, self._heaps.turns)

    async def change(self, request: DeadLettersRequest) -> DeadLetterReport | DeadLetterProgress:
        """Replay or delete dead letters, partition after partition: `limit` and `rate_per_s` are of all of them together.

        `OutcomeUnknownError`: some were changed, and it cannot go on. `UnknownTopicError`: their heap was deleted meanwhile.
        """
        check_one_of("action", request.action, _ACTIONS)
        if request.rate_per_s is not None:
            check_between("rate_per_s", request.rate_per_s, RATE_MIN, RATE_MAX)
        heap, named = await self._heap(request)
        request = msgspec.structs.replace(request, topic_id=request.topic_id or heap.id)
        matched = changed = end = 0
        try:
            for number in range(heap.partitions) if request.partition is None else (request.partition,):
                left = None if request.limit is None else request.limit - matched
                if left is not None and left <= 0:
                    break
                mine = None if named is None else named.get(number, NamedLetters([], []))
                part = msgspec.structs.replace(request, partition=number, limit=left)
                async for step in self._steps(part, mine):
                    matched, changed, end = matched + step.matched, changed + step.changed, step.end_offset
        except (*WITHOUT_EFFECT, NotEnoughReplicasError, OutcomeUnknownError) as error:
            if not changed:
                raise
            raise letters_unknown(request.topic, changed, error) from error
        return (
            DeadLetterReport(matched, changed)
            if request.partition is None
            else DeadLetterProgress(matched, changed, end)
        )

    async def _steps(
        self, request: DeadLettersRequest, named: NamedLetters | None
    ) -> AsyncIterator[DeadLetterProgress]:
        """A replay or deletion in one partition, a few at a time. A step that has failed half-way reports how far it came, and the
        next one goes on from there; a request that lasts would hold up those behind it."""
        rate_per_s, left = None if request.dry_run else request.rate_per_s, request.limit
        together = (
            _LETTERS_TOGETHER if rate_per_s is None else min(_LETTERS_TOGETHER, int(rate_per_s / _PACES_PER_S) or 1)
        )
        # Letters that fail again come back behind all that are here now.
        probe = msgspec.structs.replace(request, rate_per_s=None, message_ids=[], dry_run=True)
        at, end = request.from_offset, (await self._step(probe)).end_offset
        while at < end and (left is None or left > 0):
            ids, before = request.message_ids, end
            count = left if request.dry_run else together if left is None else min(together, left)
            if named is not None:
                ids, before = named.some(at, end, _IDS_TOGETHER if request.dry_run else _LETTERS_TOGETHER)
                if not ids:
                    return
            few = msgspec.structs.replace(
                request, message_ids=ids, limit=count, rate_per_s=None, from_offset=at, before_offset=before
            )
            step = await self._step(few)
            yield step
            if step.end_offset <= at:
                return  # the partition has lost what was there
            at = step.end_offset
            left = None if left is None else left - step.matched
            await self._heaps.turns.next()
            if rate_per_s is not None:
                await self._clock.sleep_ms(1_000 * step.changed / rate_per_s)

    async def _step(self, request: DeadLettersRequest) -> DeadLetterProgress:
        """One request to the leader. `UnknownTopicError`: the heap is another one now; an older leader would not know."""
        heap = await self._heaps.heap(request.topic + DLQ_SUFFIX)
        if heap.id != request.topic_id:
            raise UnknownTopicError(heap.name)
        step: DeadLetterProgress = await self._tried(request)
        return step

    def serve(self, request: DeadLettersRequest) -> Awaitable[Any]:
        """One request to this node, which leads its partition."""
        letters, topic, partition = self._heaps.dead_letters, request.topic, request.partition
        chosen = DeadLetterFilter(
            message_ids=None if request.message_ids is None else frozenset(request.message_ids),
            reason_contains=request.reason_contains,
            attempts_min=request.attempts_min,
            moved_before_ms=request.moved_before_ms,
            limit=request.limit,
            from_offset=request.from_offset,
            before_offset=request.before_offset,
            topic_id=request.topic_id,
        )
        if request.action == "list":
            return letters.list(topic, chosen, limit=request.limit or _LISTED, partition=partition)
        if request.action == "replay":
            return letters.replay(
                topic, chosen, dry_run=request.dry_run, rate_per_s=request.rate_per_s, partition=partition
            )
        if request.action == "delete":
            return letters.delete(topic, chosen, dry_run=request.dry_run, partition=partition)
        raise InvalidError("action", request.action, "one of " + ", ".join(_ACTIONS))
