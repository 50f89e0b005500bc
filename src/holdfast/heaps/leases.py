"""The leases of one client: renewed from delivery until they are settled, and settled together.

The rules: a lease is renewed until its ack, nack or release was answered: while a node restarts, the message stays its consumer's.
One request settles leases of one partition, which waits for no other one.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.heap.errors import LeaseLostError, MessageNotFoundError
from holdfast.heap.model import ENTRIES_MAX
from holdfast.heap.wire import AckRequest, ExtendRequest, HeapRequest, LostLease, MoveRequest, ReleaseRequest
from holdfast.heaps.nodes import HeapNodes
from holdfast.heaps.renewals import Renewals
from holdfast.heaps.repeated_ack import AckOutcome, ack_outcome
from holdfast.vocabulary.errors import HoldfastError, InvalidError, OutcomeUnknownError
from holdfast.vocabulary.tasks import Notify

if TYPE_CHECKING:
    from holdfast.heaps.message import Message

_TOKENS_MAX: Final = 1_000
_PARTITION: Final[Callable[["Message"], tuple[str, int]]] = attrgetter("topic", "partition")
_REQUESTS_MAX: Final = 8  # in flight for one partition: more of them make smaller ones


class _Acks(NamedTuple):
    """Messages whose acks are awaited together."""

    messages: "Sequence[Message]"
    answer: "asyncio.Future[list[AckOutcome]]"


class _Lane:
    """The acks of one partition: what comes while requests are on their way leaves together."""

    def __init__(self) -> None:
        self.waiting: deque[_Acks] = deque()
        self.in_flight = 0


class Leases:
    """What a client holds."""

    def __init__(self, nodes: HeapNodes) -> None:
        self._nodes = nodes
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.changed = Notify()  # a message was settled or lost
        self._renewals = Renewals(nodes, self.changed)

    @property
    def held(self) -> int:
        """Messages that are neither settled nor lost."""
        return len(self._renewals)

    def keep(self, messages: Iterable["Message"]) -> None:
        """Renew these from now on."""
        self._renewals.keep(messages)

    def forget(self, messages: Iterable["Message"]) -> None:
        """Renew these no more."""
        self._renewals.forget(messages)
        self.changed.notify()

    async def ack(self, message: "Message") -> LostLease | None:
        """Acknowledge a message that is being settled. `OutcomeUnknownError`."""
        (found,) = await self._ack(message.topic, message.partition, [message])
        if isinstance(found, OutcomeUnknownError):
            message.is_unknown = True
            raise found
        return found

    async def ack_many(self, messages: Sequence["Message"]) -> None:
        """Acknowledge messages; those of one partition leave together. `LeaseLostError`: of the first that was lost.

        `OutcomeUnknownError`: of the first of which nobody knows whether it was.
        """
        groups: dict[tuple[str, int], list[Message]] = defaultdict(list)
        settling: list[Message] = []
        failure: HoldfastError | None = None
        for message in messages:
            try:
                message.begin_settling()
            except LeaseLostError as error:
                failure = failure or error
            else:
                settling.append(message)
        for group, several in groupby(settling, _PARTITION):
            groups[group] += several
        answers = [self._ack(*group, mine) for group, mine in groups.items()]
        try:
            # One is awaited as it is: a task around it took half of this client's time.
            results = [await answers[0]] if len(answers) == 1 else await asyncio.gather(*answers)
        finally:
            self.forget(settling)
        for mine, found in zip(groups.values(), results, strict=True):
            if not any(found):
                continue
            for message, lost in zip(mine, found, strict=True):
                if isinstance(lost, OutcomeUnknownError):
                    message.is_unknown = True
                    failure = failure or lost
                elif lost is not None:
                    message.mark_lost(lost)
                    failure = failure or lost.error(message.topic)
        if failure is not None:
            raise failure

    async def _ack(self, topic: str, partition: int, messages: "Sequence[Message]") -> "list[AckOutcome]":
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = _Lane()
        loop = asyncio.get_running_loop()
        if not lane.waiting:
            loop.call_soon(self._send_acks, topic, partition, lane)
        acks = _Acks(messages, loop.create_future())
        lane.waiting.append(acks)
        return await acks.answer

    async def settle(self, request: HeapRequest) -> LostLease | int | None:
        """Nack, release or extend one message."""
        (found,) = await self._nodes.call(request, again=False)
        result: LostLease | int | None = found
        return result

    async def move(self, message: "Message", reason: str) -> LostLease | None:
        """To the dead letters, if the lease is held: it is renewed first, and a move is only a moment."""
        topic, token, partition = message.topic, message.lease_token, message.partition
        extend = ExtendRequest(topic=topic, partition=partition, tokens=[token], extension_ms=message.visibility_ms)
        (found,) = await self._nodes.call(extend, again=True)
        if isinstance(found, LostLease):
            return found
        try:
            await self._nodes.call(MoveRequest(topic=topic, message_id=message.id, reason=reason), again=True)
        except MessageNotFoundError:
            return None  # the answer to the first of two was lost
        except InvalidError:
            return await self.ack(message)  # this heap has no dead letters
        return None

    async def release_all(self, messages: Sequence["Message"]) -> None:
        """Give messages back that were never worked on. What cannot be given back comes back when its lease is over."""
        by_topic: dict[str, list[bytes]] = {}
        self.forget(messages)
        for message in messages:
            by_topic.setdefault(message.topic, []).append(message.lease_token)
        for topic, tokens in by_topic.items():
            for first in range(0, len(tokens), ENTRIES_MAX):
                request = ReleaseRequest(topic=topic, tokens=tokens[first : first + ENTRIES_MAX])
                with suppress(HoldfastError):
                    await self._nodes.call(request, again=True)

    async def close(self) -> None:
        """Renew no more; acks that are on their way are waited for."""
        while self._tasks or any(lane.waiting for lane in self._lanes.values()):
            await (asyncio.wait(self._tasks) if self._tasks else asyncio.sleep(0))  # noqa: TID251
        await self._renewals.close()

    def _send_acks(self, topic: str, partition: int, lane: _Lane) -> None:
        while lane.waiting and lane.in_flight < _REQUESTS_MAX:
            chosen = [lane.waiting.popleft()]
            size = len(chosen[0].messages)
            while lane.waiting and size + len(lane.waiting[0].messages) <= _TOKENS_MAX:
                chosen.append(lane.waiting.popleft())
                size += len(chosen[-1].messages)
            lane.in_flight += 1
            task = asyncio.ensure_future(self._settle_acks(topic, partition, lane, chosen))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if not lane.waiting and not lane.in_flight and self._lanes.get((topic, partition)) is lane:
            del self._lanes[topic, partition]  # its heap may be gone

    async def _acked(self, topic: str, partition: int, messages: "Sequence[Message]") -> "Sequence[AckOutcome]":
        """Acks are sent again when an answer is lost; `repeated_ack` says what it means that a message is gone then."""
        tokens = [message.lease_token for message in messages]
        request = AckRequest(topic=topic, partition=partition, tokens=tokens)
        try:
            found: list[LostLease | None] = await self._nodes.call(request, again=False)
        except OutcomeUnknownError:
            for message in messages:
                message.ack_unanswered = True
            found = await self._nodes.call(request, again=True)
        if not any(found):
            return found
        now_ms = self._nodes.clock.boot_ms()
        return [ack_outcome(message, lost, now_ms) for message, lost in zip(messages, found, strict=True)]

    async def _settle_acks(self, topic: str, partition: int, lane: _Lane, chosen: list[_Acks]) -> None:
        messages = [message for acks in chosen for message in acks.messages]
        try:
            found = list[AckOutcome]()
            for first in range(0, len(messages), ENTRIES_MAX):
                found += await self._acked(topic, partition, messages[first : first + ENTRIES_MAX])
        except BaseException as error:
            for acks in chosen:
                if not acks.answer.done():
                    acks.answer.set_exception(error)
            if not isinstance(error, HoldfastError):
                raise
        else:
            at = 0
            for acks in chosen:
                if not acks.answer.done():
                    acks.answer.set_result(list(found[at : at + len(acks.messages)]))
                at += len(acks.messages)
        finally:
            lane.in_flight -= 1
            self._send_acks(topic, partition, lane)
