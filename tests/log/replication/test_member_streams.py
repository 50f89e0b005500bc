"""A leader over a network: what goes together, what is asked again, and when it ends."""

from collections.abc import Callable

import pytest
from tests.support.replication.logs import P
from tests.support.wal import turns

from holdfast.log.replication.catch_up_rate import CatchUpRate
from holdfast.log.replication.entry_log import EntryLog
from holdfast.log.replication.leader import Leader
from holdfast.log.replication.member_streams import UNANSWERED_MAX, MemberStreams
from holdfast.log.replication.messages import Ack, Announce, Append, Reject, Request
from holdfast.log.replication.network import OnAnswer, ReplicaListener
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.settings import MIB


class Wires:
    """A network that keeps what is sent, until the test answers."""

    wal_id = "a"

    def __init__(self) -> None:
        self.sent: dict[str, list[tuple[Request, OnAnswer]]] = {"a": [], "b": [], "c": [], "d": []}
        self.away: set[str] = set()
        self.listeners: list[ReplicaListener] = []

    def is_connected(self, wal_id: str) -> bool:
        return wal_id not in self.away

    def send(self, wal_id: str, message: Request, on_answer: OnAnswer) -> None:
        self.sent[wal_id].append((message, on_answer))

    def listen(self, listener: ReplicaListener) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def take(self, wal_id: str) -> list[tuple[Request, OnAnswer]]:
        taken, self.sent[wal_id] = self.sent[wal_id], []
        return taken

    def answer_all(self, wal_id: str) -> None:
        for message, on_answer in self.take(wal_id):
            if isinstance(message, Append):
                on_answer(Ack(partition=P, epoch=message.epoch, matched=message.last))


class Led:
    """A leader of three, opened, whose members have everything."""

    def __init__(self) -> None:
        self.wires, self.progress = Wires(), 0
        self.leader = Leader(P, 1, EntryLog(), ["a", "b", "c"], now_ms=0)
        self.streams = MemberStreams(self.leader, self.wires, clock=RealClock(), on_progress=self._note)

    def _note(self) -> None:
        self.progress += 1

    async def opened(self) -> "Led":
        await turns()
        for member in "abc":
            self.wires.answer_all(member)
        self.leader.open()
        return self

    async def append(self, count: int = 1) -> None:
        for _ in range(count):
            self.leader.append(1, [b"x"])
            self.streams.wake()
        await turns()


def entries(sent: list[tuple[Request, OnAnswer]]) -> list[int]:
    return [len(message.entries) for message, _ in sent if isinstance(message, Append)]


async def test_appends_of_one_turn_go_in_one_message_to_every_member() -> None:
    led = await Led().opened()
    await led.append(5)
    assert [entries(led.wires.take(member)) for member in "abc"] == [[5], [5], [5]]


async def test_what_comes_while_a_member_has_enough_to_answer_goes_together() -> None:
    led = await Led().opened()
    for _ in range(UNANSWERED_MAX + 10):
        await led.append()
    sent = led.wires.take("b")
    assert entries(sent) == [1] * UNANSWERED_MAX
    message, on_answer = sent[0]
    assert isinstance(message, Append)
    on_answer(Ack(partition=P, epoch=1, matched=message.last))
    assert entries(led.wires.take("b")) == [10]


async def test_the_high_watermark_is_announced_only_when_asked_for() -> None:
    led = await Led().opened()
    await led.append()
    for member in "abc":
        led.wires.answer_all(member)
    await turns()
    assert led.leader.hw == 1
    assert [led.wires.take(member) for member in "abc"] == [[], [], []]
    led.streams.announce()
    assert all(isinstance(led.wires.take(member)[0][0], Announce) for member in "abc")
    led.streams.announce()
    assert [led.wires.take(member) for member in "abc"] == [[], [], []]


async def test_a_member_that_lost_a_message_is_asked_where_it_is_before_it_is_sent_more() -> None:
    led = await Led().opened()
    await led.append(2)
    for _, on_answer in led.wires.take("b"):
        on_answer(None)
    assert not led.streams.is_reachable("b")
    await led.append()
    assert led.wires.take("b") == []
    led.wires.away.add("b")
    led.streams.retry()
    await turns()
    assert led.wires.take("b") == []
    led.wires.away.clear()
    led.streams.retry()
    await turns()
    assert entries(led.wires.take("b")) == [3]
    assert led.leader.ended is None


async def test_answers_of_an_old_connection_count_and_free_nothing() -> None:
    led = await Led().opened()
    await led.append()
    ((message, late),) = led.wires.take("b")
    led.streams.connected("b")
    await turns()
    assert isinstance(message, Append)
    late(Ack(partition=P, epoch=1, matched=message.last))
    assert led.leader.acked("b") == message.last
    assert led.streams._unanswered["b"] == 1  # the one that was sent again


async def test_a_refused_write_of_the_own_disk_ends_the_leader() -> None:
    led = await Led().opened()
    await led.append()
    before = led.progress
    for _, on_answer in led.wires.take("a"):
        on_answer(None)
    assert led.leader.ended is not None
    assert led.progress == before + 1
    await turns()
    assert led.wires.take("a") == []


async def test_a_higher_promise_ends_the_leader_and_nothing_more_is_sent() -> None:
    led = await Led().opened()
    await led.append()
    ((_, on_answer),) = led.wires.take("b")
    on_answer(Reject(partition=P, epoch=1, promised=2))
    assert led.leader.ended is not None
    led.streams.close()
    led.streams.close()
    assert led.wires.listeners == []
    led.wires.take("c")
    led.streams.announce()
    assert [led.wires.take(member) for member in "bc"] == [[], []]


async def test_a_learner_gets_the_log_and_what_is_appended_and_nobody_waits_for_it() -> None:
    led = await Led().opened()
    await led.append(3)
    led.streams.teach(["d"], CatchUpRate(1 << 30, clock=RealClock()))
    await turns()
    assert entries(led.wires.sent["d"]) == [0]  # it is asked what it has
    led.wires.answer_all("d")
    await turns()
    assert entries(led.wires.sent["d"]) == [4]  # the first is the start of the epoch
    led.wires.answer_all("d")
    for member in "ab":
        led.wires.answer_all(member)
    assert led.leader.hw == 3
    await led.append()
    assert entries(led.wires.take("d")) == [1]


@pytest.mark.parametrize(("bytes_per_s", "messages"), [(100_000, 1), (1 << 40, 3 * UNANSWERED_MAX)])
async def test_learners_of_all_leaders_together_are_sent_no_more_than_the_rate_allows(
    bytes_per_s: int, messages: int
) -> None:
    rate, sent = CatchUpRate(bytes_per_s, clock=RealClock()), 0
    for _ in range(3):
        led = await Led().opened()
        for _ in range(8):
            led.leader.append(1, [bytes(MIB)])
        led.streams.teach(["d"], rate)
        await turns()
        led.wires.answer_all("d")
        led.streams.wake()
        await turns(20)
        sent += sum(number > 0 for number in entries(led.wires.sent["d"]))
        assert [len(entries(led.wires.sent[member])) for member in "bc"] == [UNANSWERED_MAX, UNANSWERED_MAX]
    assert sent == messages
    assert rate.bytes_sent == messages * MIB


async def test_a_learner_that_is_none_any_more_is_sent_nothing_and_its_late_answer_changes_nothing() -> None:
    led = await Led().opened()
    await led.append()
    led.streams.teach(["d"], CatchUpRate(1 << 30, clock=RealClock()))
    await turns()
    ((message, on_answer),) = led.wires.take("d")
    assert isinstance(message, Append)
    led.streams.teach([], CatchUpRate(1 << 30, clock=RealClock()))
    on_answer(Ack(partition=P, epoch=1, matched=message.last))
    on_answer(None)
    await led.append()
    assert led.wires.take("d") == []
    led.streams.teach(["d"], CatchUpRate(1 << 30, clock=RealClock()))  # it begins again
    on_answer(None)
    await turns()
    assert entries(led.wires.take("d")) == [0]
