"""Producers, readers and group members: what they ask agents, and what they were told.

The one rule: a client draws no conclusion that an answer does not allow. A request without an answer may have happened: a producer
sends the same batch again until it is acknowledged, and an idempotent one with the same sequence.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from holdfast.agent.agent import Agent
from holdfast.groups.model import CommittedOffset
from holdfast.kafka.special_offsets import NO_EPOCH
from holdfast.log.batches import Record, decode, encode, parse_header
from holdfast.log.errors import OffsetOutOfRangeError, ProducerRefusal, ProducerRefusedError
from holdfast.log.topics import TopicExistsError
from holdfast.sim.cluster.history import (
    OffsetCommitted,
    OffsetFetched,
    ReadingFinished,
    RecordsAcknowledged,
    RecordsRead,
    RecordsSent,
    RecordsServed,
    SequenceRefused,
)
from holdfast.sim.cluster.host import AgentHost, ClusterContext
from holdfast.sim.process import SimClock, SimProcess
from holdfast.vocabulary.errors import HoldfastError, UnavailableError
from holdfast.vocabulary.types import TopicPartition

T = TypeVar("T")
_Serve = Callable[[Agent, AgentHost, TopicPartition, int], Coroutine[Any, Any, tuple[list[bytes], int, int]]]


class Client:
    """A process of its own, which asks agents over the network."""

    def __init__(self, name: str, context: ClusterContext, hosts: Sequence[AgentHost]) -> None:
        self.name, self._shared, self._hosts = name, context, hosts
        self.process = SimProcess(name, context.loop)
        self.clock = SimClock(context.loop, self.process)
        self._rng = context.random.random

    def leader(self, which: TopicPartition) -> AgentHost:
        """Whom to ask: the leader that some agent names, or any agent."""
        names = {host.name: host for host in self._hosts}
        asked = self._rng.choice(self._hosts)
        if asked.agent is not None and not asked.process.paused:
            held = asked.agent.cluster.leader(which.topic, which.number)
            if held is not None and held.holder in names:
                return names[held.holder]
        return self._rng.choice(self._hosts)

    async def ask(self, host: AgentHost, work: Callable[[Agent], Coroutine[Any, Any, T]]) -> T:
        """The answer of an agent. `UnavailableError`: there was none in time, whatever became of the request."""
        answer = self.process.wait()
        shared, process, loop = self._shared, self.process, self._shared.loop
        network = shared.network
        loop.post_at(
            loop.now_ms + network.timeout_ms * 4, process.settle, answer, None, UnavailableError(host.name, "no answer")
        )

        def reply(outcome: T | None, error: Exception | None) -> None:
            if host.clients_link.up and self._rng.random() >= network.lost_share:
                process.deliver_in(self._rng.random() * network.delay_ms, process.settle, answer, outcome, error)

        if host.clients_link.up and self._rng.random() >= network.lost_share:
            loop.post_at(loop.now_ms + self._rng.random() * network.delay_ms, host.request, work, reply)
        result: T = await answer
        return result

    async def rest(self, most_ms: float) -> None:
        """Wait for a while."""
        await self.clock.sleep_ms((0.2 + 0.8 * self._rng.random()) * most_ms)


class SimulatedProducer(Client):
    """Sends one batch after the other to one partition."""

    def __init__(
        self,
        name: str,
        context: ClusterContext,
        hosts: Sequence[AgentHost],
        which: TopicPartition,
        *,
        producer_id: int,
    ) -> None:
        super().__init__(name, context, hosts)
        self.which, self._producer_id = which, producer_id
        self.acknowledged = 0
        self.finishing = False  # after the batch in hand
        self._sent = 0

    async def run(self, pause_ms: float) -> None:
        """Until asked to finish."""
        while not self.finishing:
            await self._produce(self._rng.choice((1, 1, 2, 3)))
            await self.rest(pause_ms)

    async def _produce(self, count: int) -> None:
        idempotent = self._producer_id >= 0
        values = tuple(f"{self.name}-{number}" for number in range(self._sent, self._sent + count))
        records = [Record(at, self.clock.now_ms(), None, value.encode()) for at, value in enumerate(values)]
        batch = encode(
            records,
            producer_id=self._producer_id,
            producer_epoch=0 if idempotent else -1,
            base_sequence=self._sent if idempotent else -1,
        )
        self._sent += count
        history = self._shared.history
        topic, number = self.which.topic, self.which.number
        while True:
            host = self.leader(self.which)
            history.take(RecordsSent(history.now_ms, self.name, str(self.which), host.name, values))
            try:
                result = await self.ask(host, lambda agent: agent.service.produce(topic, number, batch))
            except ProducerRefusedError as refused:
                if refused.refusal is not ProducerRefusal.TOO_SOON:
                    history.take(SequenceRefused(history.now_ms, self.name, str(self.which), str(refused)))
                    self.finishing = True
                    return
            except HoldfastError as error:
                if history.tracing:
                    history.note(self.name, f"retries: {error}")
            else:
                acknowledged = (str(self.which), result.base_offset, values, idempotent)
                history.take(RecordsAcknowledged(history.now_ms, self.name, *acknowledged))
                self.acknowledged += 1
                return
            await self.rest(self._shared.ttl_ms / 12)


class BurstProducer(Client):
    """Sends many batches to one agent at once, and none of them again."""

    def __init__(
        self,
        name: str,
        context: ClusterContext,
        hosts: Sequence[AgentHost],
        which: TopicPartition,
        *,
        begin: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        super().__init__(name, context, hosts)
        self._which, self._begin, self._sent = which, begin, 0

    def send(self, host: AgentHost, batches: int) -> None:
        """So many batches of three records, whatever becomes of them."""
        for _ in range(batches):
            values = tuple(f"{self.name}-{number}" for number in range(self._sent, self._sent + 3))
            self._sent += len(values)
            self._begin(self._produce(host, values))

    async def _produce(self, host: AgentHost, values: tuple[str, ...]) -> None:
        history, which = self._shared.history, self._which
        batch = encode([Record(at, self.clock.now_ms(), None, value.encode()) for at, value in enumerate(values)])
        history.take(RecordsSent(history.now_ms, self.name, str(which), host.name, values))
        with suppress(HoldfastError):
            result = await self.ask(host, lambda agent: agent.service.produce(which.topic, which.number, batch))
            history.take(RecordsAcknowledged(history.now_ms, self.name, str(which), result.base_offset, values, False))


class Reader(Client):
    """Reads partitions from their beginning: at the agent that leads them, or a replica, or what is published, at any.

    As clients do that hear of a new leader, it asks where the epoch of its last record ended: not before what it has read.
    """

    def __init__(
        self, name: str, context: ClusterContext, hosts: Sequence[AgentHost], partitions: Sequence[TopicPartition]
    ) -> None:
        super().__init__(name, context, hosts)
        self.positions = dict.fromkeys(partitions, 0)
        self._epochs: dict[TopicPartition, int] = {}  # of the record before the position
        self._leader_epochs = dict.fromkeys(partitions, NO_EPOCH)  # the last under which anything was served

    async def run(self, pause_ms: float) -> None:
        """Until cancelled."""
        while True:
            for which in self.positions:
                drawn = self._rng.random()
                others = self._serve_published if drawn < 0.8 else self._serve_replica
                await self._read(which, self._serve if drawn < 0.6 else others)
                if self._rng.random() < 0.3:
                    await self._check_epoch(which)
            await self.rest(pause_ms)

    async def read_and_ask(self, which: TopicPartition, reads_at: AgentHost, asks: AgentHost) -> None:
        """Read what there is at one agent, and ask another one where the epoch of the last record ended."""
        await self._read(which, self._serve, reads_at)
        await self._check_epoch(which, asks)

    async def _check_epoch(self, which: TopicPartition, asked: AgentHost | None = None) -> None:
        """Ask who leads, or did, where the epoch of the last record ended."""
        history, position, epoch = self._shared.history, self.positions[which], self._epochs.get(which)
        if epoch is None:
            return
        known = self._leader_epochs[which] if self._rng.random() < 0.5 else NO_EPOCH
        host = asked or (self.leader(which) if self._rng.random() < 0.5 else self._rng.choice(self._hosts))
        try:
            _, end = await self.ask(
                host,
                lambda agent: agent.service.end_of_epoch(which.topic, which.number, epoch, leader_epoch=known),
            )
        except HoldfastError as error:
            if history.tracing:
                history.note(self.name, f"cannot check epoch {epoch} of {which}: {error}")
            return
        history.count("epochs checked")
        if end < position:
            told = f"{host.name} says that epoch {epoch} of {which} ended at {end}"
            history.actor_crashed(self.name, f"what was read before {position} is gone: {told}")

    async def finish(self, which: TopicPartition) -> None:
        """Read to the end at its leader, however often it takes.

        The end is where a read finds nothing: what comes with records may be all that a former leader knew.
        """
        while not await self._read(which, self._serve):
            await self.rest(self._shared.ttl_ms / 20)
        history = self._shared.history
        history.take(ReadingFinished(history.now_ms, self.name, str(which)))

    async def _read(self, which: TopicPartition, serve: _Serve, asked: AgentHost | None = None) -> bool:
        """Read once; whether it began at the end."""
        history, start = self._shared.history, self.positions[which]
        host = asked or (self.leader(which) if serve == self._serve else self._rng.choice(self._hosts))
        try:
            batches, high_watermark, epoch = await self.ask(host, lambda agent: serve(agent, host, which, start))
        except OffsetOutOfRangeError as error:
            history.actor_crashed(self.name, f"what was read before is out of range: {error}")
            raise
        except HoldfastError as error:
            if history.tracing:
                history.note(self.name, f"cannot read {which} at {start}: {error}")
            return False
        end = start
        records: list[tuple[int, str]] = []
        epochs: list[tuple[int, int]] = []
        for batch in batches:
            header = parse_header(batch)
            epochs.append((header.base_offset, header.leader_epoch))
            end = header.base_offset + header.last_offset_delta + 1
            records += [(each.offset, (each.value or b"").decode()) for each in decode(batch) if each.offset >= start]
        self._leader_epochs[which] = max(self._leader_epochs[which], epoch)
        if end > start:
            self._epochs.pop(which, None)
            if epoch != NO_EPOCH:  # otherwise the reader cannot know who had published it
                self._epochs[which] = epochs[-1][1]
            history.take(RecordsRead(history.now_ms, self.name, str(which), start, end, tuple(records), tuple(epochs)))
            self.positions[which] = end
        return end == start >= high_watermark

    async def _serve_published(
        self, agent: Agent, host: AgentHost, which: TopicPartition, start: int
    ) -> tuple[list[bytes], int, int]:
        """On the side of any agent: what object storage has."""
        read = await agent.service.fetch_published(which.topic, which.number, start, bytes_max=4096)
        found = ([], start) if read is None else ([bytes(batch) for batch in read.batches], read.high_watermark)
        return *found, NO_EPOCH

    async def _serve_replica(
        self, agent: Agent, host: AgentHost, which: TopicPartition, start: int
    ) -> tuple[list[bytes], int, int]:
        """On the side of any agent: what its replica shows."""
        read = await agent.service.read_replica(which.topic, which.number, start, bytes_max=4096)
        self._shared.history.count("replicas read")
        if read.high_watermark < start:
            self._shared.history.count("replicas behind a reader")
        return [bytes(batch) for batch in read.batches], read.high_watermark, read.epoch

    async def _serve(
        self, agent: Agent, host: AgentHost, which: TopicPartition, start: int
    ) -> tuple[list[bytes], int, int]:
        """On the agent's side: the answer, as bytes."""
        asked_ms = self._shared.history.now_ms
        read = await agent.service.read(which.topic, which.number, start, bytes_max=4096)
        history = self._shared.history
        history.take(
            RecordsServed(history.now_ms, asked_ms, host.process.name, str(which), read.epoch, read.high_watermark)
        )
        return [bytes(batch) for batch in read.batches], read.high_watermark, read.epoch


class SimulatedGroupMember(Client):
    """Commits growing offsets of one partition for a group, and asks for them."""

    def __init__(self, name: str, context: ClusterContext, hosts: Sequence[AgentHost], which: TopicPartition) -> None:
        super().__init__(name, context, hosts)
        self._which, self._offset = which, 0
        self._coordinator = hosts[0]

    async def run(self, pause_ms: float) -> None:
        """Until cancelled."""
        while True:
            try:
                await self._commit_and_fetch()
            except HoldfastError as error:
                if self._shared.history.tracing:
                    self._shared.history.note(self.name, f"asks again: {error}")
                self._coordinator = self._rng.choice(self._hosts)
            await self.rest(pause_ms)

    async def _commit_and_fetch(self) -> None:
        history, which, group = self._shared.history, self._which, self.name
        self._offset += 1
        offsets = {which: CommittedOffset(offset=self._offset)}
        refused = await self.ask(self._coordinator, lambda agent: agent.groups.commit_offsets(group, offsets))
        if error := refused[which]:
            raise error
        history.take(OffsetCommitted(history.now_ms, group, str(which), self._offset))
        asked_ms = history.now_ms
        found = await self.ask(self._coordinator, lambda agent: agent.groups.fetch_offsets(group, [which]))
        offset = found[which].offset if which in found else -1
        history.take(OffsetFetched(history.now_ms, asked_ms, group, str(which), offset))


class SimulatedAdmin(Client):
    """Creates topics, and one that comes and goes, with records in it and a retention that lets go of them."""

    async def create(self, name: str, partitions: int, config: Mapping[str, object]) -> None:
        """Create a topic, however often it takes."""
        while True:
            host = self._rng.choice(self._hosts)
            try:
                await self.ask(host, lambda agent: agent.service.create_topic(name, partitions, config))
                return
            except TopicExistsError:
                return
            except HoldfastError:
                await self.rest(self._shared.ttl_ms / 10)

    async def run(self, pause_ms: float) -> None:
        """Create, fill and delete a topic, again and again, until cancelled."""
        which = TopicPartition("passing", 0)
        batch = encode([Record(0, self.clock.now_ms(), None, b"passing")])
        while True:
            level = self._rng.choice(("local", "object"))
            await self.create(
                which.topic, 1, {"durability": level, "roll_ms": 100, "retention_ms": self._shared.ttl_ms // 4}
            )
            for _ in range(self._rng.randint(0, 6)):
                with suppress(HoldfastError):
                    await self.ask(
                        self.leader(which), lambda agent: agent.service.produce(which.topic, which.number, batch)
                    )
                await self.rest(pause_ms)
            with suppress(HoldfastError):
                await self.ask(self._rng.choice(self._hosts), lambda agent: agent.service.delete_topic(which.topic))
                self._shared.history.count("topics deleted")
            await self.rest(pause_ms)
