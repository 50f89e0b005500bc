"""Limits of the server: memory, time, connections, and requests in flight."""

import asyncio
import logging
from contextlib import suppress
from typing import Any

import httpx
import pytest
from tests.support.http_gateway import behind_middleware, echo, problem_of, running_http_gateway, send_response
from tests.support.waiting import async_until


async def test_a_body_within_the_limit_is_read_whole() -> None:
    async with running_http_gateway(factory=behind_middleware(echo), body_bytes_max=2_000) as served:
        sent = b'"' + b"x" * 1_990 + b'"'
        answer = await served.client.post("/", content=sent, headers={"content-type": "application/json"})
        assert answer.content == sent


async def test_a_content_length_beyond_the_limit_is_refused_before_the_body_is_read() -> None:
    async with running_http_gateway(factory=behind_middleware(echo), body_bytes_max=2_000) as served:
        head = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 3000\r\n\r\n"
        said = await served.raw(head + b" " * 3_000)
        assert said.startswith(b"HTTP/1.1 413 ")
        assert b"urn:holdfast:problem:too-large" in said


async def test_a_chunked_body_is_refused_once_it_exceeds_the_limit() -> None:
    async def endless() -> Any:
        for _ in range(100):
            yield b"x" * 100

    async with running_http_gateway(factory=behind_middleware(echo), body_bytes_max=2_000) as served:
        answer = await served.client.post("/", content=endless(), headers={"content-type": "application/json"})
        problem_of(answer, 413, "too-large")


async def test_a_body_that_does_not_arrive_in_time_is_a_timeout() -> None:
    async with running_http_gateway(factory=behind_middleware(echo), body_ms=50) as served:
        head = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"
        said = await served.raw(head)
        assert said.startswith(b"HTTP/1.1 408 ")
        assert b"urn:holdfast:problem:too-slow" in said


async def test_a_head_that_does_not_arrive_in_time_is_aborted_however_slowly_it_drips() -> None:
    async with running_http_gateway(factory=behind_middleware(echo), head_ms=200) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        dripping = asyncio.ensure_future(_drip(writer))
        try:
            async with asyncio.timeout(20):
                with suppress(ConnectionResetError):
                    assert not await reader.read()
        finally:
            dripping.cancel()
            writer.close()
        await async_until(lambda: served.counters.aborted == 1, what="it is counted")


async def _drip(writer: asyncio.StreamWriter) -> None:
    for each in b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 10_000:
        try:
            writer.write(bytes([each]))
            await writer.drain()
        except ConnectionError:
            return
        await asyncio.sleep(0.01)  # noqa: TID251 (a client's pace)


async def test_a_head_that_is_too_large_is_refused() -> None:
    async with running_http_gateway(factory=behind_middleware(echo), head_bytes_max=2_000) as served:
        said = await served.raw(b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 5_000)
        assert said.startswith(b"HTTP/1.1 431 ")
        assert b"application/problem+json" in said


async def test_what_is_not_http_gets_a_problem_and_the_connection_is_closed() -> None:
    async with running_http_gateway(factory=behind_middleware(echo)) as served:
        for sent in (
            b"\x00\x01\x02\r\n\r\n",
            b"GET\r\n\r\n",
            b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r\n",
        ):
            said = await served.raw(sent)
            assert said.startswith(b"HTTP/1.1 400 "), sent
            assert b"urn:holdfast:problem:malformed" in said
        assert served.counters.malformed == 4
        assert (await served.client.get("/")).status_code == 200


async def test_a_handler_that_takes_too_long_is_a_problem_and_is_cancelled() -> None:
    stopped = asyncio.Event()

    async def never(scope: Any, receive: Any, send: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with running_http_gateway(factory=behind_middleware(never), request_ms=50) as served:
        problem_of(await served.client.get("/"), 504, "too-late")
        assert stopped.is_set()


async def test_requests_beyond_the_limit_get_retry_after_and_probes_are_answered() -> None:
    go = asyncio.Event()

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/wait":
            await go.wait()
        await send_response(send)

    async with running_http_gateway(factory=behind_middleware(waits), requests_max=3) as served:
        waiting = [asyncio.ensure_future(served.client.get("/wait")) for _ in range(3)]
        await async_until(lambda: served.counters.in_flight == 3, what="three are in flight")
        refused = await served.client.get("/other")
        problem_of(refused, 503, "busy")
        assert refused.headers["retry-after"] == "1"
        assert (await served.client.get("/live")).status_code == 200
        go.set()
        assert [each.status_code for each in await asyncio.gather(*waiting)] == [200] * 3
        assert (await served.client.get("/other")).status_code == 200
        assert served.counters.rejected == 1


async def test_a_connection_beyond_the_limit_is_closed() -> None:
    async with running_http_gateway(factory=behind_middleware(echo), connections_max=2) as served:
        kept = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(2)]
        await async_until(lambda: served.counters.connections == 2, what="two are open")
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        with suppress(ConnectionResetError):
            assert not await reader.read()
        writer.close()
        for _, each in kept:
            each.close()
        await async_until(lambda: served.counters.connections == 0, what="all are closed")
        assert (await served.client.get("/")).status_code == 200


async def test_a_response_that_is_not_read_is_aborted() -> None:
    async def large(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(400):
            await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async with running_http_gateway(factory=behind_middleware(large), write_ms=200) as served:
        _, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1_000)
        writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await async_until(lambda: served.counters.aborted == 1, what="it is aborted")
        await async_until(lambda: served.counters.connections == 0, what="its connection is gone")
        writer.close()


async def test_an_idle_connection_is_closed() -> None:
    async with running_http_gateway(factory=behind_middleware(echo), idle_ms=1_000) as served:
        said = await served.raw(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 200 ")


async def test_a_graceful_stop_finishes_requests_in_flight_and_accepts_no_more() -> None:
    go = asyncio.Event()

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        await go.wait()
        await send_response(send, b'"done"')

    async with running_http_gateway(factory=behind_middleware(waits)) as served:
        waiting = asyncio.ensure_future(served.client.get("/"))
        await async_until(lambda: served.counters.in_flight == 1, what="it is in flight")
        stopping = asyncio.ensure_future(served.server.close_gracefully())
        await async_until(lambda: not served.server.accepting, what="it accepts no more")
        assert not waiting.done()
        go.set()
        assert (await waiting).json() == "done"
        await stopping


async def test_a_graceful_stop_has_a_deadline_and_logs_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def never(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    async with running_http_gateway(factory=behind_middleware(never), stop_ms=200) as served:
        waiting = asyncio.ensure_future(served.client.get("/"))
        await async_until(lambda: served.counters.in_flight == 1, what="it is in flight")
        async with asyncio.timeout(20):
            await served.server.close_gracefully()
        with pytest.raises(httpx.RemoteProtocolError):
            await waiting
    assert any("aborting requests still in flight" in each for each in caplog.messages)
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_client_that_disconnects_leaves_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    go = asyncio.Event()

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        await go.wait()
        await send_response(send, b"x" * 1_000_000)

    head = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: "
    async with running_http_gateway(factory=behind_middleware(waits)) as served:
        for sent in (head + b"99\r\n\r\n{", head + b"2\r\n\r\n{}"):
            go.clear()
            _, writer = await asyncio.open_connection("127.0.0.1", served.port)
            writer.write(sent)
            await async_until(lambda: served.counters.in_flight == 1, what="the request is in flight")
            writer.transport.abort()
            await async_until(lambda: served.counters.connections == 0, what="the connection is gone")
            go.set()
            await async_until(lambda: served.counters.in_flight == 0, what="the request is finished")
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]


async def test_a_handler_that_fails_is_a_problem_without_details(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("the password is s3cr3t")

    async with running_http_gateway(factory=behind_middleware(fails)) as served:
        answer = await served.client.get("/")
        said = problem_of(answer, 500, "failed")
        assert "s3cr3t" not in answer.text
        assert answer.headers["x-request-id"] in said["detail"]
        assert any("s3cr3t" in str(each.exc_info) for each in caplog.records)


async def test_access_lines_are_facts_that_no_client_can_forge(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="holdfast.http.access")
    async with running_http_gateway(factory=behind_middleware(echo)) as served:
        await served.client.get("/a%0Ab%1B[31m?password=s3cr3t", headers={"user-agent": "x\ty"})
        await served.client.request("BREW", "/" + "long" * 500)
    first, second = [vars(record) for record in caplog.records if record.name == "holdfast.http.access"]
    assert (first["method"], first["path"], first["status"], first["client"]) == (
        "GET",
        "/a%0Ab%1B[31m",
        200,
        "127.0.0.1",
    )
    assert (second["method"], len(second["path"])) == ("OTHER", 300)
    assert "s3cr3t" not in str([vars(each) for each in caplog.records])
