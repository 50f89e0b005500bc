"""Streams over real sockets: one frame per turn, answers together, credit, reconnecting, and who is let in."""

import asyncio
import logging
import socket
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.peers import (
    CLUSTER,
    QUICK,
    Answers,
    MemberTable,
    RawPeer,
    key,
    listening_node,
    member_of,
    stream_node,
)
from tests.support.waiting import async_until

from holdfast.agent.peers.frames import FrameKind, MessageClass, decode_answers, encode_answers, encode_frame
from holdfast.agent.peers.handshake import (
    VERSIONS,
    ProtocolVersions,
    Refusal,
    Welcome,
    decode_handshake,
    encode_handshake,
)
from holdfast.agent.peers.observations import DialOutcome
from holdfast.agent.peers.send_queue import STREAM
from holdfast.testing.fault_proxy import FaultProxy
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.types import Member

SMALL = replace(QUICK, stream_credit_bytes=4_096, partition_credit_bytes=1_024)
CLOCK = RealClock()
RAW = Member(id="raw", session="s", wal_id="wal-raw")


@pytest.fixture
def table() -> MemberTable:
    return MemberTable()


async def test_two_agents_connect_both_ways_and_answer_each_other(table: MemberTable) -> None:
    async with stream_node(table, "ann") as ann, stream_node(table, "bob") as bob:
        assert await ann.ask("bob", b"1") == [b"ok:1"]
        assert await bob.ask("ann", b"2") == [b"ok:2"]
        assert bob.received[0].peer.agent == "ann"
        stream = await ann.stream_to("bob")
        assert stream.version == VERSIONS.newest
        assert stream.counters.round_trip_s.count == 1
        assert stream.unanswered_bytes == stream.queued_bytes == 0


async def test_what_is_sent_in_one_turn_is_one_frame_and_so_are_its_answers(table: MemberTable) -> None:
    async with stream_node(table, "ann") as ann, stream_node(table, "bob") as bob:
        stream, answers = await ann.stream_to("bob"), Answers()
        frames = stream.counters.received_frames
        for partition in range(3):
            stream.send(key(partition), [b"part ", f"{partition}".encode()], answers)
        await async_until(lambda: len(answers.got) == 3)
        assert bob.frames() == [[b"part 0", b"part 1", b"part 2"]]
        assert answers.got == [b"ok:part 0", b"ok:part 1", b"ok:part 2"]
        pongs = stream.counters.received_frames - frames - 1
        assert stream.counters.round_trip_s.count == 1, f"one frame of answers, and {pongs} signs of life"


async def test_a_large_message_arrives_whole(table: MemberTable) -> None:
    async with stream_node(table, "ann") as ann, stream_node(table, "bob"):
        large = bytes(range(256)) * 40_000  # ten megabytes, more than a partition's credit
        (answer,) = await ann.ask("bob", large)
        assert answer == b"ok:" + large


async def test_an_answer_may_come_later_than_those_behind_it(table: MemberTable) -> None:
    async with stream_node(table, "ann") as ann, stream_node(table, "bob") as bob:
        bob.hold = lambda message: message.key == key(0)
        stream, slow = await ann.stream_to("bob"), Answers()
        stream.send(key(0), [b"slow"], slow)
        assert await ann.ask("bob", b"fast", partition=1) == [b"ok:fast"]
        assert slow.got == []
        bob.answer_held()
        await async_until(lambda: slow.got == [b"late:slow"])


# ── credit ──


async def test_a_slow_partition_does_not_hold_up_the_others(table: MemberTable) -> None:
    async with stream_node(table, "ann") as ann, stream_node(table, "bob", settings=SMALL) as bob:
        bob.hold = lambda message: message.key == key(0)
        stream, slow = await ann.stream_to("bob"), Answers()
        sent = 0
        while stream.send(key(0), [bytes(400)], slow):
            sent += 1
            await CLOCK.sleep_ms(0)
        assert sent >= 3, "two of them unanswered, the others in memory"
        for _ in range(20):
            assert await ann.ask("bob", bytes(700), partition=1) == [b"ok:" + bytes(700)]
        assert stream.counters.credit_waits >= 1
        bob.hold = lambda _: False
        bob.answer_held()
        await async_until(lambda: len(slow.got) == sent)
        assert None not in slow.got


async def test_control_messages_pass_a_stream_without_credit(table: MemberTable) -> None:
    async with stream_node(table, "ann") as ann, stream_node(table, "bob", settings=SMALL) as bob:
        bob.hold = lambda message: message.kind is MessageClass.DATA
        stream, waiting, control = await ann.stream_to("bob"), Answers(), Answers()
        for partition in range(20):
            stream.send(key(partition), [bytes(900)], waiting)
        await async_until(lambda: stream.queued_bytes and stream.counters.credit_waits)
        assert stream.send(key(0), [b"seal"], control, kind=MessageClass.CONTROL)
        await async_until(lambda: control.got == [b"ok:seal"])
        assert waiting.got == []


async def test_out_of_credit_for_too_long_is_reported_and_nothing_more_is_kept(table: MemberTable) -> None:
    impatient = replace(SMALL, lag_ms=100)
    async with stream_node(table, "ann", settings=impatient) as ann, stream_node(table, "bob", settings=SMALL) as bob:
        bob.hold = lambda message: message.key == key(0)
        stream, slow = await ann.stream_to("bob"), Answers()
        for _ in range(4):
            assert stream.send(key(0), [bytes(450)], slow)
        await async_until(lambda: ann.events.lagging_keys == [key(0)])
        assert slow.got == [None, None], "those that waited; two are unanswered"
        assert stream.queued_bytes == 0
        assert not stream.send(key(0), [b"more"], slow)
        assert await ann.ask("bob", b"fast", partition=1) == [b"ok:fast"]
        bob.answer_held()
        await async_until(lambda: ann.events.recovered_keys == [key(0)])
        bob.hold = lambda _: False
        assert await ann.ask("bob", b"again") == [b"ok:again"]


async def test_a_stream_out_of_credit_lags_as_a_whole(table: MemberTable) -> None:
    impatient = replace(SMALL, lag_ms=100)
    async with stream_node(table, "ann", settings=impatient) as ann, stream_node(table, "bob", settings=SMALL) as bob:
        bob.hold = lambda _: True
        stream, slow = await ann.stream_to("bob"), Answers()
        for partition in range(8):
            stream.send(key(partition), [bytes(900)], slow)
            await CLOCK.sleep_ms(0)
        await async_until(lambda: STREAM in ann.events.lagging_keys)
        assert not stream.send(key(99), [b"more"], slow)
        bob.hold = lambda _: False
        bob.answer_held()
        await async_until(lambda: STREAM in ann.events.recovered_keys)
        assert stream.send(key(99), [b"more"], slow)
        await async_until(lambda: slow.got[-1] == b"ok:more")


async def test_a_peer_that_sends_more_than_its_credit_is_closed(table: MemberTable) -> None:
    table.put(RAW)
    async with stream_node(table, "bob", settings=SMALL) as bob:
        bob.hold = lambda _: True
        with RawPeer(bob.peers.address) as raw:
            raw.hello()
            await raw.receive(FrameKind.WELCOME)
            raw.messages(1, bytes(600))
            raw.messages(2, bytes(600))
            goodbye = await raw.receive(FrameKind.GOODBYE)
            assert b"exceed the credit of 1024" in bytes(goodbye.body)
            await raw.until_closed()
        await async_until(lambda: not bob.peers.server.streams)


# ── who is let in ──


@pytest.mark.parametrize(
    ("changes", "member", "reason"),
    [
        ({"cluster": "other"}, RAW, "cluster 'other' is not this cluster"),
        ({}, None, "agent 'raw' is not a live member"),
        ({"wal_id": "wal-stolen"}, RAW, "agent 'raw' is not registered with WAL 'wal-stolen'"),
        ({"version": 99, "oldest": 98}, RAW, "versions 98 to 99 are not supported: 1 to 3 are"),
    ],
)
async def test_a_stranger_is_refused_with_the_reason_and_cannot_append(
    table: MemberTable,
    caplog: pytest.LogCaptureFixture,
    changes: dict[str, object],
    member: Member | None,
    reason: str,
) -> None:
    if member is not None:
        table.put(member)
    async with stream_node(table, "bob") as bob:
        with caplog.at_level(logging.WARNING), RawPeer(bob.peers.address) as raw:
            raw.hello(**changes)
            refusal = decode_handshake((await raw.receive(FrameKind.REFUSAL)).body, Refusal)
            assert refusal.reason == reason
            await raw.until_closed()
        assert bob.received == []
        assert bob.peers.server.refused == 1
        assert f"refused: {reason}" in caplog.text


async def test_messages_before_the_handshake_close_the_connection(table: MemberTable) -> None:
    async with stream_node(table, "bob") as bob:
        with RawPeer(bob.peers.address) as raw:
            raw.messages(1, b"append this")
            goodbye = await raw.receive(FrameKind.GOODBYE)
            assert b"MESSAGES in the handshake" in bytes(goodbye.body)
            await raw.until_closed()
        assert bob.received == []


async def test_a_frame_of_the_handshake_is_small(table: MemberTable) -> None:
    async with stream_node(table, "bob") as bob:
        with RawPeer(bob.peers.address) as raw:
            raw.send(encode_frame(FrameKind.HELLO, bytes(5_000)))
            goodbye = await raw.receive(FrameKind.GOODBYE)
            assert b"its body has 5000 bytes, the limit is 4096" in bytes(goodbye.body)


async def test_a_member_that_this_agent_does_not_see_yet_is_waited_for(table: MemberTable) -> None:
    patient = replace(QUICK, admission_ms=60_000)
    async with stream_node(table, "bob", settings=patient) as bob:
        with RawPeer(bob.peers.address) as raw:
            raw.hello()
            await async_until(lambda: bob.peers.server._hellos)
            table.put(RAW)
            welcome = decode_handshake((await raw.receive(FrameKind.WELCOME)).body, Welcome)
            assert (welcome.agent, welcome.cluster, welcome.version) == ("bob", CLUSTER, 1)


async def test_an_agent_that_left_or_has_another_wal_is_closed(table: MemberTable) -> None:
    for new_wal_id in ("wal-new", ""):
        table.put(RAW)
        async with stream_node(table, "bob") as bob:
            with RawPeer(bob.peers.address) as raw:
                raw.hello()
                await raw.receive(FrameKind.WELCOME)
                if new_wal_id:
                    table.put(replace(RAW, wal_id=new_wal_id))
                else:
                    table.remove("raw")
                goodbye = await raw.receive(FrameKind.GOODBYE)
                assert b"is not a live member any more" in bytes(goodbye.body)


async def test_whoever_listens_where_the_peer_was_is_not_taken_for_it(table: MemberTable) -> None:
    """An agent's port may belong to another agent after a restart."""
    async with stream_node(table, "ann") as ann, stream_node(table, "bob") as bob:
        table.put(Member(id="carol", session="s", wal_id="wal-carol", peer_address=bob.peers.address))
        await async_until(
            lambda: any(
                each.agent == "carol" and each.outcome is DialOutcome.REJECTED and "agent 'bob'" in each.detail
                for each in ann.events.observations
            )
        )
        carol = ann.peers.to("wal-carol")
        assert carol is not None
        assert not carol.connected
        assert not carol.send(key(0), [b"x"], Answers())


async def test_the_newest_common_version_is_used_by_both_ends(table: MemberTable) -> None:
    """Agents of this and of the previous format work together, whoever connects."""
    async with (
        stream_node(table, "new", versions=ProtocolVersions(6, 7)) as new,
        stream_node(table, "old", versions=ProtocolVersions(5, 6)) as old,
    ):
        assert await new.ask("old", b"1") == [b"ok:1"]
        assert await old.ask("new", b"2") == [b"ok:2"]
        assert (await new.stream_to("old")).version == (await old.stream_to("new")).version == 6
        assert new.received[0].version == old.received[0].version == 6


async def test_agents_without_a_common_version_refuse_each_other(table: MemberTable) -> None:
    async with (
        stream_node(table, "new", versions=ProtocolVersions(7, 8)) as new,
        stream_node(table, "old", versions=ProtocolVersions(5, 6)),
    ):
        await async_until(lambda: DialOutcome.REJECTED in new.events.outcomes())
        (first, *_) = new.events.observations
        assert first.detail == "versions 7 to 8 are not supported: 5 to 6 are"


async def test_members_of_a_release_without_streams_are_left_alone(table: MemberTable) -> None:
    table.put(Member(id="old", session="s", address="h:9092"))
    async with stream_node(table, "ann") as ann, stream_node(table, "bob"):
        await ann.stream_to("bob")
        assert [stream.peer.agent for stream in ann.peers.streams] == ["bob"]


# ── malformed bytes ──


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.binary(min_size=20, max_size=400), after_handshake=st.booleans())
def test_any_bytes_end_their_connection_at_most(data: bytes, after_handshake: bool) -> None:
    async def steps() -> None:
        table = MemberTable()
        table.put(RAW)
        async with stream_node(table, "bob") as bob, stream_node(table, "ann") as ann:
            with RawPeer(bob.peers.address) as raw:
                if after_handshake:
                    raw.hello()
                    await raw.receive(FrameKind.WELCOME)
                raw.socket.sendall(data)
                raw.socket.shutdown(socket.SHUT_WR)
                await raw.until_closed()
            assert await ann.ask("bob", b"1") == [b"ok:1"], "others are served as before"

    asyncio.run(steps())


async def test_a_wrong_checksum_ends_the_connection_with_the_reason(
    table: MemberTable, caplog: pytest.LogCaptureFixture
) -> None:
    table.put(RAW)
    async with stream_node(table, "bob") as bob:
        with caplog.at_level(logging.WARNING), RawPeer(bob.peers.address) as raw:
            raw.hello()
            await raw.receive(FrameKind.WELCOME)
            frame = bytearray(b"".join(encode_frame(FrameKind.PING)))
            frame[4] ^= 1
            raw.socket.sendall(frame)
            goodbye = await raw.receive(FrameKind.GOODBYE)
            assert bytes(goodbye.body) == b"malformed frame: its checksum is wrong"
            await raw.until_closed()
        await async_until(lambda: "connection from agent raw: malformed: malformed frame" in caplog.text)


async def test_an_answer_to_nothing_ends_the_connection(table: MemberTable) -> None:
    async with stream_node(table, "ann") as ann, stream_node(table, "bob") as bob:
        await ann.stream_to("bob")
        (inbound,) = bob.peers.server.streams
        inbound.connection.send(encode_answers([(77, 0, [b"ok"])]))
        await async_until(lambda: DialOutcome.MALFORMED in ann.events.outcomes())
        assert await ann.ask("bob", b"1") == [b"ok:1"], "it connects again"


async def test_a_handler_that_fails_ends_that_connection_alone(table: MemberTable) -> None:
    async with stream_node(table, "ann") as ann, stream_node(table, "bob") as bob:

        def fail(received: object) -> None:
            raise RuntimeError("planted")

        take, bob.peers.on_messages = bob.peers.on_messages, fail
        stream, answers = await ann.stream_to("bob"), Answers()
        stream.send(key(0), [b"x"], answers)
        await async_until(lambda: answers.got == [None])
        bob.peers.on_messages = take
        assert await ann.ask("bob", b"1") == [b"ok:1"]


# ── the end of connections ──


@pytest.mark.parametrize("host", ["foo..bar", "a" * 64 + ".example", "ü" * 70], ids=["empty label", "long", "IDNA"])
async def test_an_agent_that_registered_no_name_of_a_host_ends_nobody_else(table: MemberTable, host: str) -> None:
    async with stream_node(table, "ann") as ann, stream_node(table, "bob"):
        table.put(replace(RAW, peer_address=f"{host}:9092"))
        await async_until(lambda: len(ann.events.observations) >= 2)
        assert set(ann.events.outcomes()) == {DialOutcome.UNREACHABLE}
        assert await ann.ask("bob", b"1") == [b"ok:1"]


async def test_a_connection_that_is_cut_is_a_reset_and_made_again(table: MemberTable) -> None:
    async with stream_node(table, "ann") as ann, listening_node(table, "bob", register=False) as bob:
        host, _, port = bob.peers.address.rpartition(":")
        async with FaultProxy.running(host, int(port), clock=CLOCK) as proxy, bob.peers.joined():
            table.put(replace(member_of(bob.peers), peer_address=f"127.0.0.1:{proxy.port}"))
            bob.hold = lambda _: True
            stream, answers = await ann.stream_to("bob"), Answers()
            stream.send(key(0), [b"lost"], answers)
            await async_until(lambda: bob.held)
            await proxy.cut()
            await async_until(lambda: answers.got == [None], what="its fate is unknown")
            bob.answer_held()  # to nobody
            bob.hold = lambda _: False
            assert await ann.ask("bob", b"1") == [b"ok:1"]
            reset = ann.events.observations[0]
            assert (reset.outcome, reset.established) == (DialOutcome.RESET, True)
            assert ann.events.connected_to == ["bob", "bob"], "positions are asked for again"
            assert ann.events.disconnected_from == ["bob"]
            assert stream.counters.connects == 2


async def test_nothing_is_kept_while_there_is_no_connection(table: MemberTable) -> None:
    async with stream_node(table, "ann") as ann, listening_node(table, "bob") as bob:
        await async_until(lambda: DialOutcome.REJECTED in ann.events.outcomes())
        assert ann.events.observations[0].detail == "agent 'bob' has no session"
        stream, answers = ann.peers.to("wal-bob"), Answers()
        assert stream is not None
        assert not stream.send(key(0), [b"x"], answers)
        assert stream.counters.refused_sends == 1
        async with bob.peers.joined():
            assert await ann.ask("bob", b"1") == [b"ok:1"]
        assert answers.got == []


async def test_the_end_of_a_session_closes_the_streams_and_not_the_port(table: MemberTable) -> None:
    async with stream_node(table, "ann") as ann, listening_node(table, "bob") as bob:
        async with bob.peers.joined():
            await ann.stream_to("bob")
            await bob.stream_to("ann")
        await async_until(lambda: DialOutcome.REJECTED in ann.events.outcomes())
        first, second, *_ = ann.events.observations
        assert (first.outcome, first.detail) == (DialOutcome.CLOSED, "agent 'bob' has no session any more")
        assert (second.outcome, second.detail) == (DialOutcome.REJECTED, "agent 'bob' has no session")
        assert list(bob.peers.streams) == []
        assert DialOutcome.REFUSED not in ann.events.outcomes(), "a refusing port would mean that the process is dead"
        async with bob.peers.joined():
            assert await ann.ask("bob", b"1") == [b"ok:1"]


async def test_an_agent_that_stops_says_goodbye_and_then_its_port_refuses(table: MemberTable) -> None:
    async with stream_node(table, "ann") as ann:
        async with stream_node(table, "bob"):
            await ann.stream_to("bob")
        await async_until(lambda: DialOutcome.REFUSED in ann.events.outcomes())
        assert ann.events.outcomes()[0] is DialOutcome.CLOSED
        # An attempt may reach a port that is just being closed; the connection itself did not end so.
        assert not any(each.outcome is DialOutcome.RESET and each.established for each in ann.events.observations)
        table.remove("bob")
        await async_until(lambda: not list(ann.peers.streams))


async def test_a_silent_peer_is_a_time_out(table: MemberTable) -> None:
    """Half-open: the peer's machine is gone, or its process stands still. Nothing arrives, nothing fails."""
    impatient = replace(QUICK, keep_alive_ms=20, silent_ms=200)
    async with stream_node(table, "ann", settings=impatient) as ann:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            table.put(replace(RAW, peer_address=f"127.0.0.1:{silent.getsockname()[1]}"))
            with await _accepted(silent, credit_bytes=1_000):
                await async_until(lambda: ann.events.observations)
                seen = ann.events.observations[0]
                assert (seen.outcome, seen.established) == (DialOutcome.TIMED_OUT, True)
                assert seen.detail.startswith("nothing received for")


async def _accepted(listener: socket.socket, *, credit_bytes: int) -> socket.socket:
    """The next connection, after the handshake."""
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    accepted, _ = await loop.sock_accept(listener)
    await loop.sock_recv(accepted, 4_096)
    welcome = Welcome(
        version=1,
        cluster=CLUSTER,
        agent="raw",
        wal_id="wal-raw",
        stream_credit_bytes=credit_bytes,
        partition_credit_bytes=credit_bytes,
        control_credit_bytes=credit_bytes,
        frame_bytes_max=credit_bytes,
    )
    await loop.sock_sendall(accepted, b"".join(encode_frame(FrameKind.WELCOME, encode_handshake(welcome))))
    return accepted


async def test_a_peer_that_accepts_and_does_not_answer_is_a_time_out(table: MemberTable) -> None:
    impatient = replace(QUICK, connect_ms=50)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        table.put(replace(RAW, peer_address=f"127.0.0.1:{silent.getsockname()[1]}"))
        async with stream_node(table, "ann", settings=impatient) as ann:
            await async_until(lambda: len(ann.events.observations) >= 2)
            assert set(ann.events.outcomes()) == {DialOutcome.TIMED_OUT}


async def test_a_connecting_end_that_falls_silent_is_closed(table: MemberTable) -> None:
    table.put(RAW)
    async with stream_node(table, "bob", settings=replace(QUICK, keep_alive_ms=20, silent_ms=200)) as bob:
        with RawPeer(bob.peers.address) as raw:
            raw.hello()
            await raw.receive(FrameKind.WELCOME)
            await raw.until_closed()


async def test_a_connecting_end_that_says_nothing_is_closed(table: MemberTable) -> None:
    async with stream_node(table, "bob", settings=replace(QUICK, connect_ms=200)) as bob:
        with RawPeer(bob.peers.address) as mute:
            await mute.until_closed()


async def test_an_agent_that_connects_again_replaces_its_former_connection(table: MemberTable) -> None:
    table.put(RAW)
    async with stream_node(table, "bob") as bob:
        with RawPeer(bob.peers.address) as first, RawPeer(bob.peers.address) as second:
            first.hello()
            await first.receive(FrameKind.WELCOME)
            second.hello()
            await second.receive(FrameKind.WELCOME)
            await first.until_closed()
            second.messages(5, b"x")
            (answer,) = decode_answers(await second.receive(FrameKind.ANSWERS))
            assert (answer.sequence, answer.index, bytes(answer.payload)) == (5, 0, b"ok:x")
            assert len(bob.peers.server.streams) == 1


async def test_a_refused_stranger_that_reads_nothing_is_logged_once_and_closed(
    table: MemberTable, caplog: pytest.LogCaptureFixture
) -> None:
    async with stream_node(table, "bob", send_buffer_bytes=4_096) as bob:
        server = bob.peers.server
        with RawPeer(bob.peers.address) as raw:
            raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            raw.send(encode_frame(FrameKind.PING) * 20_000)  # the answers fill all buffers: no refusal gets through
            raw.hello(agent="nobody")
            await async_until(lambda: server.refused)
            assert server.handshakes == 1
            table.put(RAW)  # a change of the members admits nobody who is refused
            for connection in server._arriving:
                server._arriving[connection] -= QUICK.connect_ms  # its time is up
            await async_until(lambda: server.handshakes == 0, what="it is closed")
            assert not server.streams
        assert server.refused == 1
        assert caplog.text.count("refused: ") == 1


async def test_strangers_that_say_nothing_keep_no_agent_out(table: MemberTable) -> None:
    table.put(RAW)
    async with stream_node(table, "bob", settings=replace(QUICK, connections_max=3)) as bob:
        address = bob.peers.address
        with RawPeer(address) as first, RawPeer(address) as second, RawPeer(address) as third:
            await async_until(lambda: bob.peers.server.handshakes == 3)
            with RawPeer(address) as agent:
                agent.hello()
                await agent.receive(FrameKind.WELCOME)
                await first.until_closed()
                assert bob.peers.server.handshakes == 2
                assert not second.closed
                assert not third.closed


async def test_too_many_connections_are_refused(table: MemberTable) -> None:
    table.put(RAW)
    async with stream_node(table, "bob", settings=replace(QUICK, connections_max=1)) as bob:
        with RawPeer(bob.peers.address) as first:
            first.hello()
            await first.receive(FrameKind.WELCOME)
            with RawPeer(bob.peers.address) as second:
                await second.until_closed()
            first.messages(1, b"x")
            await first.receive(FrameKind.ANSWERS)


async def test_an_agent_with_another_wal_is_another_peer(table: MemberTable) -> None:
    async with stream_node(table, "ann") as ann, stream_node(table, "bob") as bob:
        before = await ann.stream_to("bob")
        table.put(replace(member_of(bob.peers), wal_id="wal-new"))
        await async_until(lambda: ann.peers.to("wal-new") is not None)
        assert ann.peers.to("wal-bob") is None
        await async_until(lambda: not before.connected)
