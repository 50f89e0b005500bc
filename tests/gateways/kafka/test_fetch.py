"""Fetch: every version, long polls, limits, sessions, and who is told about leaders elsewhere."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.support.kafka_wire import FETCH, KafkaGateway, fetch_request, gateway_on, version_params, versions_of
from tests.support.partitions import batch, records
from tests.support.waiting import async_until

from holdfast.kafka.error_codes import ErrorCode


async def filled(gateway: KafkaGateway, topic: str = "orders", partitions: int = 1, *values: str) -> UUID:
    for number in range(partitions):
        for value in values or ("a", "b", "c"):
            await gateway.backend.log.produce(topic, number, batch(value))
    return UUID((await gateway.backend.log.topics.get(topic)).id)


def read(answer: Any, at: int = 0) -> list[tuple[int, str]]:
    data = answer.responses[0].partitions[at].records
    return records([data]) if data else []


@pytest.mark.parametrize("version", version_params(versions_of(FETCH)))
async def test_every_version_returns_what_was_produced(tmp_path: Path, version: int) -> None:
    async with gateway_on(tmp_path, topics={"orders": 2}) as gateway:
        topic_id = await filled(gateway, "orders", 2)
        client = await gateway.client()
        answer = await client.ask(FETCH, version, fetch_request("orders", {0: 1, 1: 0}, topic_id=topic_id))
        (topic,) = answer.responses
        assert topic.topic_id == topic_id if version >= 13 else topic.topic == "orders"
        first, second = topic.partitions
        assert (first.partition_index, first.error_code.value, first.high_watermark) == (0, 0, 3)
        assert records([first.records]) == [(1, "b"), (2, "c")]
        assert records([second.records]) == [(0, "a"), (1, "b"), (2, "c")]
        assert first.last_stable_offset == 3
        if version >= 5:
            assert first.log_start_offset == 0


async def test_a_long_poll_is_woken_by_the_first_of_many_partitions(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 5}) as gateway:
        client = await gateway.client()
        correlation = await client.send(FETCH, 12, fetch_request("orders", dict.fromkeys(range(5), 0), wait_ms=60_000))
        led = await gateway.backend.log._led("orders", 3)
        await async_until(lambda: led._visible._waiters)
        await gateway.backend.log.produce("orders", 3, batch("now"))
        async with asyncio.timeout(10):
            answer = client.understood(FETCH, 12, correlation, await client.receive())
        assert [len(each.records or b"") > 0 for each in answer.responses[0].partitions] == [False] * 3 + [True, False]


async def test_a_long_poll_ends_empty_in_time(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        client = await gateway.client()
        answer = await client.ask(FETCH, 12, fetch_request("orders", {0: 0}, wait_ms=50))
        assert not answer.responses[0].partitions[0].records


async def test_a_long_poll_waits_for_its_min_bytes(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        client = await gateway.client()
        one = len(batch("a"))
        correlation = await client.send(FETCH, 12, fetch_request("orders", {0: 0}, wait_ms=60_000, bytes_min=3 * one))
        led = await gateway.backend.log._led("orders", 0)
        for value in "abc":
            await async_until(
                lambda: any(
                    isinstance(waiter, asyncio.Future) and not waiter.done() for _, _, waiter in led._visible._waiters
                )
            )
            await gateway.backend.log.produce("orders", 0, batch(value))
        async with asyncio.timeout(10):
            answer = client.understood(FETCH, 12, correlation, await client.receive())
        assert [value for _, value in read(answer)] == ["a", "b", "c"]


async def test_limits_hold_except_for_the_first_batch(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 2}) as gateway:
        await filled(gateway, "orders", 2, "x" * 1000, "y" * 1000)
        client = await gateway.client()
        answer = await client.ask(FETCH, 12, fetch_request("orders", {0: 0, 1: 0}, partition_bytes_max=10))
        assert [value[0] for _, value in read(answer)] == ["x"]
        assert not answer.responses[0].partitions[1].records  # others came first
        answer = await client.ask(FETCH, 12, fetch_request("orders", {0: 0, 1: 0}, bytes_max=2_500))
        assert [value[0] for _, value in read(answer)] == ["x", "y"]
        assert not answer.responses[0].partitions[1].records


@pytest.mark.parametrize("limits", [{"bytes_max": 0}, {"partition_bytes_max": 0}])
async def test_a_limit_of_zero_brings_the_first_batch(tmp_path: Path, limits: dict[str, Any]) -> None:
    async with gateway_on(tmp_path, topics={"orders": 2}) as gateway:
        await filled(gateway, "orders", 2)
        client = await gateway.client()
        answer = await client.ask(FETCH, 12, fetch_request("orders", {0: 1, 1: 0}, **limits))
        assert read(answer) == [(1, "b")]
        assert not answer.responses[0].partitions[1].records


async def test_an_offset_out_of_range_returns_the_range(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        await filled(gateway)
        client = await gateway.client()
        answer = await client.ask(FETCH, 12, fetch_request("orders", {0: 99}, wait_ms=60_000))
        partition = answer.responses[0].partitions[0]
        assert partition.error_code.value == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (partition.log_start_offset, partition.high_watermark) == (0, 3)


@pytest.mark.parametrize(("topic", "number"), [("nowhere", 0), ("orders", 5)])
async def test_unknown_partitions_end_the_wait(tmp_path: Path, topic: str, number: int) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        client = await gateway.client()
        answer = await client.ask(FETCH, 12, fetch_request(topic, {number: 0}, wait_ms=60_000))
        assert answer.responses[0].partitions[0].error_code.value == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer = await client.ask(FETCH, 13, fetch_request("", {0: 0}, wait_ms=60_000, topic_id=UUID(int=4711)))
        assert answer.responses[0].partitions[0].error_code.value == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(("ahead", "code"), [(-1, ErrorCode.FENCED_LEADER_EPOCH), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)])
async def test_a_wrong_leader_epoch_gets_its_code(tmp_path: Path, ahead: int, code: ErrorCode) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        client = await gateway.client()
        epoch = (await gateway.backend.log._led("orders", 0)).lease.epoch
        answer = await client.ask(FETCH, 12, fetch_request("orders", {0: 0}, leader_epoch=epoch + ahead))
        assert answer.responses[0].partitions[0].error_code.value == code


async def test_a_session_returns_only_changes(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 3}) as gateway:
        client = await gateway.client()
        first = await client.ask(FETCH, 12, fetch_request("orders", {0: 0, 1: 0, 2: 0}, session=(0, 0)))
        assert first.session_id > 0
        assert len(first.responses[0].partitions) == 3
        await gateway.backend.log.produce("orders", 1, batch("a"))
        second = await client.ask(FETCH, 12, fetch_request("orders", {}, session=(first.session_id, 1)))
        assert [each.partition_index for each in second.responses[0].partitions] == [1]
        third = await client.ask(FETCH, 12, fetch_request("orders", {1: 1}, session=(first.session_id, 2)))
        assert third.responses == ()
        fourth = await client.ask(FETCH, 12, fetch_request("orders", {}, forgotten=[1], session=(first.session_id, 3)))
        assert fourth.responses == ()
        await gateway.backend.log.produce("orders", 1, batch("b"))
        fifth = await client.ask(FETCH, 12, fetch_request("orders", {}, session=(first.session_id, 4)))
        assert fifth.responses == ()


async def test_sessions_remember_a_limited_number_of_partitions(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 3}, fetch_session_partitions_max=3) as gateway:
        client, other = await gateway.client(), await gateway.client()
        first = await client.ask(FETCH, 12, fetch_request("orders", {0: 0, 1: 0}, session=(0, 0)))
        assert first.session_id > 0
        second = await other.ask(FETCH, 12, fetch_request("orders", {0: 0, 1: 0}, session=(0, 0)))
        assert (second.session_id, second.error_code.value) == (0, ErrorCode.NONE)  # served, without a session
        more = await other.ask(FETCH, 12, fetch_request("orders", {0: 0}, session=(0, 0)))
        grown = await other.ask(FETCH, 12, fetch_request("orders", {2: 0}, session=(more.session_id, 1)))
        assert grown.error_code.value == ErrorCode.FETCH_SESSION_ID_NOT_FOUND  # it starts over
        assert gateway.backend.fetch_sessions.partitions == 2
        await client.ask(FETCH, 12, fetch_request("orders", {}, session=(first.session_id, -1)))
        assert gateway.backend.fetch_sessions.partitions == 0


@pytest.mark.parametrize(
    ("session", "code"),
    [((4711, 1), ErrorCode.FETCH_SESSION_ID_NOT_FOUND), ((0, 5), ErrorCode.FETCH_SESSION_ID_NOT_FOUND)],
)
async def test_an_unknown_session_gets_its_code(tmp_path: Path, session: tuple[int, int], code: ErrorCode) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        client = await gateway.client()
        assert (await client.ask(FETCH, 12, fetch_request("orders", {0: 0}, session=session))).error_code.value == code


async def test_a_wrong_session_epoch_gets_its_code(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        client = await gateway.client()
        first = await client.ask(FETCH, 12, fetch_request("orders", {0: 0}, session=(0, 0)))
        answer = await client.ask(FETCH, 12, fetch_request("orders", {}, session=(first.session_id, 7)))
        assert answer.error_code.value == ErrorCode.INVALID_FETCH_SESSION_EPOCH


@pytest.mark.parametrize(("before", "after"), [(12, 18), (18, 12)])
async def test_a_session_is_either_by_name_or_by_id(tmp_path: Path, before: int, after: int) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        topic_id = await filled(gateway)
        client = await gateway.client()
        first = await client.ask(FETCH, before, fetch_request("orders", {0: 0}, topic_id=topic_id, session=(0, 0)))
        session = (first.session_id, 1)
        answer = await client.ask(FETCH, after, fetch_request("orders", {0: 3}, topic_id=topic_id, session=session))
        assert answer.error_code.value == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


async def test_published_records_are_read_from_object_storage(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        await filled(gateway)
        await gateway.backend.log.flush("orders", 0)
        client = await gateway.client()
        assert read(await client.ask(FETCH, 12, fetch_request("orders", {0: 0}))) == [(0, "a"), (1, "b"), (2, "c")]
