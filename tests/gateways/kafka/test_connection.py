"""Connections: frames in pieces, frames that are none, limits, and order."""

import asyncio
import logging
import socket
from pathlib import Path

import pytest
from tests.support.kafka_wire import (
    API_VERSIONS,
    FETCH,
    METADATA,
    PRODUCE,
    KafkaGateway,
    WireClient,
    fetch_request,
    gateway_on,
    produce_request,
    request_frame,
    versions_of,
)
from tests.support.partitions import batch
from tests.support.waiting import async_until

from holdfast.gateways.http.metrics.kafka import kafka_metrics
from holdfast.gateways.kafka.api_table import APIS, KAFKA_APIS
from holdfast.kafka.error_codes import ErrorCode
from holdfast.log.batches import Record, encode

SOFTWARE = {"client_software_name": "tests", "client_software_version": "1"}


@pytest.mark.parametrize("version", versions_of(API_VERSIONS))
async def test_api_versions_lists_exactly_what_is_implemented(tmp_path: Path, version: int) -> None:
    async with gateway_on(tmp_path) as gateway:
        answer = await (await gateway.client()).ask(API_VERSIONS, version, SOFTWARE)
        listed = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        assert listed == {key: api.versions for key, api in KAFKA_APIS.items()}
        assert not {24, 25, 26, 28, 69} & set(listed)  # transactions, new groups: not offered


async def test_a_newer_api_versions_request_gets_a_response_in_version_zero(tmp_path: Path) -> None:
    async with gateway_on(tmp_path) as gateway:
        client = await gateway.client()
        frame = bytearray(request_frame(API_VERSIONS, 4, SOFTWARE, correlation=7, client_id="tests"))
        frame[2:4] = (99).to_bytes(2, "big")
        await client.send_bytes(len(frame).to_bytes(4, "big") + bytes(frame))
        answer = client.understood(API_VERSIONS, 0, 7, await client.receive())
        assert answer.error_code.value == ErrorCode.UNSUPPORTED_VERSION
        assert {each.api_key for each in answer.api_keys} == set(KAFKA_APIS)


async def test_a_request_may_arrive_byte_by_byte(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        client = await gateway.client()
        frame = request_frame(PRODUCE, 9, produce_request("orders", {0: batch("a")}), correlation=3, client_id="é")
        for byte in len(frame).to_bytes(4, "big") + frame:
            await client.send_bytes(bytes([byte]))
            await gateway.backend.clock.sleep_ms(0)
        answer = client.understood(PRODUCE, 9, 3, await client.receive())
        assert answer.responses[0].partition_responses[0].base_offset == 0


async def test_large_and_small_requests_mix_in_one_stream(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        client = await gateway.client()
        sizes = [10, 900_000, 30, 200_000, 700_000, 5]
        stream = b""
        for correlation, size in enumerate(sizes):
            records = encode([Record(0, 1, None, bytes([size % 251]) * size)])
            frame = request_frame(
                PRODUCE, 9, produce_request("orders", {0: records}), correlation=correlation, client_id="tests"
            )
            stream += len(frame).to_bytes(4, "big") + frame
        sending = asyncio.ensure_future(client.send_bytes(stream))
        for correlation in range(len(sizes)):
            answer = client.understood(PRODUCE, 9, correlation, await client.receive())
            assert answer.responses[0].partition_responses[0].base_offset == correlation
        await sending


async def test_a_connection_that_is_accepted_while_the_server_closes_is_closed(tmp_path: Path) -> None:
    async with gateway_on(tmp_path) as gateway:
        accepting = gateway.server._listeners[0]._protocol_factory  # type: ignore[attr-defined]  # what the loop calls
        gateway.server.close()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            client = WireClient(*await asyncio.open_connection(*listening.getsockname()))
            accepted, _ = listening.accept()
            await asyncio.get_running_loop().connect_accepted_socket(accepting, accepted)
            async with asyncio.timeout(10):
                assert await gone(client)
            client.close()
        assert not gateway.server.connections


GARBAGE = {
    "a length of zero": b"\0\0\0\0",
    "a negative length": b"\xff\xff\xff\xff",
    "a length beyond the limit": (1 << 30).to_bytes(4, "big"),
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a TLS hello": bytes.fromhex("1603010200010001fc0303") + bytes(100),
    "an unknown api": (8).to_bytes(4, "big") + (999).to_bytes(2, "big") + bytes(6),
    "a version nobody speaks": (10).to_bytes(4, "big") + b"\0\0\x03\xe7" + bytes(6),
    "a client id longer than the request": (10).to_bytes(4, "big") + b"\0\x03\0\x01" + bytes(4) + b"\x7f\xff",
    "a body that ends too soon": (11).to_bytes(4, "big") + b"\0\0\0\x03" + bytes(4) + b"\xff\xff\0",
    "an array longer than the request": (20).to_bytes(4, "big")
    + b"\0\0\0\x03"
    + bytes(4)
    + b"\xff\xff\xff\xff\0\x01"
    + b"\0\0\0\x01\x7f\xff",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
async def test_garbage_closes_that_connection_with_a_log_line_and_nothing_else(
    tmp_path: Path, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        other, client = await gateway.client(), await gateway.client()
        with caplog.at_level(logging.WARNING, logger="holdfast.gateways.kafka"):
            await client.send_bytes(garbage)
            async with asyncio.timeout(10):
                assert await client.hung_up()
        lines = [each for each in caplog.records if each.name.startswith("holdfast.gateways.kafka")]
        assert len(lines) == 1
        assert "closing connection" in lines[0].getMessage()
        assert lines[0].exc_info is None
        answer = await other.ask(PRODUCE, 9, produce_request("orders", {0: batch("a")}))
        assert answer.responses[0].partition_responses[0].error_code.value == 0
        assert gateway.server.malformed + gateway.server.unsupported.by_api.total() == 1


async def test_an_unsupported_request_is_logged_once_with_its_client_and_counted_by_api(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway_on(tmp_path) as gateway:
        with caplog.at_level(logging.WARNING, logger="holdfast.gateways.kafka"):
            for key, version in ((76, 1), (76, 1), (FETCH, 99), (9_999, 0)):
                client = await gateway.client()
                await client.ask(API_VERSIONS, 4, {**SOFTWARE, "client_software_name": "curious"})
                head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\0\x05billy"
                await client.send_bytes(len(head).to_bytes(4, "big") + head)
                async with asyncio.timeout(10):
                    assert await client.hung_up()
        records = [each for each in caplog.records if each.name.startswith("holdfast.gateways.kafka")]
        lines = [each.getMessage() for each in records]
        assert len(lines) == 3
        assert "client 'billy' (curious 1) sent ShareGroupHeartbeat v1: not supported" in lines[0]
        assert "sent Fetch v99, which has versions 4 to 18 here: not supported" in lines[1]
        assert "sent API 9999 v0: not supported" in lines[2]
        counted = {"ShareGroupHeartbeat": 2, "Fetch": 1, "unknown": 1}
        assert gateway.server.unsupported_by_api == counted
        (family,) = [
            each
            for each in await kafka_metrics(gateway.server, (), gateway.backend.responses, ())()
            if each.name == "holdfast_kafka_unsupported_total"
        ]
        assert {labels["api"]: count for labels, count in family.samples} == counted
        assert gateway.server.malformed == 0


async def test_bytes_after_the_last_field_are_ignored(tmp_path: Path) -> None:
    async with gateway_on(tmp_path) as gateway:
        client = await gateway.client()
        frame = request_frame(METADATA, 13, {"topics": None}, correlation=5, client_id="tests") + bytes(3)
        await client.send_bytes(len(frame).to_bytes(4, "big") + frame)
        answer = client.understood(METADATA, 13, 5, await client.receive())
        assert [each.node_id for each in answer.brokers] == [1]


@pytest.mark.parametrize("key", [key for key in APIS if key != PRODUCE])
async def test_a_request_without_records_has_a_limit_of_its_own(tmp_path: Path, key: int) -> None:
    async with gateway_on(tmp_path, control_bytes_max=64 * 1024) as gateway:
        client = await gateway.client()
        head = key.to_bytes(2, "big") + APIS[key].versions[1].to_bytes(2, "big") + bytes(4)
        await client.send_bytes((70_000).to_bytes(4, "big") + head + bytes(70_000 - len(head)))
        async with asyncio.timeout(10):
            assert await client.hung_up()
        assert gateway.server.requests == 0  # nobody looked at it


async def test_a_request_after_a_long_poll_waits_for_it(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        client = await gateway.client()
        poll = await client.send(FETCH, 12, fetch_request("orders", {0: 0}, wait_ms=200))
        later = await client.send(API_VERSIONS, 0, {})
        assert (await client.receive())[0] == poll
        assert (await client.receive())[0] == later


@pytest.mark.parametrize("in_flight_max", [2, 3, 64])
async def test_responses_keep_the_order_of_requests_beyond_the_limit_in_flight(
    tmp_path: Path, in_flight_max: int
) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}, requests_in_flight_max=in_flight_max) as gateway:
        client = await gateway.client()
        asked = [produce_request("orders", {0: batch("a")}), produce_request("orders", {7: batch("refused at once")})]
        frames = [request_frame(PRODUCE, 9, asked[at % 2], correlation=at, client_id="tests") for at in range(200)]
        await client.send_bytes(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))
        async with asyncio.timeout(20):
            assert [(await client.receive())[0] for _ in frames] == list(range(200))


async def test_connections_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, connections_max=1) as gateway:
        first = await gateway.client()
        await first.ask(API_VERSIONS, 0, {})
        second = await gateway.client()
        async with asyncio.timeout(10):
            assert await gone(second)
        await first.ask(API_VERSIONS, 0, {})


async def gone(client: object) -> bool:
    try:
        return await client.hung_up()  # type: ignore[attr-defined,no-any-return]
    except ConnectionError:
        return True


async def test_idle_and_stalled_connections_have_a_reason_to_be_closed(tmp_path: Path) -> None:
    async with gateway_on(tmp_path) as gateway:
        idle, slow = await gateway.client(), await gateway.client()
        await idle.ask(API_VERSIONS, 0, {})
        await slow.send_bytes((100).to_bytes(4, "big") + b"\0")
        async with asyncio.timeout(10):
            while len(gateway.server.connections) < 2 or not any(
                each._frame is not None for each in gateway.server.connections
            ):
                await gateway.backend.clock.sleep_ms(10)
        now_ms = gateway.backend.clock.boot_ms()
        assert [each.close_reason(now_ms) for each in gateway.server.connections] == [None, None]
        reasons = sorted(str(each.close_reason(now_ms + 601_000)) for each in gateway.server.connections)
        assert reasons == ["a request took more than 60000 ms to arrive", "no request for 600000 ms"]


@pytest.mark.slow
async def test_a_client_that_reads_no_responses_is_not_read_from(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}, buffered_bytes_max=64 * 1024) as gateway:
        await gateway.backend.log.produce("orders", 0, encode([Record(0, 1, None, bytes(1_000_000))]))
        greedy, other = await gateway.client(), await gateway.client()
        for _ in range(100):
            await greedy.send(FETCH, 12, fetch_request("orders", {0: 0}))
        await async_until(lambda: any(each._write_paused for each in gateway.server.connections))
        assert await served(gateway, other)
        for _ in range(100):
            async with asyncio.timeout(10):
                await greedy.receive()


def large_frame(offset: int) -> bytes:
    """A produce request of some 300 KB, with its length."""
    given = produce_request("orders", {0: encode([Record(0, 1, None, bytes(300_000))])})
    frame = request_frame(PRODUCE, 9, given, correlation=offset, client_id="tests")
    return len(frame).to_bytes(4, "big") + frame


@pytest.mark.parametrize("ending", ["the first goes on", "the first hangs up"])
async def test_arriving_requests_count_and_large_ones_wait_for_memory(tmp_path: Path, ending: str) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}, requests_bytes_max=256 * 1024, stalled_ms=60_000) as gateway:
        first, second, third, small = [await gateway.client() for _ in range(4)]
        frame = large_frame(7)
        await first.send_bytes(frame[:1000])
        await async_until(lambda: gateway.server.full)
        await second.send_bytes(frame)
        await third.send_bytes(frame)
        await async_until(lambda: sum(each._held is not None for each in gateway.server.connections) >= 2)
        async with asyncio.timeout(10):
            assert await served(gateway, small)
            if ending == "the first hangs up":
                first.close()
            else:
                await first.send_bytes(frame[1000:])
                assert (await first.receive())[0] == 7
            assert (await second.receive())[0] == 7
            assert (await third.receive())[0] == 7
        assert not gateway.server.full


async def test_a_request_larger_than_the_in_flight_limit_is_received(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}, in_flight_bytes_max=1000, requests_bytes_max=1000) as gateway:
        client = await gateway.client()
        async with asyncio.timeout(10):
            for each in range(5):
                await client.send_bytes(large_frame(each))
            assert [(await client.receive())[0] for _ in range(5)] == list(range(5))


async def test_a_stopping_server_reads_nothing_more(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        client = await gateway.client()
        assert await served(gateway, client)
        (connection,) = gateway.server.connections
        connection.stop_reading()
        connection.memory_freed()
        await client.send(API_VERSIONS, 0, {})
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await client.receive()


async def served(gateway: KafkaGateway, client: object) -> bool:
    answer = await client.ask(PRODUCE, 9, produce_request("orders", {0: batch("a")}))  # type: ignore[attr-defined]
    return bool(answer.responses[0].partition_responses[0].error_code.value == 0)


async def test_a_graceful_close_finishes_requests_in_flight_except_long_polls(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 2}) as gateway:
        polling, producing = await gateway.client(), await gateway.client()
        await polling.send(FETCH, 12, fetch_request("orders", {1: 5}, wait_ms=60_000))
        await polling.receive()  # out of range: answered at once
        await polling.send(FETCH, 12, fetch_request("orders", {1: 0}, wait_ms=60_000))
        sent = [await producing.send(PRODUCE, 9, produce_request("orders", {0: batch("a")})) for _ in range(5)]
        async with asyncio.timeout(10):
            while gateway.server.requests < 7:
                await gateway.backend.clock.sleep_ms(5)
            await gateway.server.close_gracefully()
            assert [(await producing.receive())[0] for _ in sent] == sent
            assert await producing.hung_up()
            assert await polling.hung_up()


async def test_a_client_that_hangs_up_leaves_no_warning_and_no_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}) as gateway:
        with caplog.at_level(logging.DEBUG, logger="holdfast.gateways.kafka"):
            frame = request_frame(PRODUCE, 9, produce_request("orders", {0: batch("a")}), correlation=1, client_id="t")
            whole = len(frame).to_bytes(4, "big") + frame
            for sent in (b"", whole[:2], whole[:-1], whole):  # idle, in a length, in a frame, before the response
                client = await gateway.client()
                await client.send_bytes(sent)
                client.writer.transport.abort()
            polling = await gateway.client()
            await polling.send(FETCH, 12, fetch_request("orders", {0: 1}, wait_ms=60_000))
            await async_until(lambda: gateway.server.requests >= 1)
            polling.writer.transport.abort()
            await async_until(lambda: not gateway.server.connections)
            await gateway.backend.clock.sleep_ms(50)
    noticed = [each for each in caplog.records if each.levelno >= logging.WARNING or each.exc_info]
    assert [each.getMessage() for each in noticed if each.name.startswith(("holdfast.gateways", "asyncio"))] == []


async def test_a_lost_connection_is_logged_at_debug_without_a_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with gateway_on(tmp_path) as gateway:
        client = await gateway.client()
        await async_until(lambda: len(gateway.server.connections) == 1)
        (connection,) = gateway.server.connections
        with caplog.at_level(logging.DEBUG, logger="holdfast.gateways.kafka"):
            connection._fail(ConnectionResetError("reset by peer"))
        assert await client.hung_up()
    (line,) = [each for each in caplog.records if each.name == "holdfast.gateways.kafka.connection"]
    assert (line.levelno, line.exc_info) == (logging.DEBUG, None)
