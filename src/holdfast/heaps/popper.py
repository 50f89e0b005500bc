"""Pops of one client that do not wait: those of one loop turn, and those that come while others are on their way, are one request.

The one rule: what was leased has a taker, or is given back. Who asked first gets the best ones.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from holdfast.heap.model import PoppedMessage
from holdfast.heap.wire import PopRequest
from holdfast.heaps.nodes import HeapNodes
from holdfast.vocabulary.errors import HoldfastError, InvalidError

_MESSAGES_MAX: Final = 1_000
_REQUESTS_MAX: Final = 8  # in flight for one heap: more of them make smaller ones

GiveBack = Callable[[str, Sequence[PoppedMessage]], Awaitable[None]]


class _Waiting(NamedTuple):
    wanted: int
    answer: "asyncio.Future[list[PoppedMessage]]"


class _Lane:
    """The pops of one heap with one visibility."""

    def __init__(self) -> None:
        self.waiting: deque[_Waiting] = deque()
        self.in_flight = 0


class Popper:
    """The pops of a client. `give_back`: messages that nobody takes."""

    def __init__(self, nodes: HeapNodes, *, consumer: str, give_back: GiveBack) -> None:
        self._nodes, self._consumer, self._give_back = nodes, consumer, give_back
        self._lanes: dict[tuple[str, int | None], _Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def pop(self, topic: str, count: int, visibility_ms: int | None) -> list[PoppedMessage]:
        """Lease up to so many messages that are there now, for as long as the heap says if no `visibility_ms` is given."""
        lane = self._lanes.setdefault((topic, visibility_ms), _Lane())
        loop = asyncio.get_running_loop()
        if not lane.waiting:
            loop.call_soon(self._send, topic, visibility_ms, lane)
        waiting = _Waiting(count, loop.create_future())
        lane.waiting.append(waiting)
        return await waiting.answer

    async def close(self) -> None:
        """Wait for what is on its way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _send(self, topic: str, visibility_ms: int | None, lane: _Lane) -> None:
        while lane.waiting and lane.in_flight < _REQUESTS_MAX:
            chosen = [lane.waiting.popleft()]
            count = chosen[0].wanted
            while lane.waiting and count + lane.waiting[0].wanted <= _MESSAGES_MAX:
                chosen.append(lane.waiting.popleft())
                count += chosen[-1].wanted
            chosen = [each for each in chosen if not each.answer.done()]  # its caller was cancelled
            if chosen:
                lane.in_flight += 1
                task = asyncio.ensure_future(self._pop(topic, visibility_ms, lane, chosen))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        if not lane.waiting and not lane.in_flight and self._lanes.get((topic, visibility_ms)) is lane:
            del self._lanes[topic, visibility_ms]  # its heap may be gone

    async def _pop(self, topic: str, visibility_ms: int | None, lane: _Lane, chosen: list[_Waiting]) -> None:
        try:
            await self._together(topic, visibility_ms, chosen)
        finally:
            lane.in_flight -= 1
            self._send(topic, visibility_ms, lane)

    async def _together(self, topic: str, visibility_ms: int | None, chosen: list[_Waiting]) -> None:
        request = PopRequest(
            topic=topic,
            consumer=self._consumer,
            max_messages=sum(each.wanted for each in chosen),
            visibility_timeout_ms=visibility_ms,
        )
        try:
            found: list[PoppedMessage] = await self._nodes.pop(request)
        except InvalidError as error:  # together they may be more than the server allows
            if len(chosen) > 1:
                for each in chosen:
                    await self._together(topic, visibility_ms, [each])
            else:
                _fail(chosen, error)
        except BaseException as error:
            _fail(chosen, error)
            if not isinstance(error, HoldfastError):
                raise
        else:
            at = 0
            for each in chosen:
                if not each.answer.done():
                    each.answer.set_result(found[at : at + each.wanted])
                    at += each.wanted
            if at < len(found):
                await self._give_back(topic, found[at:])


def _fail(chosen: Sequence[_Waiting], error: BaseException) -> None:
    for each in chosen:
        if not each.answer.done():
            each.answer.set_exception(error)
