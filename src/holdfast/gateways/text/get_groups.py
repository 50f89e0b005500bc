"""GETs of several connections, forwarded together: those of one topic that arrive in one turn of the loop are one request.

The rules: each caller settles its own records, and the owner hears of all of them at once, when the last one has. Who gets none
while others got some asks again: fewer than were asked for is not the end. Nothing waits for more to come.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final

from holdfast.cursors.cursor import CursorDeliveries, CursorRecord, in_runs
from holdfast.gateways.text.errors import EMPTY, OK, raise_remote
from holdfast.gateways.text.node_connections import NodeConnection, NodeConnections
from holdfast.gateways.text.records import decode_records
from holdfast.gateways.text.settings import TextCounters
from holdfast.vocabulary.errors import HoldfastError, OutcomeUnknownError

_RECORDS_MAX: Final = 256  # of several callers: so many are delivered again if this node dies

_Key = tuple[str, str]  # address and topic


class _GetGroup:
    """What is taken with one request. A caller is its place in `counts`."""

    def __init__(self) -> None:
        self.counts: list[int] = []  # records that each caller asks for
        self.task: asyncio.Future[HoldfastError | None]
        self.connection: NodeConnection | None = None  # while records are taken
        self._parts: list[Sequence[CursorRecord]] = []
        self._settled: dict[int, Sequence[int]] = {}

    def taken(self, records: Sequence[CursorRecord]) -> None:
        """The answer: records for the callers, in their order."""
        at = 0
        for count in self.counts:
            self._parts.append(records[at : at + count])
            at += count

    @property
    def found_none(self) -> bool:
        """Whether the cursor is at the end."""
        return not self._parts

    def part(self, place: int) -> Sequence[CursorRecord]:
        return self._parts[place] if self._parts else ()

    def settle(self, place: int, runs: Sequence[int]) -> None:
        self._settled[place] = runs

    @property
    def is_settled(self) -> bool:
        """Whether every caller that has records has settled them."""
        return all(place in self._settled for place, part in enumerate(self._parts) if part)

    def runs(self) -> list[int]:
        """How many of all records were delivered, how many after them were not, and so on."""
        flags = [
            delivered
            for place, part in enumerate(self._parts)
            for run, delivered in in_runs(part, self._settled.get(place, ()))
            for _ in run
        ]
        found = [len(list(same)) for _, same in groupby(flags)]
        return found if flags and flags[0] else [0, *found]


class GetGroups:
    """The groups of one node: those that have not begun, and those whose records are not settled."""

    def __init__(self, nodes: NodeConnections, counters: TextCounters) -> None:
        self._nodes, self._counters = nodes, counters
        self._open: dict[_Key, _GetGroup] = {}
        self._tasks: set[asyncio.Future[HoldfastError | None]] = set()
        self._settling: set[asyncio.Task[None]] = set()

    @property
    def settling(self) -> bool:
        """Whether an owner has not heard yet which of its records were delivered."""
        return bool(self._settling)

    async def close(self) -> None:
        """Give up what is under way: owners get their records back with the connections."""
        tasks: list[asyncio.Future[Any]] = [*self._tasks, *self._settling]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def take(self, address: str, topic: str, count: int) -> CursorDeliveries:
        """The next records of a cursor that another node owns, at most `count`; none at the end."""
        while True:
            group = self._joined((address, topic), count)
            place = len(group.counts)
            group.counts.append(count)
            try:
                error = await asyncio.shield(group.task)  # a caller that goes away takes nobody with it
            except asyncio.CancelledError:
                self._settle(group, place, ())
                raise
            if error is not None:
                raise error
            records = group.part(place)
            if records or group.found_none:
                return CursorDeliveries(records, partial(self._settle, group, place))

    def _joined(self, key: _Key, count: int) -> _GetGroup:
        group = self._open.get(key)
        if group is None or sum(group.counts) + count > _RECORDS_MAX:
            group = self._open[key] = _GetGroup()
            group.task = task = asyncio.ensure_future(self._take(key, group))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return group

    async def _take(self, key: _Key, group: _GetGroup) -> HoldfastError | None:
        if self._open.get(key) is group:
            del self._open[key]
        address, topic = key
        try:
            connection = await self._nodes.acquire(address)
        except HoldfastError as error:
            return error
        records: Sequence[CursorRecord] = ()
        try:
            self._counters.forwarded += len(group.counts)
            reply = await connection.ask(f"TAKE {topic} {sum(group.counts)}".encode())
            raise_remote(reply, topic, 0)
            records = () if reply == EMPTY else decode_records(reply[len(OK) + 1 :])
        except HoldfastError as error:
            return error
        finally:
            if not records:
                self._nodes.release(connection)
        if records:
            group.connection = connection
            group.taken(records)
            self._settle_if_last(group)  # all callers may be gone
        return None

    def _settle(self, group: _GetGroup, place: int, runs: Sequence[int]) -> None:
        group.settle(place, runs)
        self._settle_if_last(group)

    def _settle_if_last(self, group: _GetGroup) -> None:
        connection = group.connection
        if connection is None or not group.is_settled:
            return
        group.connection = None
        task = asyncio.ensure_future(self._tell(connection, group.runs()))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _tell(self, connection: NodeConnection, runs: Sequence[int]) -> None:
        try:
            await connection.ask(f"SETTLE {' '.join(map(str, runs))}".encode())
        except OutcomeUnknownError:
            pass  # the owner gets its records back with the connection
        finally:
            self._nodes.release(connection)
