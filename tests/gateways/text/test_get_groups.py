"""GETs that are forwarded together: each caller gets its own records, and what one of them does not deliver comes back alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.text import TextNode, text_cluster
from tests.support.waiting import async_until

from holdfast.cursors.cursor import CursorDeliveries
from holdfast.cursors.settings import CursorCounters
from holdfast.gateways.text.get_groups import GetGroups
from holdfast.gateways.text.node_connections import NodeConnections
from holdfast.gateways.text.settings import TextCounters, TextSettings
from holdfast.vocabulary.errors import UnavailableError


class Owner:
    """The node that owns the cursor of `logs`, with records, and another one's side of it."""

    def __init__(self, node: TextNode, gets: GetGroups, forwarded: TextCounters) -> None:
        self._node, self._gets, self._forwarded = node, gets, forwarded

    async def take(self, *counts: int) -> list[CursorDeliveries]:
        """GETs that arrive together."""
        return await asyncio.gather(*map(self.one, counts))

    def one(self, count: int) -> "asyncio.Task[CursorDeliveries]":
        return asyncio.ensure_future(self._gets.take(self._node.address, "logs", count))

    @property
    def requests(self) -> int:
        """How many it has had."""
        return self._node.server.counters.requests

    @property
    def forwarded(self) -> int:
        return self._forwarded.forwarded

    @property
    def cursors(self) -> CursorCounters:
        return self._node.node.agent.cursors.counters

    async def until_settled(self) -> None:
        await async_until(lambda: not self._gets.settling)


@asynccontextmanager
async def owner_of(directory: Path, records: int) -> AsyncIterator[Owner]:
    async with text_cluster(directory, "ann") as cluster:
        ann = cluster.text["ann"]
        async with ann.client() as client:
            await client.ask("REGISTER logs", *(f"PUT logs {number}" for number in range(records)))
        nodes, counters = NodeConnections(TextSettings(), node=9), TextCounters()
        gets = GetGroups(nodes, counters)
        try:
            yield Owner(ann, gets, counters)
        finally:
            await gets.close()
            nodes.close()


def values(deliveries: list[CursorDeliveries]) -> list[list[bytes]]:
    return [[record.value for record in each.records] for each in deliveries]


async def test_gets_that_arrive_together_are_one_request_and_are_settled_by_one(tmp_path: Path) -> None:
    async with owner_of(tmp_path, 10) as owner:
        before = owner.requests
        taken = await owner.take(1, 2, 1, 3)
        assert values(taken) == [[b"0"], [b"1", b"2"], [b"3"], [b"4", b"5", b"6"]]
        for each in taken:
            each.settle(len(each.records))
        await owner.until_settled()
        assert owner.requests == before + 2  # TAKE and SETTLE
        assert (owner.forwarded, owner.cursors.delivered, owner.cursors.returned) == (4, 7, 0)


async def test_what_one_caller_does_not_deliver_comes_back_alone(tmp_path: Path) -> None:
    async with owner_of(tmp_path, 6) as owner:
        lost, half, whole = await owner.take(1, 2, 2)
        whole.settle(2)
        half.settle(1)
        assert owner.cursors.delivered == 0  # the owner hears of all at once
        lost.settle(0)
        await owner.until_settled()
        assert (owner.cursors.delivered, owner.cursors.returned) == (3, 2)
        assert values(await owner.take(6)) == [[b"0", b"2", b"5"]]


async def test_callers_for_whom_nothing_was_left_ask_again_until_the_end(tmp_path: Path) -> None:
    async with owner_of(tmp_path, 3) as owner:
        assert values(await owner.take(2, 2, 2)) == [[b"0", b"1"], [b"2"], []]
        assert values(await owner.take(1, 1)) == [[], []]


async def test_records_of_a_caller_that_is_gone_come_back(tmp_path: Path) -> None:
    async with owner_of(tmp_path, 2) as owner:
        gone, stays = owner.one(1), owner.one(1)

        async def cancel() -> None:  # once both have asked
            gone.cancel()

        taken, _ = await asyncio.gather(stays, cancel())
        with pytest.raises(asyncio.CancelledError):
            await gone
        taken.settle(1)
        await async_until(lambda: owner.cursors.returned == 1)
        assert owner.cursors.delivered == 1
        (again,) = await owner.take(2)
        assert len(again.records) == 1


async def test_all_callers_hear_that_the_owner_cannot_be_reached() -> None:
    nodes = NodeConnections(TextSettings(), node=9)
    gets = GetGroups(nodes, TextCounters())
    asked = (gets.take("127.0.0.1:1", "logs", 1) for _ in range(3))
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(each) for each in results] == [UnavailableError] * 3
    await gets.close()
