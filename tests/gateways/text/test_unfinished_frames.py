"""Requests that have not arrived whole hold a limited amount of memory."""

import asyncio
from pathlib import Path

from tests.support.text import LENGTH, text_cluster
from tests.support.waiting import async_until

from holdfast.gateways.text.settings import TextSettings
from holdfast.gateways.text.unfinished_frames import UnfinishedFrames
from holdfast.vocabulary.settings import KIB


class Sender:
    def __init__(self, busy: bool = False) -> None:
        self.busy = busy


def test_the_frame_that_began_first_goes() -> None:
    frames = UnfinishedFrames[Sender](100)
    first, second, third = Sender(), Sender(), Sender()
    assert frames.update(first, 50, began=True) is None
    assert frames.update(second, 50, began=True) is None
    assert frames.update(first, 20, began=True) is None  # its frame arrived whole, and another one has begun
    assert frames.update(third, 31, began=True) is second
    assert frames.size_bytes == 51
    assert frames.update(third, 90, began=False) is first
    assert frames.size_bytes == 90


def test_a_sender_that_waits_for_answers_goes_last() -> None:
    frames = UnfinishedFrames[Sender](100)
    busy, other = Sender(busy=True), Sender()
    frames.update(busy, 60, began=True)
    assert frames.update(other, 60, began=True) is other
    assert frames.update(Sender(busy=True), 60, began=True) is busy


def test_a_frame_alone_may_be_of_any_size_and_what_has_arrived_counts_no_more() -> None:
    frames = UnfinishedFrames[Sender](100)
    alone = Sender()
    assert frames.update(alone, 500, began=True) is None
    assert frames.update(alone, 0, began=True) is None
    assert frames.size_bytes == 0
    frames.update(alone, 70, began=True)
    frames.forget(alone)
    assert frames.size_bytes == 0


async def test_the_slowest_client_is_told_and_closed_and_the_others_go_on(tmp_path: Path) -> None:
    settings = TextSettings(frame_bytes_max=8 * KIB, unfinished_bytes_max=8 * KIB)
    async with text_cluster(tmp_path, "ann", settings=settings) as cluster:
        server = cluster.text["ann"].server
        async with cluster.text["ann"].client() as slow, cluster.text["ann"].client() as quick:
            slow.writer.write(LENGTH.pack(6_000) + b"x" * 5_000)
            await async_until(lambda: server.unfinished_bytes == 5_004)
            quick.writer.write(LENGTH.pack(6_000) + b"PUT logs " + b"x" * 5_000)
            reply = await slow.reply()
            assert reply == (
                b"ERR unavailable: memory of requests is unavailable: requests that have not arrived whole exceed 8192 bytes"
            )
            assert await slow.reader.read() == b""
            quick.writer.write(b"x" * 991)
            assert await quick.reply() == b"OK"
        await async_until(lambda: not server.connections)
        assert (server.unfinished_bytes, server.counters.unfinished_closed) == (0, 1)


async def test_a_client_that_is_gone_leaves_nothing_behind(tmp_path: Path) -> None:
    async with text_cluster(tmp_path, "ann") as cluster:
        server = cluster.text["ann"].server
        async with cluster.text["ann"].client() as client:
            client.writer.write(LENGTH.pack(6_000) + b"x" * 1_000)
            await async_until(lambda: server.unfinished_bytes == 1_004)
        await async_until(lambda: not server.connections)
        assert server.unfinished_bytes == 0


async def test_frames_that_come_in_pieces_are_counted_until_they_are_whole(tmp_path: Path) -> None:
    async with text_cluster(tmp_path, "ann") as cluster:
        server = cluster.text["ann"].server
        async with cluster.text["ann"].client() as client:
            request = b"PUT logs " + b"x" * 100
            client.writer.write(LENGTH.pack(len(request)) + request[:50])
            await async_until(lambda: server.unfinished_bytes == 54)
            client.writer.write(request[50:] + LENGTH.pack(len(request)))
            assert await asyncio.wait_for(client.reply(), 60) == b"OK"
            assert server.unfinished_bytes == 4
