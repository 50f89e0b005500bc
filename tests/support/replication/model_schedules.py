"""The schedules of the model (`tests/model`), taken by the real replica, leader and takeover.

A step of the model is an exchange here: the message, the fsync and the answer; acknowledgements are under way until the leader
counts them. What the real code refuses, or does not offer, is left out.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from tests.model.state import Step
from tests.support.replication.history import ViolationError
from tests.support.replication.world import PARTITION, Agent, Bugs, World

from holdfast.log.replication.leader import Leader
from holdfast.log.replication.messages import Ack, Answer, Append, Base, Reject, Request, Seal
from holdfast.log.replication.takeover import Phase, QuorumTakeover
from holdfast.vocabulary.errors import CorruptError

# About producers and hand-overs, which these steps do not take.
NOT_OURS: Final = ("producers not rebuilt from the tail", "drained source goes on", "target's log too short")


def replay_schedule(schedule: Iterable[Step], *, agents: int, bugs: Bugs | None = None) -> str:
    """The violation that a schedule of the model leads to; empty if there is none."""
    run = _Run(World(0, agents=agents, sizes=(3,), bugs=bugs))
    try:
        for name, *facts in schedule:
            run.take(str(name), *facts)
    except (ViolationError, CorruptError) as error:
        return str(error)
    return ""


class _Run:
    def __init__(self, world: World) -> None:
        self.world = world
        self.takeovers: dict[int, QuorumTakeover] = {}
        self.leaders: dict[int, Leader] = {}
        self.under_way: dict[int, list[tuple[str, Answer]]] = {}

    def take(self, name: str, *facts: object) -> None:
        step = getattr(self, "_" + name.replace(" ", "_"), None)
        if step is not None:  # others are of bugs that cannot be written with this code
            step(*facts)

    def _acquire(self, agent: int, members: tuple[int, ...]) -> None:
        world = self.world
        world.epoch += 1
        wal_ids, own = [world.agents[each].wal_id for each in members], world.agents[agent].replica.log
        takeover = QuorumTakeover(PARTITION, world.epoch, world.stored, wal_ids, own=own)
        self.takeovers[world.epoch], self.under_way[world.epoch] = takeover, []
        takeover.begin(0)
        if takeover.leader is None and not world.bugs.serves_before_open_commit:
            takeover.resend(world.stored.opened_replicas)

    def _seal(self, number: int, agent: int) -> None:
        home, takeover = self.world.agents[agent], self.takeovers[number]
        if takeover.phase is Phase.SEALING:
            seal = Seal(partition=PARTITION, epoch=number, wal_id=home.wal_id)
            for answer in self._exchange(home, seal):
                takeover.handle(home.wal_id, answer, 0)
            self._fetch(takeover)  # what was sealed is what the model chooses from

    def _fetch(self, takeover: QuorumTakeover) -> None:
        while tails := [each for each in takeover.sends() if not isinstance(each.message, Seal)]:
            for to, message in tails:
                for answer in self._exchange(self.world.homes[to], message):
                    takeover.handle(to, answer, 0)

    def _deliver(self, number: int, agent: int, length: int) -> None:
        home, leader = self.world.agents[agent], self.takeovers[number].leader
        if leader is None:
            return
        append = Append(
            partition=PARTITION,
            epoch=number,
            previous=leader.log.base,
            entries=tuple(leader.log.entries[:length]),
            hw=leader.hw,
            published=leader.log.base,
        )
        self.under_way[number] += ((home.wal_id, answer) for answer in self._exchange(home, append))

    def _base(self, number: int, agent: int) -> None:
        base = Base(partition=PARTITION, epoch=number, published=self.world.stored.published)
        self._exchange(self.world.agents[agent], base)

    def _open(self, number: int) -> None:
        takeover = self.takeovers[number]
        self._answers(number)
        if takeover.open_commit is not None and (
            number == self.world.epoch or self.world.bugs.serves_before_open_commit
        ):
            agent = self.world.agents[0]
            agent.takeover = takeover
            self.world.open(agent)
            self.world.stored = replace(self.world.stored, reserved=1 << 40)
            agent.leader = agent.takeover = None
            self.leaders[number] = takeover.leader  # type: ignore[assignment]

    def _append(self, number: int, value: int) -> None:
        leader = self.leaders.get(number)
        if leader is not None and leader.ended is None:
            leader.append(1, (b"%d" % value,))

    def _advance(self, number: int) -> None:
        self._answers(number)
        if number in self.leaders:
            self.world.history.shown(self.leaders[number])

    def _drop(self, agent: int) -> None:
        self.world.drop_log(self.world.agents[agent])
        self.world.fsync(self.world.agents[agent], 9)

    def _lose_disk(self, agent: int) -> None:
        self.world.lose_disk(self.world.agents[agent])

    def _restart(self, agent: int) -> None:
        self.world.crash(self.world.agents[agent])

    def _exchange(self, agent: Agent, message: Request) -> list[Answer]:
        """The answers of a replica whose disk is quick."""
        before = len(self.world.network)
        self.world._queue(agent, agent.replica.handle(message), agent.wal_id)
        self.world.history.check_log(agent.replica.log)
        self.world.fsync(agent, 9)
        answers = [packet.content for packet in self.world.network[before:]]
        del self.world.network[before:]
        return [answer for answer in answers if not isinstance(answer, Request)]

    def _answers(self, number: int) -> None:
        taken, self.under_way[number] = self.under_way[number], []
        for wal_id, answer in taken:
            if isinstance(answer, (Ack, Reject)):
                self.takeovers[number].handle(wal_id, answer, 0)
