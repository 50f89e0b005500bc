"""Large fetches, whose partitions take far more memory than their bytes: so many at a time, and nobody keeps others out."""

import asyncio
import struct
from pathlib import Path

from tests.support.kafka_raw_requests import request, text
from tests.support.kafka_wire import PRODUCE, gateway_on, produce_request
from tests.support.partitions import batch
from tests.support.waiting import WAIT_S, async_until

from holdfast.gateways.kafka.fetch_room import FetchRoom
from holdfast.kafka.api_keys import ApiKey

PARTITIONS = 2_000


def large_fetch(wait_ms: int = 200_000) -> bytes:
    """Fetch 4 that names one partition again and again."""
    partitions = struct.pack(">iqi", 0, 0, 1_000) * PARTITIONS
    topics = struct.pack(">i", 1) + text("orders") + struct.pack(">i", PARTITIONS) + partitions
    return request(ApiKey.FETCH, 4, 1, struct.pack(">iiiib", -1, wait_ms, 1, 1_000_000, 0) + topics)


async def test_a_fetch_that_waits_for_records_ends_early_for_one_that_has_no_room(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}, fetch_partitions_max=PARTITIONS) as gateway:
        room = gateway.backend.fetch_room
        first, second, gone = [await gateway.client() for _ in range(3)]
        await first.send_bytes(large_fetch())
        await async_until(lambda: bool(room._waiting))
        await second.send_bytes(large_fetch())
        async with asyncio.timeout(WAIT_S):
            _, answer = await first.receive()
        assert len(answer) > PARTITIONS * 30  # all partitions, no records
        await async_until(lambda: bool(room._waiting))
        assert room.left < PARTITIONS // 10
        room._waiting.clear()  # as if it were still reading
        await gone.send_bytes(large_fetch())
        await async_until(lambda: bool(room._line))
        gone.writer.close()
        await async_until(lambda: not room._line)
        await first.ask(PRODUCE, 9, produce_request("orders", {0: batch("x")}))
        async with asyncio.timeout(WAIT_S):
            await second.receive()
        assert room.left == PARTITIONS


async def test_room_is_given_in_the_order_of_requests_and_none_is_lost() -> None:
    room, entered = FetchRoom(10), list[int]()

    async def hold(number: int, count: int, until: "asyncio.Future[None]") -> None:
        async with room.taken(count):
            entered.append(number)
            await until

    ends = [asyncio.get_running_loop().create_future() for _ in range(4)]
    tasks = [asyncio.ensure_future(hold(at, (6, 99, 2, 3)[at], ends[at])) for at in range(4)]
    await asyncio.sleep(0)  # noqa: TID251 (no time passes)
    assert entered == [0]  # the third would fit, but the second came before
    tasks[1].cancel()
    await async_until(lambda: entered == [0, 2])  # and the fourth does not fit
    ends[0].set_result(None)
    tasks[3].cancel()  # in the moment in which it gets its room
    await asyncio.wait(tasks[:2] + tasks[3:])
    ends[2].set_result(None)
    await tasks[2]
    assert room.left == 10


async def test_a_fetch_that_is_cancelled_in_line_as_others_leave_ends_as_such() -> None:
    room = FetchRoom(10)
    async with room.taken(10):
        waiting = asyncio.ensure_future(hold(room, 5))
        await asyncio.sleep(0)  # noqa: TID251 (no time passes)
        waiting.cancel()
    await asyncio.wait((waiting,))
    assert waiting.cancelled()
    assert room.left == 10


async def test_no_more_fetches_end_early_than_those_in_line_need() -> None:
    room, ended = FetchRoom(10), list[str]()
    async with room.taken(5) as first, room.taken(5) as second:
        first.may_end(lambda: ended.append("first"))
        waiting = asyncio.ensure_future(hold(room, 5))
        await async_until(lambda: bool(ended))
        second.may_end(lambda: ended.append("second"))  # the first one is about to leave
        assert ended == ["first"]
        second.forget()
        waiting.cancel()
    await asyncio.wait((waiting,))
    assert (room.left, room._ending) == (10, 0)


async def hold(room: FetchRoom, count: int) -> None:
    async with room.taken(count):
        pass


async def test_fetches_of_one_session_read_no_more_at_a_time_than_sessions_may_name(tmp_path: Path) -> None:
    many = 150
    async with gateway_on(tmp_path, topics={"orders": many}, fetch_session_partitions_max=many) as gateway:
        first, second = [await gateway.client() for _ in range(2)]
        await first.send_bytes(session_fetch(0, 0, range(many)))
        _, answer = await first.receive()
        session = struct.unpack_from(">ihi", answer)[-1]
        await first.send_bytes(session_fetch(session, 1))
        await async_until(lambda: bool(gateway.backend.session_room._waiting))
        await second.send_bytes(session_fetch(session, 2))
        async with asyncio.timeout(WAIT_S):
            await first.receive()
        assert gateway.backend.session_room.left == 0


def session_fetch(session: int, epoch: int, numbers: range = range(0)) -> bytes:
    """Fetch 7 that adds partitions to a session."""
    partitions = [struct.pack(">iqqi", number, 0, 0, 1_000) for number in numbers]
    topics = struct.pack(">i", 1) + text("orders") + struct.pack(">i", len(numbers)) + b"".join(partitions)
    wanted = topics if numbers else struct.pack(">i", 0)
    head = struct.pack(">iiiibii", -1, 200_000, 1 if epoch else 0, 1_000_000, 0, session, epoch)
    return request(ApiKey.FETCH, 7, 1, head + wanted + struct.pack(">i", 0))
