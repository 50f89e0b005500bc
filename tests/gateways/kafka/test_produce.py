"""Produce: every version, every acks, what is refused and what that does to the rest of the request."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest
from tests.support.kafka_wire import (
    FETCH,
    PRODUCE,
    fetch_request,
    gateway_on,
    produce_request,
    version_params,
    versions_of,
)
from tests.support.partitions import batch, records

from holdfast.kafka.error_codes import ErrorCode
from holdfast.log.batches import Record, encode, parse_header
from holdfast.log.batches.header import CRC_AT, HEADER, HEADER_BYTES, checksum
from holdfast.vocabulary.random import SeededRandom


async def id_of(gateway: object, topic: str) -> UUID:
    return UUID((await gateway.backend.log.topics.get(topic)).id)  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", version_params(versions_of(PRODUCE)))
async def test_every_version_appends_and_returns_the_offset(tmp_path: Path, version: int) -> None:
    async with gateway_on(tmp_path, topics={"orders": 2}) as gateway:
        client, topic_id = await gateway.client(), await id_of(gateway, "orders")
        for round_ in range(2):
            given = produce_request("orders", {0: batch("a", "b"), 1: batch("c")}, topic_id=topic_id)
            answer = await client.ask(PRODUCE, version, given)
            (topic,) = answer.responses
            assert topic.topic_id == topic_id if version >= 13 else topic.name == "orders"
            placed = {each.index: (each.error_code.value, each.base_offset) for each in topic.partition_responses}
            assert placed == {0: (0, 2 * round_), 1: (0, round_)}
        fetched = await gateway.backend.log.fetch("orders", 0, 0)
        assert records(fetched.batches) == [(0, "a"), (1, "b"), (2, "a"), (3, "b")]


async def test_several_batches_for_one_partition_are_all_kept(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        client = await gateway.client()
        answer = await client.ask(PRODUCE, 9, produce_request("orders", {0: batch("a") + batch("b", "c") + batch("d")}))
        assert answer.responses[0].partition_responses[0].base_offset == 0
        assert [value for _, value in records((await gateway.backend.log.fetch("orders", 0, 0)).batches)] == [
            "a",
            "b",
            "c",
            "d",
        ]


@pytest.mark.parametrize("acks", [1, -1])
async def test_what_was_acknowledged_is_visible(tmp_path: Path, acks: int) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        client = await gateway.client()
        await client.ask(PRODUCE, 9, produce_request("orders", {0: batch("a")}, acks=acks))
        fetched = await client.ask(FETCH, 12, fetch_request("orders", {0: 0}))
        assert fetched.responses[0].partitions[0].high_watermark == 1


async def test_without_acks_there_is_no_response_and_the_next_request_gets_one(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        client = await gateway.client()
        await client.send(PRODUCE, 9, produce_request("orders", {0: batch("a")}, acks=0))
        answer = await client.ask(PRODUCE, 9, produce_request("orders", {0: batch("b")}))
        assert answer.responses[0].partition_responses[0].base_offset == 1


async def test_an_error_without_acks_closes_the_connection(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        client = await gateway.client()
        await client.send(PRODUCE, 9, produce_request("nowhere", {0: batch("a")}, acks=0))
        assert await client.hung_up()


async def test_one_partition_refused_leaves_the_others_alone(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 2}) as gateway:
        client = await gateway.client()
        broken = bytearray(batch("a"))
        broken[-1] ^= 1
        answer = await client.ask(
            PRODUCE, 9, produce_request("orders", {0: bytes(broken), 1: batch("b"), 7: batch("c")})
        )
        codes = {each.index: each.error_code.value for each in answer.responses[0].partition_responses}
        assert codes == {0: ErrorCode.CORRUPT_MESSAGE, 1: ErrorCode.NONE, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        messages = {each.index: each.error_message for each in answer.responses[0].partition_responses}
        assert "CRC" in messages[0]
        assert messages[1] is None


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"records": {0: b""}}, ErrorCode.INVALID_RECORD),
        ({"records": {0: None}}, ErrorCode.INVALID_RECORD),
        ({"records": {0: encode([Record(0, 1, None, bytes(2_000_000))])}}, ErrorCode.MESSAGE_TOO_LARGE),
        ({"records": {0: batch("a")[:40]}}, ErrorCode.CORRUPT_MESSAGE),
        ({"records": {0: batch("a")}, "acks": 2}, ErrorCode.INVALID_REQUIRED_ACKS),
    ],
)
async def test_what_cannot_be_appended_gets_its_code(tmp_path: Path, given: dict[str, object], code: ErrorCode) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        client = await gateway.client()
        answer = await client.ask(PRODUCE, 9, produce_request("orders", **given))  # type: ignore[arg-type]
        assert answer.responses[0].partition_responses[0].error_code.value == code
        assert (await client.ask(PRODUCE, 9, produce_request("orders", {0: batch("b")}))).responses[
            0
        ].partition_responses[0].base_offset == 0


async def test_a_transactional_producer_is_refused(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        client = await gateway.client()
        given = {**produce_request("orders", {0: batch("a")}), "transactional_id": "tx"}
        refused = (await client.ask(PRODUCE, 9, given)).responses[0].partition_responses[0]
        assert refused.error_code.value == ErrorCode.INVALID_REQUEST
        assert "transactions" in refused.error_message


async def test_an_unknown_topic_id_gets_its_code(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        client = await gateway.client()
        answer = await client.ask(PRODUCE, 13, produce_request("", {0: batch("a")}, topic_id=UUID(int=4711)))
        assert answer.responses[0].partition_responses[0].error_code.value == ErrorCode.UNKNOWN_TOPIC_ID


async def test_pipelined_requests_are_appended_and_answered_in_order(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        client = await gateway.client()
        sent = [await client.send(PRODUCE, 9, produce_request("orders", {0: batch(str(n))})) for n in range(50)]
        offsets = []
        for correlation in sent:
            answer = client.understood(PRODUCE, 9, correlation, await client.receive())
            offsets.append(answer.responses[0].partition_responses[0].base_offset)
        assert offsets == list(range(50))


async def test_requests_under_backpressure_keep_their_order(tmp_path: Path) -> None:
    async with gateway_on(
        tmp_path, topics={"orders": 1}
    ) as gateway:  # an agent of the tests books 100 offsets at a time
        client = await gateway.client()
        wanted = [f"{n}" for n in range(400)]
        for n in range(0, 400, 40):
            await client.send(PRODUCE, 9, produce_request("orders", {0: batch(*wanted[n : n + 40])}))
        for _ in range(10):
            await client.receive()
        assert [value for _, value in records((await gateway.backend.log.fetch("orders", 0, 0)).batches)] == wanted


async def test_log_append_time_is_returned(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}, config={"message_timestamp_type": "append_time"}) as gateway:
        client = await gateway.client()
        before = gateway.backend.clock.now_ms()
        answer = await client.ask(PRODUCE, 3, produce_request("orders", {0: batch("a")}))
        assert before <= answer.responses[0].partition_responses[0].log_append_time.timestamp() * 1000


async def test_a_producer_that_hangs_up_does_not_harm_what_it_sent(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        client = await gateway.client()
        await client.send(PRODUCE, 9, produce_request("orders", {0: batch("a")}))
        client.close()
        other = await gateway.client()
        async with asyncio.timeout(10):
            while (await other.ask(FETCH, 12, fetch_request("orders", {0: 0}))).responses[0].partitions[
                0
            ].high_watermark < 1:
                await gateway.backend.clock.sleep_ms(10)


def keyed(*keys: bytes | None, compression: str = "none") -> bytes:
    return encode([Record(at, 1, key, b"v") for at, key in enumerate(keys)], compression=compression)


@pytest.mark.parametrize("version", version_params(versions_of(PRODUCE)))
async def test_the_records_at_fault_are_named(tmp_path: Path, version: int) -> None:
    config = {"cleanup_policy": "compact"}
    async with gateway_on(tmp_path, topics={"orders": 1}, config=config) as gateway:
        client, topic_id = await gateway.client(), await id_of(gateway, "orders")
        given = produce_request("orders", {0: keyed(b"a", None, b"b", None, compression="zstd")}, topic_id=topic_id)
        (refused,) = (await client.ask(PRODUCE, version, given)).responses[0].partition_responses
        assert refused.error_code.value == ErrorCode.INVALID_RECORD
        if version >= 8:
            assert [each.batch_index for each in refused.record_errors] == [1, 3]
            assert "needs a key" in refused.record_errors[0].batch_index_error_message
            assert refused.error_message == "invalid records without a key [1, 3]: must be none: the topic is compacted"
        sound = produce_request("orders", {0: keyed(b"a", b"b")}, topic_id=topic_id)
        (taken,) = (await client.ask(PRODUCE, version, sound)).responses[0].partition_responses
        assert taken.base_offset == 0
        assert version < 8 or taken.record_errors == ()


def with_fields(batch: bytes, **fields: int) -> bytes:
    """The batch with another header, and its checksum."""
    changed = bytearray(HEADER.pack(*parse_header(batch)._replace(**fields)) + batch[HEADER_BYTES:])
    changed[CRC_AT : CRC_AT + 4] = checksum(changed).to_bytes(4, "big")
    return bytes(changed)


THREE = encode([Record(at, 1, b"k", b"v") for at in range(3)])


@pytest.mark.parametrize(
    ("records", "code", "named"),
    [
        (with_fields(THREE, count=2, last_offset_delta=1), ErrorCode.INVALID_RECORD, [2, 2]),
        (with_fields(THREE[:-1], length=len(THREE) - 13), ErrorCode.INVALID_RECORD, [2, 2]),
        (with_fields(THREE, attributes=4), ErrorCode.INVALID_RECORD, []),
        (encode([Record(0, 1, b"k", bytes(40 << 20))], compression="zstd"), ErrorCode.MESSAGE_TOO_LARGE, []),
    ],
    ids=["a record too many", "a record cut short", "not compressed", "a bomb"],
)
async def test_a_batch_no_consumer_could_read_gets_its_code(
    tmp_path: Path, records: bytes, code: ErrorCode, named: list[int]
) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        client = await gateway.client()
        (refused,) = (
            (await client.ask(PRODUCE, 9, produce_request("orders", {0: records}))).responses[0].partition_responses
        )
        assert refused.error_code.value == code
        assert [each.batch_index for each in refused.record_errors] == named
        assert (await gateway.backend.log.fetch("orders", 0, 0)).high_watermark == 0


async def test_large_and_small_pipelined_requests_are_appended_in_order(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        client = await gateway.client()
        value = SeededRandom(1).random.randbytes(100_000)
        large = encode([Record(0, 1, b"k", value)], compression="gzip")
        given = [large if n % 3 == 0 else batch(str(n)) for n in range(30)]
        sent = [await client.send(PRODUCE, 9, produce_request("orders", {0: each})) for each in given]
        offsets = []
        for correlation in sent:
            answer = client.understood(PRODUCE, 9, correlation, await client.receive())
            offsets.append(answer.responses[0].partition_responses[0].base_offset)
        assert offsets == list(range(30))
