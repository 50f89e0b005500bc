"""Workers and other programs that keep threads busy: leases are renewed, nothing is left behind when work is cancelled."""

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.kafka_wire import KafkaGateway
from tests.support.replicas import admins_of
from tests.support.waiting import WAIT_S, async_until

from holdfast import heaps
from holdfast.client.heap_connection import HeapConnection
from holdfast.gateways.heap.calls import HeapCalls
from holdfast.heap.wire import HeapRequest, PopRequest
from holdfast.heaps import sync

_THREADS_MAX = 32  # of a loop's default executor, on any machine


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> AsyncIterator[KafkaGateway]:
    async with admins_of(tmp_path, "ann") as admins:
        gateway = admins[0].gateway
        await gateway.node.agent.heaps.administration.create("jobs")
        await async_until(lambda: gateway.node.agent.heaps.serves("jobs", 0))
        yield gateway


@pytest_asyncio.fixture
async def client(node: KafkaGateway) -> AsyncIterator[heaps.HeapClient]:
    async with heaps.connect(f"127.0.0.1:{node.port}") as client:
        yield client


async def inflight(client: heaps.HeapClient) -> int:
    return sum(each.inflight for each in await client.stats("jobs"))


async def use_while_its_threads_are_busy(bootstrap: str, **options: Any) -> None:
    """Enqueue by a client on a loop of its own, all threads of whose default executor are busy."""
    go = threading.Event()

    async def keep_busy() -> None:
        for _ in range(_THREADS_MAX):
            asyncio.get_running_loop().run_in_executor(None, go.wait)

    def use() -> None:
        with sync.connect(bootstrap, timeout=8.0, **options) as client:
            client.submit(keep_busy()).result(WAIT_S)
            try:
                client.enqueue("jobs", b"x")
            finally:
                go.set()

    await asyncio.to_thread(use)


async def test_a_node_is_connected_by_its_name_while_a_program_keeps_all_threads_of_its_loop_busy(
    node: KafkaGateway,
) -> None:
    """Its leases would be lost: a name was looked up on one of these threads."""
    await use_while_its_threads_are_busy(f"localhost:{node.port}")


async def test_plain_functions_run_as_many_at_a_time_as_was_asked_for(client: heaps.HeapClient) -> None:
    count = 2 * _THREADS_MAX
    together, failed = threading.Barrier(count), threading.Event()

    @heaps.worker("jobs", concurrency=count)
    def handle(message: heaps.Message) -> None:
        try:
            together.wait(15)
        except threading.BrokenBarrierError:
            failed.set()

    await client.enqueue_many("jobs", [heaps.NewMessage(payload=b"x")] * count)
    serving = asyncio.ensure_future(handle.serve(client))

    async def all_acknowledged() -> bool:
        return sum(each.acked for each in await client.stats("jobs")) == count

    await async_until(all_acknowledged)
    handle.stop()
    await serving
    assert not failed.is_set()


@pytest.mark.parametrize("busy", [False, True])
async def test_a_worker_that_is_cancelled_leaves_nothing_leased(client: heaps.HeapClient, busy: bool) -> None:
    began = asyncio.Event()

    @heaps.worker("jobs", concurrency=2)
    async def handle(message: heaps.Message) -> None:
        began.set()
        await asyncio.get_running_loop().create_future()

    if busy:
        await client.enqueue("jobs", b"x")
    serving = asyncio.ensure_future(handle.serve(client))
    if busy:
        await began.wait()
    await async_until(lambda: len(client._nodes._alone) > 0)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    await client.enqueue("jobs", b"y")
    assert await inflight(client) == 0


async def test_a_message_that_comes_when_a_worker_is_cancelled_is_given_back(client: heaps.HeapClient) -> None:
    @heaps.worker("jobs")
    async def handle(message: heaps.Message) -> None:
        raise AssertionError(message)

    popped = asyncio.Event()
    serving: list[asyncio.Future[None]] = []
    pop = client.pop

    async def cancelled_with_its_answer(*given: object, **options: object) -> list[heaps.Message]:
        found = await pop(*given, **options)  # type: ignore[arg-type]
        serving[0].cancel()
        popped.set()
        return found

    client.pop = cancelled_with_its_answer  # type: ignore[method-assign]
    serving.append(asyncio.ensure_future(handle.serve(client)))
    await client.enqueue("jobs", b"x")
    await popped.wait()
    with pytest.raises(asyncio.CancelledError):
        await serving[0]
    assert await inflight(client) == 0
    assert client._leases.held == 0


class _Interruptible:
    """A future at whose result a thread waits until Ctrl-C is pressed."""

    def __init__(self, future: "Future[Any]", pressed: threading.Event) -> None:
        self._future, self._pressed, self.cancel = future, pressed, future.cancel

    def result(self) -> Any:
        while not self._future.done():
            if self._pressed.wait(0.01):
                self._pressed.clear()
                raise KeyboardInterrupt
        return self._future.result()


@pytest.mark.parametrize("popped", [False, True])
async def test_an_interrupted_blocking_stream_ends_and_leaves_nothing_leased(
    node: KafkaGateway, client: heaps.HeapClient, popped: bool
) -> None:
    pressed, streaming = threading.Event(), threading.Event()

    def use() -> None:
        with sync.connect(f"127.0.0.1:{node.port}") as blocking:
            submit, pop = blocking.submit, blocking.asynchronous.pop

            async def popping(*given: Any, **options: Any) -> list[heaps.Message]:
                streaming.set()
                found = await pop(*given, **options)
                pressed.set()  # in the very moment in which there is a message
                return found

            blocking.submit = lambda work: _Interruptible(submit(work), pressed)  # type: ignore[method-assign,assignment,return-value]
            blocking.asynchronous.pop = popping  # type: ignore[method-assign]
            with pytest.raises(KeyboardInterrupt):
                next(iter(blocking.pop_stream("jobs")))

    using = asyncio.ensure_future(asyncio.to_thread(use))
    await async_until(streaming.is_set)
    if popped:
        await client.enqueue("jobs", b"x")
    else:
        pressed.set()
    await using
    await client.enqueue("jobs", b"y")
    assert await inflight(client) == 0


async def test_a_worker_waits_while_its_consumer_has_all_the_leases_it_may_have(
    node: KafkaGateway, client: heaps.HeapClient
) -> None:
    await client.update("jobs", config={"leases_per_consumer_max": 1})
    began, done, go = list[bytes](), list[bytes](), asyncio.Event()

    @heaps.worker("jobs", concurrency=2)
    async def handle(message: heaps.Message) -> None:
        began.append(message.payload)
        await go.wait()
        done.append(message.payload)

    await client.enqueue_many("jobs", [heaps.NewMessage(payload=b"%d" % at, priority=at) for at in range(3)])
    refused = asyncio.Event()
    pop = client._nodes.pop

    async def noted(request: PopRequest) -> Any:
        try:
            return await pop(request)
        except heaps.ResourceExhaustedError:
            refused.set()
            raise

    client._nodes.pop = noted  # type: ignore[method-assign]
    serving = asyncio.ensure_future(handle.serve(client))
    await asyncio.wait((serving, asyncio.ensure_future(refused.wait())), return_when=asyncio.FIRST_COMPLETED)
    assert not serving.done()
    assert began == [b"0"]
    go.set()
    await async_until(lambda: serving.done() or len(done) == 3)
    handle.stop()
    await serving
    assert done == [b"0", b"1", b"2"]


async def cancelled_with_its_answer_on_the_way(client: heaps.HeapClient) -> None:
    """A pop is cancelled after a message was leased for it, and before the client has read so."""
    popping = asyncio.ensure_future(client.pop("jobs", wait=20))
    await async_until(lambda: any(each.pending for each in alone(client)))
    [connection] = [each for each in alone(client) if each.pending]
    assert connection._transport is not None
    await async_until(lambda: not connection._unsent)
    connection._transport.pause_reading()
    await client.enqueue("jobs", b"x")

    async def leased() -> bool:
        return await inflight(client) == 1

    async def waits_again() -> bool:
        return await inflight(client) == 0

    await async_until(leased)
    popping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await popping
    if not connection._transport.is_closing():
        connection._transport.resume_reading()
    await async_until(waits_again, within_s=10)
    assert connection not in alone(client)
    [message] = await client.pop("jobs")
    await message.ack()


def alone(client: heaps.HeapClient) -> list[HeapConnection]:
    return [each for several in client._nodes._alone.values() for each in several]


async def test_a_pop_that_is_cancelled_while_its_answer_is_on_the_way_leaves_nothing_leased(
    client: heaps.HeapClient,
) -> None:
    await cancelled_with_its_answer_on_the_way(client)


async def test_a_client_that_is_closed_gives_back_what_its_last_pop_gets(
    node: KafkaGateway, client: heaps.HeapClient
) -> None:
    async with heaps.connect(f"127.0.0.1:{node.port}") as closing:
        popping = asyncio.ensure_future(closing.pop("jobs", wait=20))
        await async_until(lambda: any(each.pending for each in alone(closing)))
        [connection] = alone(closing)
        await async_until(lambda: not connection._unsent)
        await client.enqueue("jobs", b"x")
        popping.cancel()
    assert await inflight(client) == 0


async def test_what_a_node_has_leased_when_a_pop_is_cancelled_is_given_back(
    client: heaps.HeapClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node learns that its client is gone in the moment in which it answers: it is told so, and gives it back."""
    call, leased = HeapCalls.call, asyncio.Event()

    async def answered_in_this_moment(calls: HeapCalls, request: HeapRequest) -> Any:
        found = await call(calls, request)
        if isinstance(request, PopRequest) and found:
            leased.set()
            with suppress(asyncio.CancelledError):  # as if it had returned already
                await asyncio.get_running_loop().create_future()
        return found

    monkeypatch.setattr(HeapCalls, "call", answered_in_this_moment)
    popping = asyncio.ensure_future(client.pop("jobs", wait=20))
    await client.enqueue("jobs", b"x")
    await leased.wait()
    popping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await popping

    async def waits_again() -> bool:
        [stats] = await client.stats("jobs")
        return (stats.ready, stats.inflight) == (1, 0)

    await async_until(waits_again, within_s=10)


async def test_a_client_that_is_closed_gives_back_what_its_streams_have_not_handed_out(
    node: KafkaGateway, client: heaps.HeapClient
) -> None:
    """A loop that is left by `break` closes its stream when it is collected, which may be later."""
    await client.enqueue_many("jobs", [heaps.NewMessage(payload=b"x")] * 3)
    async with heaps.connect(f"127.0.0.1:{node.port}") as closing:
        async for message in closing.pop_stream("jobs", prefetch=3):
            await message.ack()
            break
    assert await inflight(client) == 0


async def test_a_function_that_goes_on_without_a_lease_keeps_no_thread_from_the_next_message(
    client: heaps.HeapClient,
) -> None:
    """It was leased, and waited for as long as the function did."""
    begun, stop = set[bytes](), threading.Event()

    @heaps.worker("jobs", concurrency=1, visibility=1.0)
    def handle(message: heaps.Message) -> None:
        begun.add(message.payload)
        if message.payload == b"hangs":
            stop.wait()

    serving = asyncio.ensure_future(handle.serve(client))
    try:
        await client.enqueue("jobs", b"hangs")
        await async_until(lambda: b"hangs" in begun)
        await client.purge("jobs", confirmation_token=await client.confirm("heap.purge", "jobs"))
        await client.enqueue("jobs", b"next")
        await async_until(lambda: b"next" in begun)
    finally:
        stop.set()
        serving.cancel()
        await asyncio.wait((serving,))
