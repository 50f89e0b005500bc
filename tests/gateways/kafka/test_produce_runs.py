"""Produce requests that arrive together: the same answers in the same order as one by one, whatever some of them are."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.kafka_security import secure_gateway
from tests.support.kafka_wire import (
    API_VERSIONS,
    PRODUCE,
    KafkaGateway,
    WireClient,
    gateway_on,
    produce_request,
    request_frame,
    version_params,
    versions_of,
)
from tests.support.partitions import batch, records
from tests.support.waiting import async_until

from holdfast.gateways.kafka.api import ClientInfo, RequestContext
from holdfast.gateways.kafka.connection import KafkaConnection
from holdfast.gateways.kafka.connection_access import ConnectionAccess
from holdfast.gateways.kafka.produce import PRODUCE_API
from holdfast.gateways.kafka.produce_runs import RUN_VERSIONS, ProduceRuns, batches_of
from holdfast.gateways.kafka.server import KafkaServer
from holdfast.kafka.error_codes import ErrorCode
from holdfast.log.pending_produce import PendingProduce

native = pytest.importorskip("holdfast._native", reason="the C kernel was not built: no compiler")

VERSION = 9
NO_ID = UUID(int=0)
Answer = tuple[int, int]  # error code, base offset


def reader_of(connection: KafkaConnection) -> Any:
    return connection._run_reader


def framed(version: int, given: dict[str, Any], correlation: int, client_id: str = "tests") -> bytes:
    frame = request_frame(PRODUCE, version, given, correlation=correlation, client_id=client_id)
    return len(frame).to_bytes(4, "big") + frame


def together(requests: Sequence[dict[str, Any]], version: int = VERSION) -> bytes:
    return b"".join(framed(version, each, at) for at, each in enumerate(requests))


async def answers(client: WireClient, requests: Sequence[dict[str, Any]], version: int = VERSION) -> list[Answer]:
    """What one write with all of them is answered with, each to its own correlation id."""
    await client.send_bytes(together(requests, version))
    found = []
    async with asyncio.timeout(20):
        for correlation in range(len(requests)):
            answer = client.understood(PRODUCE, version, correlation, await client.receive())
            (partition,) = answer.responses[0].partition_responses
            found.append((partition.error_code.value, partition.base_offset))
    return found


async def stored(gateway: KafkaGateway, partition: int = 0) -> list[str]:
    return [value for _, value in records((await gateway.backend.log.fetch("orders", partition, 0)).batches)]


@asynccontextmanager
async def one_client(directory: Path, **settings: Any) -> AsyncIterator[tuple[KafkaGateway, WireClient]]:
    async with gateway_on(directory, topics={"orders": 2}, **settings) as gateway:
        client = await gateway.client()
        assert await answers(client, [produce_request("orders", {0: batch("first")}, topic_id=NO_ID)]) == [(0, 0)]
        yield gateway, client


def orders(*values: str, **given: Any) -> dict[str, Any]:
    return produce_request("orders", {given.pop("partition", 0): batch(*values)}, topic_id=NO_ID, **given)


@pytest.mark.parametrize("version", version_params(versions_of(PRODUCE)))
async def test_every_version_gets_the_answers_of_single_requests(tmp_path: Path, version: int) -> None:
    async with one_client(tmp_path) as (gateway, client):
        topic_id = UUID((await gateway.backend.log.topics.get("orders")).id)
        before = gateway.node.agent.wal.stats.frames
        requests = [produce_request("orders", {0: batch(*"ab")}, topic_id=topic_id) for _ in range(5)]
        assert await answers(client, requests, version) == [(0, 1 + 2 * at) for at in range(5)]
        assert await stored(gateway) == ["first", *"ab" * 5]
        assert gateway.node.agent.wal.stats.frames == before + 1  # they were appended together


async def test_requests_of_several_connections_are_appended_together(tmp_path: Path) -> None:
    async with one_client(tmp_path) as (gateway, client):
        clients = [client, await gateway.client(), await gateway.client()]
        frames = gateway.node.agent.wal.stats.frames
        for each in clients:
            each.writer.write(together([orders("x"), orders("y")]))
        found = []
        for each in clients:
            for correlation in range(2):
                answer = each.understood(PRODUCE, VERSION, correlation, await each.receive())
                found.append(answer.responses[0].partition_responses[0].base_offset)
        assert sorted(found) == list(range(1, 7))
        assert await stored(gateway) == ["first", *"xyxyxy"]
        assert gateway.node.agent.wal.stats.frames - frames <= 3


async def test_a_request_of_another_kind_does_not_overtake_a_run(tmp_path: Path) -> None:
    async with one_client(tmp_path) as (gateway, client):
        two = produce_request("orders", {0: batch("c"), 1: batch("other")}, topic_id=NO_ID)
        asked = [orders("a"), orders("b"), two, orders("d")]
        await client.send_bytes(together(asked))
        for correlation in range(4):
            answer = client.understood(PRODUCE, VERSION, correlation, await client.receive())
            assert answer.responses[0].partition_responses[0].base_offset == 1 + correlation
        assert await stored(gateway) == ["first", *"abcd"]


@pytest.mark.parametrize("first", ["refused", "duplicate"])
async def test_an_answer_at_once_lets_no_later_request_overtake_the_runs_behind_it(tmp_path: Path, first: str) -> None:
    async with one_client(tmp_path, requests_in_flight_max=2) as (gateway, client):
        known = produce_request("orders", {0: batch("known", producer=7, sequence=0)}, topic_id=NO_ID)
        assert await answers(client, [known]) == [(0, 1)]
        # With "refused" both runs are in one group, which is split; with "duplicate" they are in two, which are appended.
        bad = bytearray(batch("bad"))
        bad[-1] ^= 1  # its checksum is another
        at_once = known if first == "duplicate" else produce_request("orders", {1: bytes(bad)}, topic_id=NO_ID)
        no_run = produce_request("orders", {1: batch("c"), 0: batch("other")}, topic_id=NO_ID)
        await client.send_bytes(together([at_once, orders("b", partition=1, acks=1), no_run]))
        async with asyncio.timeout(20):
            assert [(await client.receive())[0] for _ in range(3)] == [0, 1, 2]
        assert await stored(gateway, 1) == ["b", "c"]


async def test_other_requests_wait_for_a_run_before_them(tmp_path: Path) -> None:
    async with one_client(tmp_path) as (_, client):
        versions = request_frame(API_VERSIONS, 0, {}, correlation=9, client_id="tests")
        await client.send_bytes(together([orders("a"), orders("b")]) + len(versions).to_bytes(4, "big") + versions)
        assert [(await client.receive())[0] for _ in range(3)] == [0, 1, 9]


async def test_one_bad_batch_fails_alone(tmp_path: Path) -> None:
    async with one_client(tmp_path) as (gateway, client):
        bad = bytearray(batch("bad"))
        bad[-1] ^= 1  # its checksum is another
        broken = produce_request("orders", {0: bytes(bad)}, topic_id=NO_ID)
        found = await answers(client, [orders("a"), broken, orders("b")])
        assert found == [(0, 1), (ErrorCode.CORRUPT_MESSAGE, -1), (0, 2)]
        assert await stored(gateway) == ["first", "a", "b"]


async def test_an_idempotent_producer_that_sends_a_batch_again_gets_its_first_offset(tmp_path: Path) -> None:
    async with one_client(tmp_path) as (gateway, client):

        def sent(value: str, sequence: int) -> dict[str, Any]:
            made = batch(value, producer=7, epoch=0, sequence=sequence)
            return produce_request("orders", {0: made}, topic_id=NO_ID)

        assert await answers(client, [sent("a", 0), sent("b", 1), sent("b", 1), sent("c", 2)]) == [
            (0, 1),
            (0, 2),
            (0, 2),
            (0, 3),
        ]
        out_of_order = [sent("d", 3), sent("f", 5), sent("e", 4)]
        assert await answers(client, out_of_order) == [
            (0, 4),
            (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
            (0, 5),
        ]
        assert await stored(gateway) == ["first", *"abcde"]


async def test_an_unknown_topic_and_partition_are_said_of_every_request(tmp_path: Path) -> None:
    async with one_client(tmp_path) as (_, client):
        unknown = [produce_request("nowhere", {0: batch("a")}, topic_id=NO_ID)] * 2
        assert await answers(client, unknown) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)] * 2
        assert await answers(client, [orders("a", partition=9)] * 2) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)] * 2
        by_id = [produce_request("orders", {0: batch("a")}, topic_id=UUID(int=5))] * 2
        assert await answers(client, by_id, 13) == [(ErrorCode.UNKNOWN_TOPIC_ID, -1)] * 2


async def test_a_run_is_bounded_by_the_requests_in_flight(tmp_path: Path) -> None:
    async with one_client(tmp_path, requests_in_flight_max=3) as (gateway, client):
        assert await answers(client, [orders(str(at)) for at in range(20)]) == [(0, 1 + at) for at in range(20)]
        assert await stored(gateway) == ["first", *map(str, range(20))]


async def test_what_is_not_durable_in_time_is_said_for_every_request(tmp_path: Path) -> None:
    async with gateway_on(tmp_path, topics={"orders": 1}, config={"durability": "object"}) as gateway:
        client = await gateway.client()
        assert await answers(client, [orders("a")]) == [(0, 0)]
        late = [orders("late", timeout_ms=0) for _ in range(3)]
        assert await answers(client, late) == [(ErrorCode.REQUEST_TIMED_OUT, -1)] * 3
        assert await answers(client, [orders("b")] * 2) == [(0, 4), (0, 5)]
        assert await stored(gateway) == ["a", *["late"] * 3, "b", "b"]


def runs_in_memory() -> list[object]:
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, (native.ProduceRun, PendingProduce))]


@pytest.mark.parametrize("partitions", [(0,), (0, 1)], ids=["a run", "one by one"])
async def test_what_is_sent_again_and_again_while_it_is_not_durable_is_let_go(
    tmp_path: Path, partitions: tuple[int, ...]
) -> None:
    async with gateway_on(tmp_path, topics={"orders": 2}, config={"durability": "object"}) as gateway:
        client = await gateway.client()
        made = batch("x" * 1_000, producer=7, sequence=0)
        again = produce_request("orders", dict.fromkeys(partitions, made), timeout_ms=0, topic_id=NO_ID)
        before = {id(each): each for each in runs_in_memory()}  # of other tests
        async with AsyncExitStack() as not_published:
            for number in partitions:
                led = gateway.backend.log._serving("orders", number)
                assert led is not None
                await not_published.enter_async_context(led.publish_lock)
            for _ in range(50):
                answer = await client.ask(PRODUCE, VERSION, again)
                for each in answer.responses[0].partition_responses:
                    assert each.error_code.value == ErrorCode.REQUEST_TIMED_OUT
            assert len([each for each in runs_in_memory() if id(each) not in before]) <= 2


async def test_a_client_that_leaves_at_once_leaves_its_records(tmp_path: Path) -> None:
    async with one_client(tmp_path) as (gateway, client):
        await client.send_bytes(together([orders("a"), orders("b")]))
        client.close()
        async with asyncio.timeout(10):
            while gateway.server.connections:
                await gateway.backend.clock.sleep_ms(5)
        another = await gateway.client()
        assert await answers(another, [orders("z")]) == [(0, (await stored(gateway)).index("z"))]
        assert gateway.server.used_bytes == 0


@pytest.mark.parametrize("sound", [True, False], ids=["appended together", "split"])
async def test_a_connection_that_cannot_be_written_to_costs_the_others_nothing(tmp_path: Path, sound: bool) -> None:
    async with one_client(tmp_path) as (gateway, client):
        broken = await gateway.client()
        assert await answers(broken, [orders("x")]) == [(0, 1)]
        (theirs,) = [
            each
            for each in gateway.server.connections
            if each._peer.port == broken.writer.get_extra_info("sockname")[1]
        ]

        def write(*_: object) -> None:
            raise RuntimeError("the transport is closed")

        sent = bytearray(batch("lost"))
        if not sound:
            sent[-1] ^= 1  # its checksum is another: the group is split, and this one answered at once
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(theirs, "_transport", Mock(wraps=theirs._transport, writelines=write))
            reader_of(theirs).write = write
            broken.writer.write(together([produce_request("orders", {0: bytes(sent)}, topic_id=NO_ID)]))
            client.writer.write(together([orders("y"), orders("z")]))  # in the same turn of the loop
            async with asyncio.timeout(20):
                for correlation in range(2):
                    answer = client.understood(PRODUCE, VERSION, correlation, await client.receive())
                    assert answer.responses[0].partition_responses[0].error_code.value == 0
                assert await broken.hung_up()  # it would take the next response for that of another request
        assert sorted(await stored(gateway)) == sorted(["first", "x", "y", "z", *(["lost"] if sound else [])])


async def test_runs_behind_one_that_closes_the_connection_are_not_appended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with one_client(tmp_path) as (gateway, client):
        (connection,) = gateway.server.connections
        login = SimpleNamespace(principal="User:ann", refusal=lambda: "its credentials have expired", has_ended=False)
        connection._access = cast(ConnectionAccess, SimpleNamespace(login=login))
        await client.send_bytes(together([orders("a"), orders("b", partition=1), orders("c")]))
        async with asyncio.timeout(10):
            assert await client.hung_up()
        assert (await stored(gateway), await stored(gateway, 1)) == (["first"], [])
        assert caplog.text.count("its credentials have expired") == 1


def new_reader(connection: object = None, **changed: Any) -> Any:
    """A reader of a connection that receives nothing."""
    given: dict[str, Any] = {
        "connection": connection or SimpleNamespace(_requests=0),
        "host": SimpleNamespace(used_bytes=0),
        "api": PRODUCE_API,
        "buffer": lambda hint: memoryview(bytearray(hint)),
        "receive": lambda size: None,
        "in_flight": [],
        "inbox": [],
        "on_first": lambda: None,
        "scratch": bytearray(1 << 16),
        "stopwatch": lambda: 7,
        "versions": RUN_VERSIONS,
        "requests_max": 8,
        "bytes_max": 1 << 20,
        "in_flight_bytes_max": 1 << 25,
        "used_bytes_max": 1 << 30,
    }
    return native.RunReader(**given | changed)


def test_bytes_arrive_in_the_shared_memory_unless_a_frame_has_begun() -> None:
    shared, own = bytearray(1 << 16), memoryview(b"of a frame")
    reader = new_reader(scratch=shared, buffer=lambda hint: own)
    assert reader.get_buffer(-1) is own
    reader.armed = True
    assert reader.get_buffer(-1) is shared
    reader.buffer_updated(5)  # no run: the connection receives it, and is busy
    assert reader.get_buffer(-1) is own


class Waiting:
    """A connection with one run."""

    def __init__(self, gateway: KafkaGateway, *batches: bytes, version: int = VERSION, acks: int = -1) -> None:
        requests = [produce_request("orders", {0: each}, acks=acks, topic_id=NO_ID) for each in batches]
        self.run: Any = new_reader(self).take(together(requests, version), 0, len(requests))
        self.run.call = RequestContext(PRODUCE_API, version, 0, "tests", ClientInfo("here", 1), gateway.backend)
        self.answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.was_split = False

    def respond_to_run(self, run: object, response: object) -> None:
        assert run is self.run
        self.answered.set_result(response)

    def split_run(self, run: object) -> Callable[[], None]:
        assert run is self.run
        self.was_split = True
        return partial(self.answered.set_result, None)


async def appended_in_one_turn(gateway: KafkaGateway, *connections: Waiting) -> list[bool]:
    """Of which connections the runs were split, after all were answered."""
    before = gateway.server.requests
    produce_runs, led = ProduceRuns(gateway.backend, gateway.server), gateway.backend.log._serving("orders", 0)
    assert led is not None
    await led.reserve(100)
    for each in connections:
        produce_runs.add(each.run)
    async with asyncio.timeout(20):
        await asyncio.gather(*(each.answered for each in connections))
    assert gateway.server.requests - before == sum(each.run.count for each in connections)
    return [each.was_split for each in connections]


async def test_what_is_too_much_for_one_append_is_appended_in_parts(tmp_path: Path) -> None:
    async with one_client(tmp_path) as (gateway, _):
        runs = [Waiting(gateway, *(batch(f"{run}{at}" + "x" * 250_000) for at in range(2))) for run in range(5)]
        assert not any(await appended_in_one_turn(gateway, *runs))
        for offset, expected in enumerate((f"{run}{at}" for run in range(5) for at in range(2)), 1):
            found = records((await gateway.backend.log.fetch("orders", 0, offset, bytes_max=1)).batches)
            assert [(at, value[:2]) for at, value in found] == [(offset, expected)]


async def test_runs_that_differ_in_acks_or_version_are_appended_together_and_answered_each_in_its_own_way(
    tmp_path: Path,
) -> None:
    async with one_client(tmp_path) as (gateway, client):
        kinds = [(9, -1), (9, 1), (3, -1), (9, -1), (12, 1), (9, 1)]
        runs = [
            Waiting(gateway, batch(f"{at}"), batch(f"{at}"), version=version, acks=acks)
            for at, (version, acks) in enumerate(kinds)
        ]
        frames = gateway.node.agent.wal.stats.frames
        assert not any(await appended_in_one_turn(gateway, *runs))
        assert gateway.node.agent.wal.stats.frames == frames + 1
        for at, (each, (version, _)) in enumerate(zip(runs, kinds, strict=True)):
            response = cast(bytes, each.answered.result())
            size = len(response) // 2
            for correlation, found in enumerate((response[:size], response[size:])):
                assert int.from_bytes(found[:4], "big") == size - 4
                answer = client.understood(
                    PRODUCE, version, correlation, (int.from_bytes(found[4:8], "big"), found[8:])
                )
                assert answer.responses[0].partition_responses[0].base_offset == 1 + 2 * at + correlation


@pytest.mark.parametrize("fault", ["checksum", "sent before"])
async def test_a_run_at_fault_is_split_and_those_of_others_are_not(tmp_path: Path, fault: str) -> None:
    async with one_client(tmp_path) as (gateway, client):
        known = batch("known", producer=7, sequence=0)
        assert await answers(client, [produce_request("orders", {0: known}, topic_id=NO_ID)]) == [(0, 1)]
        bad = bytearray(known)
        if fault == "checksum":
            bad[-1] ^= 1
        sound = [Waiting(gateway, batch(value), batch(value.upper())) for value in "abcde"]
        runs = [*sound[:3], Waiting(gateway, batch("f"), bytes(bad)), *sound[3:]]
        assert await appended_in_one_turn(gateway, *runs) == [False, False, False, True, False, False]
        assert await stored(gateway) == ["first", "known", *"aAbBcCdDeE"]


async def test_an_unexpected_error_closes_the_connections_of_its_group_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with one_client(tmp_path) as (gateway, client):
        other = await gateway.client()
        real = gateway.backend.log.produce_together

        def produce_together(topic: str, partition: int, payloads: Any) -> Any:
            if partition == 1:
                raise RuntimeError("a bug")
            return real(topic, partition, payloads)

        monkeypatch.setattr(gateway.backend.log, "produce_together", produce_together)
        other.writer.write(together([orders("lost", partition=1)]))
        client.writer.write(together([orders("kept")]))
        async with asyncio.timeout(20):
            answer = client.understood(PRODUCE, VERSION, 0, await client.receive())
            assert answer.responses[0].partition_responses[0].base_offset == 1
            with suppress(ConnectionError):
                assert await other.hung_up()
        assert (await stored(gateway), len(gateway.server.connections)) == (["first", "kept"], 1)


# ── the scanner ──


def shapes_of(acks: list[int], batches: list[int]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(
        st.sampled_from(versions_of(PRODUCE)),
        st.sampled_from(["", "tests", "é"]),
        st.sampled_from(["orders", "other"]),
        st.integers(0, 2),
        st.sampled_from(acks),
        st.sampled_from([100, 30_000]),
        st.lists(st.text(max_size=5), min_size=1, max_size=3),
        st.sampled_from(batches),  # how many
    )


shapes, plain_shapes = shapes_of([-1, 0, 1], [0, 1, 2]), shapes_of([-1, 1], [1])


def shaped(shape: Any, correlation: int) -> bytes:
    version, client_id, topic, partition, acks, timeout_ms, values, count = shape
    made = batch(*values) * count if count else None
    asked = produce_request(topic, {partition: made}, acks=acks, timeout_ms=timeout_ms, topic_id=UUID(int=3))
    return framed(version, asked, correlation, client_id)


def is_plain(shape: Any) -> bool:
    return bool(shape[4] != 0 and shape[7] == 1)


@given(st.lists(shapes, min_size=1, max_size=6), st.integers(1, 4), st.integers(0, 200))
def test_a_run_is_what_single_requests_of_one_kind_are(asked: list[Any], most: int, cut: int) -> None:
    frames = [shaped(shape, at) for at, shape in enumerate(asked)]
    data = b"".join(frames)[: -cut or None]
    run = new_reader().take(memoryview(data), 0, most)
    whole = 0
    while whole < len(frames) and sum(map(len, frames[: whole + 1])) <= len(data):
        whole += 1
    same = 0
    while same < min(whole, most) and is_plain(asked[same]) and asked[same][:6] == asked[0][:6]:
        same += 1
    if not same:
        assert run is None
        return
    assert run is not None
    assert run.size == sum(map(len, frames[:same]))
    assert run.correlations == list(range(same))
    assert batches_of(run) == [memoryview(batch(*shape[6])) for shape in asked[:same]]
    version, client_id, topic, partition, acks, timeout_ms = asked[0][:6]
    named = UUID(int=3).bytes if version >= 13 else topic
    expected = (version, client_id, acks, timeout_ms, named, partition)
    assert (run.version, run.client_id, run.acks, run.timeout_ms, run.named, run.partition) == expected


@given(st.data())
def test_damaged_requests_are_never_read_beyond_their_end(drawn: st.DataObject) -> None:
    data = bytearray(shaped((9, "tests", "orders", 0, -1, 100, ["a"], 1), 0) * 2)
    for _ in range(drawn.draw(st.integers(1, 4))):
        data[drawn.draw(st.integers(0, len(data) - 1))] = drawn.draw(st.integers(0, 255))
    run = new_reader().take(memoryview(data), 0, 8)
    if run is not None:
        assert run.size <= len(data)
        assert sum(map(len, batches_of(run))) == len(run.payload)
        assert PRODUCE_API.supports(run.version)


PLAIN = (9, "tests", "orders", 0, -1, 100, ["a"], 1)


def test_the_reader_is_called_wrongly_and_lives() -> None:
    data, reader = shaped(PLAIN, 0), new_reader()
    assert type(reader.take(data, 0, 1)) is native.ProduceRun
    for at, most in ((-1, 1), (len(data) + 1, 1), (0, 0)):
        assert reader.take(data, at, most) is None
    for wrong in ((data, 0), (data, "0", 1), ("text", 0, 1)):
        with pytest.raises(TypeError):
            reader.take(*wrong)
    for changed in ({"versions": (3, 13, 9)}, {"versions": (3, 13, 9, "13")}, {"scratch": b"read only"}, {"inbox": ()}):
        with pytest.raises(TypeError):
            new_reader(**changed)
    with pytest.raises(TypeError):
        native.ProduceRun()
    with pytest.raises(TypeError):
        reader.buffer_updated("7")


class Received:
    """A connection at rest whose last run was PLAIN, and what it received otherwise."""

    def __init__(self, **limits: int) -> None:
        self.scratch, self.sizes, self.first = bytearray(1 << 16), list[int](), 0
        self.inbox, self.in_flight = list[Any](), list[Any]()
        self._bytes = self._requests = self.active_at_ms = self.used_bytes = self.flow_controlled = 0
        self.reader = new_reader(
            self,
            **{"used_bytes_max": 2_000} | limits,
            host=self,
            receive=self.sizes.append,
            inbox=self.inbox,
            in_flight=self.in_flight,
            scratch=self.scratch,
            on_first=self.begin,
        )
        self.reader.take(shaped(PLAIN, 0), 0, 1)
        self.reader.call = "of the last run"

    def begin(self) -> None:
        self.first += 1

    def _update_flow_control(self) -> None:
        self.flow_controlled += 1

    def receive(self, data: bytes) -> None:
        self.scratch[: len(data)] = data
        self.reader.buffer_updated(len(data))


def test_an_armed_reader_hands_over_runs_like_the_last_one() -> None:
    connection = Received()
    connection.reader.armed = True
    for turn in range(1, 4):
        data = shaped(PLAIN, turn - 1) + shaped(PLAIN, turn)
        connection.receive(data)
        assert connection.reader.armed
        assert (connection._bytes, connection._requests) == (turn * len(data), turn * 2)
        assert connection.used_bytes == turn * len(data)
    assert connection.flow_controlled == 0
    assert [run.correlations for run in connection.inbox] == [[0, 1], [1, 2], [2, 3]]
    assert connection.inbox == connection.in_flight
    assert {(run.call, run.connection, run.arrived_ns, run.done) for run in connection.inbox} == {
        ("of the last run", connection, 7, False)
    }
    assert (connection.first, connection.sizes) == (1, [])


def test_runs_of_one_connection_are_answered_in_their_order() -> None:
    """One that is not the next is left to the connection, and so is the next one then: it is not the last that has its response."""
    written: list[bytes] = []
    connection = Received(used_bytes_max=1 << 20)
    connection.reader.write, connection.reader.unsent = written.append, lambda: 0
    connection.reader.armed = True
    for turn in range(4):
        connection.receive(shaped(PLAIN, turn))
    first, second, third, fourth = connection.inbox
    *_, left, _ = native.send_responses([first, second], [b"0", b"1"], 70, 10, True, 0)
    assert (written, left, connection.in_flight) == ([b"0", b"1"], [], [third, fourth])
    assert (connection._requests, connection._bytes) == (2, third.size + fourth.size)
    assert connection.reader.armed
    *_, left, _ = native.send_responses([fourth], [b"3"], 71, 10, True, 0)
    assert (left, connection.in_flight) == ([(fourth, b"3")], [third, fourth])
    connection.reader.armed = False  # as the connection does, which holds that one back
    *_, left, _ = native.send_responses([third], [b"2"], 72, 10, True, 0)
    assert (left, written, connection.active_at_ms) == ([(third, b"2")], [b"0", b"1"], 70)


@pytest.mark.parametrize("limit", ["requests_max", "in_flight_bytes_max"])
def test_a_connection_with_as_much_in_flight_as_it_may_looks_at_its_limits(limit: str) -> None:
    one = len(shaped(PLAIN, 0))
    connection = Received(used_bytes_max=1 << 20, **{limit: 2 if limit == "requests_max" else 2 * one})
    connection.reader.armed = True
    connection.receive(shaped(PLAIN, 0))
    assert (connection.reader.armed, connection.flow_controlled) == (True, 0)
    connection.receive(shaped(PLAIN, 1))
    assert (connection.reader.armed, connection.flow_controlled) == (False, 1)
    connection.reader.armed = True  # it is not: more than it may have is received, not handed over
    connection.receive(shaped(PLAIN, 2) * (1 if limit == "requests_max" else 9))
    assert (len(connection.inbox), len(connection.sizes)) == (2, 1)


def test_responses_are_sent_to_those_that_have_nothing_in_flight_but_runs() -> None:
    """To the others the caller sends them, and to those that cannot be written to nobody does."""
    written: list[bytes] = []
    connections = [Received() for _ in range(5)]
    for at, each in enumerate(connections):
        each.reader.write, each.reader.unsent = written.append, lambda at=at: at * 100
        each.reader.armed = True
        each.receive(shaped(PLAIN, at) * 2)
    _, busy, disarmed, broken, unread = connections
    busy.receive(b"the begin of the next")
    assert not busy.reader.armed
    disarmed.reader.armed = False
    broken.reader.write = lambda response: 1 // 0
    runs, responses = [each.in_flight[0] for each in connections], [b"0", b"1", b"2", b"3", b"4"]
    size, count, took_ns, *within, left, unread_bytes = native.send_responses(runs, responses, 70, 10, True, 399)
    assert written == [b"0", b"4"]
    assert (size, count, took_ns, within) == (2 * runs[0].size, 4, 4 * (10 - 7), [3, 3])
    assert [(run, str(what)) for run, what in left] == [
        (runs[1], "b'1'"),
        (runs[2], "b'2'"),
        (runs[3], "integer division or modulo by zero"),
    ]
    assert unread_bytes == [(unread, 400)]
    plain_again = connections[0]
    plain_again.reader.unsent = lambda: 1 // 0
    plain_again.receive(shaped(PLAIN, 9))
    *_, left, unread_bytes = native.send_responses(plain_again.in_flight[:], [b"9"], 70, 10, True, 399)
    assert (left, written[-1]) == ([], b"9")
    ((who, why),) = unread_bytes
    assert (who, str(why)) == (plain_again, "integer division or modulo by zero")
    for each, sent in zip(connections, [True, False, False, False, True], strict=True):
        assert (each.reader.armed, each.in_flight == [], each._bytes == 0, each._requests == 0) == (sent,) * 4
        assert each.active_at_ms == (70 if sent else 0)
    assert [run.done for run in runs] == [True, False, False, False, True]


def test_a_transport_that_is_full_after_a_response_makes_the_connection_busy() -> None:
    connection = Received()
    connection.reader.armed = True
    connection.receive(shaped(PLAIN, 0))

    def write(response: bytes) -> None:
        connection.reader.armed = False  # as `pause_writing` does

    connection.reader.write, connection.reader.unsent = write, lambda: 0
    assert native.send_responses([*connection.in_flight], [b"0"], 70, 10, True, 0)[0]
    assert not connection.reader.armed


def test_responses_are_sent_wrongly_and_nothing_happens() -> None:
    connection = Received()
    for runs in ([1], [connection], ()):
        with pytest.raises(TypeError):
            native.send_responses(runs, [b""], 70, 10, True, 0)
        with pytest.raises(TypeError):
            native.runs_alike(runs, True)
    assert native.send_responses([], [], 70, 10, True, 0) == (0, 0, 0, 0, 0, [], [])


@given(st.lists(plain_shapes, min_size=1, max_size=4))
def test_runs_are_alike_if_their_partition_and_their_answer_are(asked: list[Any]) -> None:
    runs = [new_reader().take(shaped(shape, 0), 0, 1) for shape in asked]
    assert native.runs_alike(runs, False) == (len({(run.named, run.partition) for run in runs}) == 1)
    kinds = {(run.named, run.partition, run.acks, run.timeout_ms, run.version) for run in runs}
    assert native.runs_alike(runs, True) == (len(kinds) == 1)


def test_a_run_that_fills_the_memory_of_all_requests_makes_the_connection_look_at_its_limits() -> None:
    connection = Received()
    connection.reader.write, connection.reader.unsent = (lambda response: None), (lambda: 0)
    connection.used_bytes = 1_999
    connection.reader.armed = True
    connection.receive(shaped(PLAIN, 0))
    assert (connection.flow_controlled, len(connection.inbox), connection.used_bytes > 2_000) == (1, 1, True)
    *_, left, _ = native.send_responses([*connection.inbox], [b"0"], 70, 10, True, 0)
    assert left == [(connection.inbox[0], b"0")], "its connection looks for room and goes on reading"


UNLIKE = {
    "another version": shaped((8, *PLAIN[1:]), 0),
    "another client": shaped((9, "others", *PLAIN[2:]), 0),
    "no batch": shaped((*PLAIN[:7], 0), 0),
    "no answer": shaped((*PLAIN[:4], 0, *PLAIN[5:]), 0),
    "cut": shaped(PLAIN, 0)[:-1],
    "more than it": shaped(PLAIN, 0) + b"\0",
    "two kinds": shaped(PLAIN, 0) + shaped((9, "tests", "orders", 1, *PLAIN[4:]), 0),
    "too many": shaped(PLAIN, 0) * 9,
    "no text": shaped(PLAIN, 0).replace(b"tests", b"te\xffts"),
    "something else": request_frame(API_VERSIONS, 0, {}, correlation=1, client_id="tests"),
}


@pytest.mark.parametrize("armed", [True, False], ids=["armed", "not armed"])
@pytest.mark.parametrize("data", UNLIKE.values(), ids=UNLIKE)
def test_whatever_else_arrives_is_received_by_the_connection(data: bytes, armed: bool) -> None:
    connection = Received()
    connection.reader.armed = armed
    connection.receive(data)
    assert (connection.sizes, connection.inbox, connection.in_flight) == ([len(data)], [], [])
    assert not connection.reader.armed


def test_a_reader_that_is_not_armed_hands_nothing_over() -> None:
    connection = Received()
    connection.receive(shaped(PLAIN, 0))
    assert (len(connection.sizes), connection.inbox) == (1, [])


def test_a_reader_and_its_connection_are_collected_together() -> None:
    connection = Received()
    connection.reader.armed = True
    connection.receive(shaped(PLAIN, 0))
    gone = weakref.ref(connection)
    del connection
    gc.collect()
    assert gone() is None


# ── armed connections ──


def has_requests(connection: KafkaConnection, count: int) -> bool:
    return connection._requests == count


async def test_requests_that_come_while_others_are_in_flight_are_answered_in_order(tmp_path: Path) -> None:
    """A disk that stands still must not cost each of them the long way."""
    async with one_client(tmp_path) as (gateway, client):
        (connection,) = gateway.server.connections
        assert await answers(client, [orders("a")]) == [(0, 1)]
        reader, received = reader_of(connection), list[int]()
        connection._received = lambda data: received.append(len(data))  # type: ignore[method-assign]
        wal = gateway.node.agent.wal
        synced, held = wal._writer._reports.synced, list[Any]()
        wal._writer._reports = wal._writer._reports._replace(synced=held.append)
        for number in range(40):
            await client.send_bytes(framed(VERSION, orders(f"{number}"), number))
            await async_until(partial(has_requests, connection, number + 1))
            assert reader.armed
        wal._writer._reports = wal._writer._reports._replace(synced=synced)
        for group in held:
            synced(group)
        for number in range(40):
            answer = client.understood(PRODUCE, VERSION, number, await client.receive())
            assert answer.responses[0].partition_responses[0].base_offset == 2 + number
        assert (reader.armed, received, connection._bytes, connection._requests) == (True, [], 0, 0)
        assert gateway.server.used_bytes == 0
        assert await stored(gateway) == ["first", "a", *map(str, range(40))]


async def test_requests_one_after_the_other_are_answered_however_they_arrive(tmp_path: Path) -> None:
    """The connection is at rest before each: some are handed over in the short way, the others are what that must not take."""
    async with one_client(tmp_path) as (gateway, client):
        (connection,) = gateway.server.connections
        handed_over = 0
        expected = ["first"]
        for number, kind in enumerate(["whole", "cut", "whole", "length cut", "whole", "two", "topics", "whole"] * 6):
            handed_over += reader_of(connection).armed and kind in ("whole", "two")
            values = [f"{number}"] * (2 if kind == "two" else 1)
            data = together([orders(value) for value in values])
            cut = {"cut": 40 + number, "length cut": 1 + number % 3}.get(kind, 0)
            if kind == "topics":
                await client.ask(API_VERSIONS, 0, {})
            if cut:
                await client.send_bytes(data[:cut])
                await async_until(lambda: connection._length or connection._frame is not None)
            await client.send_bytes(data[cut:])
            async with asyncio.timeout(20):
                for correlation in range(len(values)):
                    answer = client.understood(PRODUCE, VERSION, correlation, await client.receive())
                    assert answer.responses[0].partition_responses[0].base_offset == len(expected)
                    expected.append(values[correlation])
            assert (connection._bytes, connection._requests, gateway.server.used_bytes) == (0, 0, 0)
        assert await stored(gateway) == expected
        assert handed_over > 15
        counted = gateway.server.latencies["Produce"].count
        assert counted == len(expected)
        assert gateway.server.requests == counted + 6


@pytest.mark.parametrize("event", ["pause_writing", "stop_reading", "close", "connection_lost", "muted"])
async def test_a_connection_that_reads_no_more_hands_nothing_over(tmp_path: Path, event: str) -> None:
    async with one_client(tmp_path) as (gateway, client):
        (connection,) = gateway.server.connections
        assert await answers(client, [orders("a")]) == [(0, 1)]
        reader = reader_of(connection)
        assert reader.armed
        match event:
            case "muted":
                connection._mute(10)
            case "connection_lost":
                connection.connection_lost(None)
            case _:
                getattr(connection, event)()
        assert not reader.armed


async def test_a_client_with_a_quota_is_metered_from_its_second_request_on(tmp_path: Path) -> None:
    async with one_client(tmp_path) as (gateway, client):
        (connection,) = gateway.server.connections
        assert await answers(client, [orders("a")]) == [(0, 1)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(gateway.backend.quotas), "any", True)
            assert await answers(client, [orders("b")]) == [(0, 2)]
            assert not reader_of(connection).armed


# ── limits ──


def begun(size: int) -> bytes:
    """The beginning of a large request, which is counted as a whole from now on."""
    return size.to_bytes(4, "big") + b"\0\0\0\x09" + bytes(70_000)


async def more_than(server: KafkaServer, used_bytes: int, sending: Awaitable[None]) -> None:
    await sending
    await async_until(lambda: server.used_bytes > used_bytes)


async def closed(server: KafkaServer, client: WireClient) -> None:
    used_bytes = server.used_bytes
    client.close()
    await async_until(lambda: server.used_bytes < used_bytes)


async def taken_whole(client: WireClient, data: bytes, first: int, count: int) -> None:
    await client.send_bytes(data)
    async with asyncio.timeout(10):
        for correlation in range(first, first + count):
            assert (await client.receive())[0] == correlation


@pytest.mark.parametrize("count", [1, 4])
async def test_a_connection_that_was_paused_with_a_run_in_flight_is_read_again(tmp_path: Path, count: int) -> None:
    limits: dict[str, Any] = {"requests_bytes_max": 1 << 20, "requests_in_flight_max": count}
    async with gateway_on(tmp_path, topics={"orders": 1}, config={"durability": "object"}, **limits) as gateway:
        server, client = gateway.server, await gateway.client()
        run = together([orders("x")] * count)
        await taken_whole(client, run, 0, count)
        (connection,) = server.connections
        others = [await gateway.client() for _ in range(2)]
        for each in others:
            await more_than(server, server.used_bytes, each.send_bytes(begun(900_000)))
        await client.send_bytes(run[:20])  # it waits for memory from here on, until somebody frees some
        await async_until(lambda: connection._frame is not None)
        await taken_whole(client, run[20:], 0, count)
        for _ in range(2):
            await taken_whole(client, run, 0, count)
        led = gateway.backend.log._serving("orders", 0)
        assert led is not None
        async with led.publish_lock:
            await client.send_bytes(run)
            await async_until(lambda: connection._requests == count)
            for each in others:
                await closed(server, each)
        async with asyncio.timeout(10):
            for correlation in range(count):
                assert (await client.receive())[0] == correlation
        await taken_whole(client, run, 0, count)
        assert server.used_bytes == 0


async def test_a_run_in_flight_that_is_all_a_connection_may_have_leaves_it_readable(tmp_path: Path) -> None:
    config = {"durability": "object"}
    async with gateway_on(tmp_path, topics={"orders": 1}, config=config, requests_in_flight_max=1) as gateway:
        client, one = await gateway.client(), together([orders("x")])
        for _ in range(3):
            await taken_whole(client, one, 0, 1)
        (connection,), led = gateway.server.connections, gateway.backend.log._serving("orders", 0)
        assert led is not None
        async with led.publish_lock:
            await client.send_bytes(one)
            await async_until(lambda: connection._read_paused)
            connection.memory_freed()  # requests of others were answered
            gateway.server.released(0)  # and more of them
            assert connection._read_paused
        assert (await client.receive())[0] == 0
        await taken_whole(client, one, 0, 1)


async def test_a_large_request_that_waits_behind_others_is_read_once_there_is_memory(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"requests_bytes_max": 1 << 20, "requests_in_flight_max": 2}
    async with gateway_on(tmp_path, topics={"orders": 1}, config={"durability": "object"}, **limits) as gateway:
        server, client, other = gateway.server, await gateway.client(), await gateway.client()
        await other.ask(API_VERSIONS, 0, {})
        data = together([orders("x"), orders("y"), orders("z" * 200_000)])
        led = gateway.backend.log._serving("orders", 0)
        assert led is not None
        async with led.publish_lock:
            client.writer.write(data[:60_000])
            await async_until(lambda: any(each._unparsed is not None for each in server.connections))
            await other.ask(API_VERSIONS, 0, {})  # whose response is memory for those that wait for it
            large = await gateway.client()
            await large.send_bytes(begun(1_100_000))
            await async_until(lambda: server.used_bytes > 1_100_000)
        for correlation in range(2):
            assert (await client.receive())[0] == correlation
        client.writer.write(data[60_000:])
        large.close()
        async with asyncio.timeout(10):
            assert (await client.receive())[0] == 2
        assert await stored(gateway) == ["x", "y", "z" * 200_000]


@pytest.mark.parametrize("way", ["whole", "cut", "behind another", "logged in"])
async def test_a_client_that_produces_is_not_idle(tmp_path: Path, way: str) -> None:
    async with AsyncExitStack() as stack:
        if way == "logged in":
            secure = await stack.enter_async_context(secure_gateway(tmp_path, topics={"orders": 1}))
            gateway, client = secure.gateway, (await secure.logged_in("root")).wire
        else:
            gateway = await stack.enter_async_context(gateway_on(tmp_path, topics={"orders": 1}))
            client = await gateway.client()
        one, cut = together([orders("x")]), 20 if way == "cut" else 0
        await taken_whole(client, one, 0, 1)
        (connection,) = gateway.server.connections
        for _ in range(3):
            connection.active_at_ms = 0
            if cut:
                await client.send_bytes(one[:cut])
                await async_until(lambda: connection._frame is not None)
            if way == "behind another":
                await client.send_bytes(framed(VERSION, orders("y", partition=1), 0))
                await client.receive()
            await taken_whole(client, one[cut:], 0, 1)
            assert connection.active_at_ms > 0


async def test_a_client_whose_session_has_expired_leaves_the_count_of_memory_as_it_was(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path, topics={"orders": 1}, sasl_session_ms=300) as secure:
        client = await secure.logged_in("root")
        await client.wire.send_bytes(together([orders("x")]))
        await client.wire.receive()
        await secure.backend.clock.sleep_ms(400)
        await client.wire.send_bytes(together([orders("x" * 1_000)] * 50))
        assert await client.wire.hung_up()
        await async_until(lambda: not secure.gateway.server.connections)
        assert secure.gateway.server.used_bytes == 0


async def test_a_connection_that_is_gone_needs_no_collector(tmp_path: Path) -> None:
    async with one_client(tmp_path) as (gateway, client):
        assert await answers(client, [orders("a")]) == [(0, 1)]
        (connection,) = gateway.server.connections
        gone = weakref.ref(connection)
        gc.collect()
        gc.disable()
        try:
            del connection
            client.close()
            await async_until(lambda: not gateway.server.connections)
            await async_until(lambda: gone() is None)
        finally:
            gc.enable()
