"""A small world in which the real replica, leader and takeover run: agents with virtual disks, a network that delays, repeats,
reorders and loses, a store, and clients. A seed decides everything.

No rule of the protocol is here: the world moves messages, writes records, makes the commits it is asked for and fences them.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tests.support.replication.history import History

from holdfast.log.replication.leader import Ended, Leader
from holdfast.log.replication.messages import Answer, Append, Request, Seal
from holdfast.log.replication.positions import Position
from holdfast.log.replication.replica import Record, Replica, ReplicaStep, replay
from holdfast.log.replication.takeover import QuorumTakeover, StoredState
from holdfast.vocabulary.random import SeededRandom

PARTITION = (b"p" * 16, 0)
TAIL_BYTES = 2  # so that a tail comes in several pieces
SEND_BYTES = 3


@dataclass(frozen=True, slots=True)
class Bugs:
    """What is wrong with the agents of a world. Bugs of replica, leader and takeover are patched into them."""

    answers_before_fsync: bool = False
    keeps_name_of_lost_disk: bool = False
    serves_before_open_commit: bool = False
    publishes_unfenced: bool = False


@dataclass(slots=True)
class Agent:
    """A process and its disk."""

    name: int
    wal_id: str
    replica: Replica
    disk: list[Record] = field(default_factory=list)
    queue: deque[tuple[ReplicaStep, str]] = field(default_factory=deque)  # not fsynced, and who gets the answer
    takeover: QuorumTakeover | None = None
    leader: Leader | None = None
    reserved: bool = False
    taken_over_at: int = 0


class Packet(NamedTuple):
    """A message between two replicas, named by their WALs."""

    sender: str
    to: str
    content: Request | Answer


class World:
    """One partition. Every public method is a step, and checks what it touched."""

    def __init__(self, seed: int, *, agents: int, sizes: Sequence[int], bugs: Bugs | None = None) -> None:
        self.bugs = bugs or Bugs()
        self.random = SeededRandom(seed).random
        self.sizes = sizes
        self.agents = [self._agent(number) for number in range(agents)]
        self.homes = {agent.wal_id: agent for agent in self.agents}
        self.network: list[Packet] = []
        self.epoch = 0  # of the lease
        self.stored = StoredState()
        self.history = History()
        self.lost_disks = 0
        self.now_ms = 0.0
        self.takeovers: list[
            tuple[Agent, QuorumTakeover]
        ] = []  # all there ever were: what they sent may arrive at any time
        self.eager = 0.0  # how often what a message asks for is done at once

    def _agent(self, number: int) -> Agent:
        wal_id = f"w{number}"
        return Agent(number, wal_id, Replica(PARTITION, wal_id))

    # Leadership

    def acquire(self, agent: Agent, handed_over: Position | None = None) -> None:
        self.epoch += 1
        self._end_roles(agent, "a newer epoch")
        others = [each.wal_id for each in self.agents if each is not agent]
        size = self.random.choice(self.sizes)
        members = (agent.wal_id, *self.random.sample(others, size - 1))
        stored = replace(self.stored, handed_over=handed_over)
        own = agent.replica.log
        agent.takeover = QuorumTakeover(PARTITION, self.epoch, stored, members, own=own, tail_bytes_max=TAIL_BYTES)
        agent.takeover.begin(self.now_ms)
        self.takeovers.append((agent, agent.takeover))

    def hand_over(self, agent: Agent, target: Agent) -> None:
        """The source is drained; the commit that moves the lease names its end."""
        assert agent.leader is not None
        end = agent.leader.log.position
        self._end_roles(agent, "handed over")
        self.acquire(target, handed_over=end)

    def send(self, agent: Agent) -> None:
        """Send what the agent's roles want to send."""
        if agent.takeover is not None:
            for to, message in agent.takeover.sends():
                self._post(agent.wal_id, to, message)
        leader = agent.leader or (agent.takeover and agent.takeover.leader)
        if leader:
            for member in leader.members:
                due = leader.next_message(member, SEND_BYTES)
                if due is not None:
                    self._post(agent.wal_id, member, due)

    def reconnect(self, agent: Agent, wal_id: str) -> None:
        if agent.takeover is not None:
            if self.random.random() < 0.3:
                agent.takeover.lost(wal_id, self.now_ms)
            agent.takeover.resend([wal_id])
        elif agent.leader is not None and wal_id in agent.leader.members:
            agent.leader.reconnected(wal_id)

    def open(self, agent: Agent) -> None:
        takeover = agent.takeover
        assert takeover is not None
        commit = takeover.open_commit
        assert commit is not None
        if commit.epoch != self.epoch and not self.bugs.serves_before_open_commit:
            takeover.end(Ended("the open commit was refused"))
            agent.takeover = None
            return
        if not self.bugs.serves_before_open_commit:
            self.stored = replace(
                self.stored, opened_epoch=commit.epoch, opened_replicas=commit.replicas, reserved=commit.start
            )
        agent.leader, agent.takeover, agent.reserved = takeover.committed(), None, False
        agent.taken_over_at = commit.epoch
        self.history.opened(agent.leader)
        if self.random.random() < self.eager:
            self.reserve(agent)

    # Clients and publication

    def append(self, agent: Agent) -> None:
        leader = agent.leader
        assert leader is not None
        value = self.history.next_value(leader, self.random)
        if value is not None:
            count = self.random.choice((1, 1, 2))
            entry = leader.append(count, (b"%d" % value,))
            self.history.appended(entry)

    def reserve(self, agent: Agent) -> None:
        if agent.taken_over_at == self.epoch:
            self.stored = replace(self.stored, reserved=1 << 40)
            agent.reserved = True

    def give_back(self, agent: Agent) -> None:
        if agent.taken_over_at == self.epoch:
            self.stored = replace(self.stored, reserved=self.stored.published.offset)
            agent.reserved = False

    def publish(self, agent: Agent) -> None:
        leader = agent.leader
        assert leader is not None
        if agent.taken_over_at != self.epoch and not self.bugs.publishes_unfenced:
            return
        ends = [entry.position.offset for entry in leader.log.entries if entry.position.offset <= leader.hw]
        if ends:
            offset = self.random.choice(ends)
            self.history.published(leader, offset)
            self.stored = replace(self.stored, published=leader.log.position_at(offset))
            leader.release(offset)

    # Messages and disks

    def deliver(self, at: int, *, again: bool) -> None:
        packet = self.network[at]
        if not again:
            self.network[at] = self.network[-1]
            self.network.pop()
        agent = self.homes[packet.to]
        if isinstance(packet.content, Request):
            if agent.wal_id == packet.to or isinstance(packet.content, Seal):
                self._queue(agent, agent.replica.handle(packet.content), packet.sender)
                self.history.check_log(agent.replica.log)
                if self.random.random() < self.eager:
                    self.fsync(agent, len(agent.queue))
        elif agent.wal_id == packet.to:
            self._answered(agent, packet.sender, packet.content)
            if self.random.random() < self.eager:
                self.send(agent)

    def exchange(self) -> None:
        """Any leader's log only grows, so any beginning of it may arrive at any member at any time; and so may a seal.

        The answer arrives with it, or is under way.
        """
        agent, takeover = self.random.choice(self.takeovers)
        leader = takeover.leader
        message: Seal | Append
        if leader is None:
            wal_id = self.random.choice(takeover.stored.opened_replicas)
            message = Seal(partition=PARTITION, epoch=takeover.epoch, wal_id=wal_id)
        else:
            wal_id = self.random.choice(leader.members)
            entries = leader.log.entries
            end = self.random.choice((len(entries), len(entries), self.random.randint(0, len(entries))))
            message = Append(
                partition=PARTITION,
                epoch=leader.epoch,
                previous=leader.log.base,
                entries=tuple(entries[:end]),
                hw=self.random.choice((leader.hw, leader.log.base.offset)),
                published=leader.log.base,
            )
        at = len(self.network)
        self._post(agent.wal_id, wal_id, message)
        self.deliver(at, again=False)
        if len(self.network) > at and self.random.random() < self.eager:
            self.deliver(len(self.network) - 1, again=False)

    def drop_log(self, agent: Agent) -> None:
        step = agent.replica.drop(self.stored.opened_epoch, self.stored.opened_replicas)
        if step is not None:
            self._queue(agent, step, agent.wal_id)

    def fsync(self, agent: Agent, count: int) -> None:
        """The oldest `count` steps reach the disk together, and are answered."""
        for _ in range(min(count, len(agent.queue))):
            step, sender = agent.queue.popleft()
            agent.disk += step.records
            if not self.bugs.answers_before_fsync:
                self._post_answer(agent, sender)
        self.history.check_follower(agent.replica)

    def refuse_writes(self, agent: Agent) -> None:
        """The disk is full: nothing that is queued was written, but for the beginning of a step, perhaps."""
        oldest = agent.queue[0][0].records
        written = oldest[: self.random.randint(0, max(0, len(oldest) - 1))]
        agent.queue.clear()
        if not self.bugs.answers_before_fsync:
            agent.disk += written
            agent.replica.failed(written)
            self.history.check_log(agent.replica.log)
        self._end_roles(agent, "its own write was refused")

    def crash(self, agent: Agent) -> None:
        """A part of what was not fsynced may have reached the disk all the same, in order."""
        unsynced = [record for step, _ in agent.queue for record in step.records]
        agent.disk += unsynced[: self.random.randint(0, len(unsynced))]
        self._restart(agent)

    def lose_disk(self, agent: Agent) -> None:
        self.lost_disks += 1
        agent.disk = []
        if not self.bugs.keeps_name_of_lost_disk:
            agent.wal_id = f"w{agent.name}.{self.lost_disks}"
            self.homes[agent.wal_id] = agent
        self._restart(agent)

    def _restart(self, agent: Agent) -> None:
        self._end_roles(agent, "restart")
        agent.queue.clear()
        promised, log = replay(agent.disk)
        agent.replica = Replica(PARTITION, agent.wal_id, promised=promised, log=log)
        self.history.check_log(log)

    def _end_roles(self, agent: Agent, reason: str) -> None:
        if agent.takeover is not None:
            agent.takeover.end(Ended(reason))
        if agent.leader is not None:
            agent.leader.end(Ended(reason))
        agent.takeover = agent.leader = None
        agent.reserved = False

    def _queue(self, agent: Agent, step: ReplicaStep, sender: str) -> None:
        agent.queue.append((step, sender))
        if self.bugs.answers_before_fsync:
            self._post_answer(agent, sender)

    def _post_answer(self, agent: Agent, sender: str) -> None:
        answer = agent.replica.durable()
        if answer is not None:
            self._post(agent.wal_id, sender, answer)

    def _post(self, sender: str, to: str, content: Request | Answer) -> None:
        self.network.append(Packet(sender, to, content))

    def _answered(self, agent: Agent, sender: str, answer: Answer) -> None:
        if agent.takeover is not None:
            agent.takeover.handle(sender, answer, self.now_ms)
            if agent.takeover.ended is not None:
                agent.takeover = None
        if agent.leader is not None:
            agent.leader.handle(sender, answer, self.now_ms)
            self.history.shown(agent.leader)
            if agent.leader.ended is not None:
                agent.leader = None
