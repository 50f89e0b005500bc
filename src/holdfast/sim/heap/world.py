"""The world of heaps: partitions, spines, consumers, and faults between any two of their steps, all from one seed.

The one rule: nothing happens at the same time. A step is one message received, one request, one timer or one fault; which comes
next is the seed's choice. So every order that processes could produce can be drawn, and a seed repeats it.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from holdfast.heap.spine.messages import (
    Advert,
    AdvertAck,
    Granted,
    Pop,
    Refill,
    Refused,
    SpineHello,
    ToLeader,
    ToSpine,
    decode_to_leader,
    decode_to_spine,
    encode,
)
from holdfast.heap.spine.rank_bound import RankBound
from holdfast.heap.spine.spine import Spine
from holdfast.sim.checker import Violation
from holdfast.sim.heap.configuration import HeapConfiguration, draw_configuration
from holdfast.sim.heap.history import (
    FaultsEnded,
    HeapEvent,
    HeapNote,
    LeaderChanged,
    LinkLost,
    MessageCounted,
    MessageGone,
    MessagesGranted,
    PartitionsAdded,
    PopDelivered,
    SpineChanged,
)
from holdfast.sim.heap.partition import Kind, SimLeader, SimPartition
from holdfast.sim.heap.rank_oracle import RankedPop, rank_pops
from holdfast.sim.heap.variant import CORRECT_HEAP, HeapVariant
from holdfast.vocabulary.random import SeededRandom

_HEALED_STEPS_MAX: Final = 200_000
_ZOMBIES_MAX: Final = 2
_LATE_LINKS_MAX: Final = 4


@dataclass(slots=True)
class _Link:
    """What a spine and a leader have sent each other and not yet received. After it was lost, what is on it may still arrive."""

    leader: SimLeader
    to_leader: deque[bytes] = field(default_factory=deque)
    to_spine: deque[bytes] = field(default_factory=deque)


@dataclass(slots=True)
class _SimSpine:
    """A process with a spine: the present one, or one that has not noticed that it is none any more."""

    spine: Spine
    links: dict[int, _Link] = field(default_factory=dict)
    late: deque[_Link] = field(default_factory=lambda: deque(maxlen=_LATE_LINKS_MAX))
    wanted: int = 0

    def busy(self) -> list[tuple[_Link, deque[bytes]]]:
        """What is on its way."""
        return [
            (link, queue)
            for link in (*self.links.values(), *self.late)
            for queue in (link.to_leader, link.to_spine)
            if queue
        ]


@dataclass(frozen=True, slots=True)
class HeapRun:
    """The result of one seed."""

    configuration: HeapConfiguration
    events: list[HeapEvent]
    violations: list[Violation]
    counts: dict[str, int]
    pops: list[RankedPop]


class HeapWorld:
    """One topic."""

    def __init__(self, seed: int, variant: HeapVariant, *, tracing: bool, k: int | None) -> None:
        seeded = SeededRandom(seed)
        self._random = seeded.random
        self._variant, self._tracing = variant, tracing
        self.configuration = draw_configuration(seeded, k=k)
        self.events: list[HeapEvent] = []
        self.violations: list[Violation] = []  # of rules that are not about ranks
        self.messages_sent = 0
        self._step = 0
        self._next_message = 1
        self._healing = False
        self._partitions: list[SimPartition] = []
        self._leaders: list[SimLeader] = []
        self._lost: list[dict[int, int]] = []  # ready messages whose readiness was not acknowledged by a former leader
        self._spines: list[_SimSpine] = []
        self._sizes = [self.configuration.partitions]
        self._add_partitions(self.configuration.partitions, unknown_to_spines=True)
        self._change_spine()

    # ── running ──

    def run(self) -> None:
        """Every step, then the end of all faults, and everything is handed out."""
        for _ in range(self.configuration.steps):
            self._advance(self._choose())
        self._heal()

    def _advance(self, action: Callable[[], None]) -> None:
        self._step += 1
        action()

    def _choose(self) -> Callable[[], None]:
        configuration = self.configuration
        actions: list[tuple[int, Callable[[], None]]] = [
            (configuration.enqueues, self._enqueue),
            (12, self._receive),
            (3, self._want),
            (2, self._end_lease),
            (1, self._mature),
            (1, self._tell),
        ]
        if self._random.random() < 0.05:
            actions += [
                (configuration.faults, self._lose_link),
                (configuration.faults, self._change_leader),
                (configuration.faults, self._change_spine),
                (1, self._cancel),
                (2, self._see_growth),
            ]
            if len(self._sizes) > 1:
                actions.append((1, self._notice_growth))
            if configuration.grows and len(self._partitions) < configuration.partitions + 3:
                actions.append((3, self._grow))
        weights = [weight for weight, _ in actions]
        return self._random.choices([action for _, action in actions], weights)[0]

    def _heal(self) -> None:
        self._healing = True
        self._see_growth()
        for partition in range(len(self._partitions)):
            self._connect(self._spines[0], partition)
        for leader in self._leaders:
            for message, rank in [*leader.view.delayed.items()]:
                self._make_ready(leader, message, rank, counted=self._variant.counts_timers)
        self._spines[0].wanted = 1 << 30
        for _ in range(_HEALED_STEPS_MAX):
            if not any(leader.view.ready for leader in self._leaders):
                break
            if not self._spines[0].busy():
                self._tell()
                if not self._spines[0].busy():
                    break
            self._advance(self._receive)
        self._add(FaultsEnded(self._step, sum(len(leader.view.ready) for leader in self._leaders)))

    def _add(self, event: HeapEvent) -> None:
        self.events.append(event)

    def _note(self, who: str, text: str) -> None:
        if self._tracing:
            self._add(HeapNote(self._step, who, text))

    # ── traffic ──

    def _enqueue(self) -> None:
        configuration, random = self.configuration, self._random
        rank = random.randrange(configuration.ranks)
        at = random.randrange(len(self._partitions))
        if random.random() < configuration.skew:
            at, rank = 0, rank // 10
        leader, message = self._leaders[at], self._next_message
        self._next_message += 1
        if random.random() < configuration.delayed:
            leader.append(Kind.DELAYED, (message, rank))
        else:
            self._make_ready(leader, message, rank)
        self._flush(leader)

    def _make_ready(self, leader: SimLeader, message: int, rank: int, *, counted: bool = True) -> None:
        """A ready event: in the log at once, acknowledged when the budget allows it."""
        leader.append(Kind.READY, (message, rank))
        event = leader.end.ready(rank) if counted else 0
        if event:
            leader.waiting[event] = (message, rank)
        else:
            self._count(leader.partition.number, message, rank)

    def _count(self, partition: int, message: int, rank: int) -> None:
        self._add(MessageCounted(self._step, partition, message, rank))

    def _want(self) -> None:
        spine = self._random.choice(self._spines)
        spine.wanted = min(64, spine.wanted + self._random.choice((1, 1, 3, 10)))
        self._pump(spine)

    def _end_lease(self) -> None:
        """A consumer is done, or nacks, or its lease expires."""
        leader = self._random.choice(self._leaders)
        if not leader.view.leased:
            return
        message, rank = self._random.choice([*leader.view.leased.items()])
        if self._random.random() >= self.configuration.nacked:
            leader.append(Kind.GONE, (message, rank))
        elif self._random.random() < 0.5:
            leader.append(Kind.DELAYED, (message, rank))
        else:
            self._make_ready(leader, message, rank, counted=self._variant.counts_timers)
        self._flush(leader)

    def _mature(self) -> None:
        leader = self._random.choice(self._leaders)
        due = [*leader.view.delayed.items()]
        for message, rank in self._random.sample(due, min(len(due), self._random.choice((1, 5)))):
            self._make_ready(leader, message, rank, counted=self._variant.counts_timers)
        self._flush(leader)

    def _cancel(self) -> None:
        leader = self._random.choice(self._leaders)
        if leader.view.ready:
            rank, message = self._random.choice(leader.view.ready)
            leader.append(Kind.GONE, (message, rank))
            for event in [event for event, (waiting, _) in leader.waiting.items() if waiting == message]:
                del leader.waiting[event]
            self._lost[leader.partition.number].pop(message, None)
            self._add(MessageGone(self._step, leader.partition.number, message))

    def _tell(self) -> None:
        for leader in self._leaders:
            leader.end.tell()
            self._flush(leader)

    # ── faults ──

    def _lose_link(self) -> None:
        spine = self._random.choice(self._spines)
        partition = self._random.choice([*spine.links])
        self._add(LinkLost(self._step, spine.spine.epoch, partition))
        self._connect(spine, partition)

    def _change_leader(self) -> None:
        """The old leader lives on, with the links it has; the spine finds the new one."""
        at = self._random.randrange(len(self._partitions))
        old = self._leaders[at]
        self._lost[at].update(old.waiting.values())
        self._leaders[at] = self._partitions[at].lead(self._variant.leader_end)
        self._add(LeaderChanged(self._step, at, self._leaders[at].epoch))
        if self._random.random() < 0.7:
            self._connect(self._spines[0], at)

    def _change_spine(self) -> None:
        epoch = self._spines[0].spine.epoch + 1 if self._spines else 1
        # Its process may not have read yet that there are more partitions.
        count = self._random.choice(self._sizes) if len(self._sizes) > 1 else len(self._partitions)
        bound = RankBound.split(self.configuration.k, count, in_flight=self.configuration.in_flight)
        spine = _SimSpine(self._variant.spine(epoch, bound, fan_out=self.configuration.fan_out))
        self._spines = [spine, *self._spines[:_ZOMBIES_MAX]]
        self._add(SpineChanged(self._step, epoch))
        for partition in range(len(self._partitions)):
            self._connect(spine, partition)

    def _grow(self) -> None:
        self._add_partitions(self._random.choice((1, 2)), unknown_to_spines=False)
        self._sizes.append(len(self._partitions))
        self._add(PartitionsAdded(self._step, len(self._partitions)))

    def _notice_growth(self) -> None:
        """A leader reads the topic's record."""
        self._log_partitions(self._random.choice(self._leaders), len(self._partitions))

    def _log_partitions(self, leader: SimLeader, count: int) -> None:
        if count > max(self._sizes[0], leader.end.partitions):
            leader.end.partitions = count
            leader.append(Kind.PARTITIONS, partitions=count)

    def _add_partitions(self, count: int, *, unknown_to_spines: bool) -> None:
        for _ in range(count):
            partition = self._partition(len(self._partitions), unknown_to_spines=unknown_to_spines)
            self._partitions.append(partition)
            self._leaders.append(partition.lead(self._variant.leader_end))
            self._lost.append({})

    def _partition(self, number: int, *, unknown_to_spines: bool) -> SimPartition:
        return SimPartition(number, unknown_to_spines=unknown_to_spines)

    def _see_growth(self) -> None:
        """The present spine reads the topic's record."""
        spine = self._spines[0]
        if spine.spine.bound.partitions < len(self._partitions):
            in_flight = self.configuration.in_flight
            spine.spine.reconfigure(RankBound.split(self.configuration.k, len(self._partitions), in_flight=in_flight))
            for partition in spine.spine.unknown():
                self._connect(spine, partition)

    # ── messages ──

    def _connect(self, spine: _SimSpine, partition: int) -> None:
        """A new connection to the present leader, with nothing on it but a hello."""
        if partition >= spine.spine.bound.partitions:
            return
        old = spine.links.get(partition)
        if old is not None and self._random.random() < 0.5:
            spine.late.append(old)
        link = spine.links[partition] = _Link(self._leaders[partition])
        self._send_to_leader(link, spine.spine.hello(partition))

    def _send_to_leader(self, link: _Link, message: ToLeader) -> None:
        self.messages_sent += 1
        link.to_leader.append(encode(message))

    def _send_to_spine(self, link: _Link, message: ToSpine) -> None:
        self.messages_sent += 1
        link.to_spine.append(encode(message))

    def _receive(self) -> None:
        """One message arrives somewhere; those of one direction of a link in their order."""
        spines = self._spines if not self._healing else self._spines[:1]
        busy = [(spine, link, queue) for spine in spines for link, queue in spine.busy()]
        if not busy:
            return
        spine, link, queue = self._random.choice(busy)
        if queue is link.to_leader:
            self._leader_receives(link, decode_to_leader(queue.popleft()))
        else:
            self._spine_receives(spine, decode_to_spine(queue.popleft()))

    def _leader_receives(self, link: _Link, message: ToLeader) -> None:
        leader = link.leader
        if not leader.leads:
            return  # what it would append is refused where it lands
        self._note(f"p{leader.partition.number}", f"receives {message}")
        match message:
            case SpineHello():
                self._adopt(leader, link, message)
            case Pop():
                self._grant(leader, link, message)
            case AdvertAck():
                for event in leader.end.acknowledged(message):
                    if event in leader.waiting:
                        self._count(leader.partition.number, *leader.waiting.pop(event))
                self._count_lost(leader)
            case Refill():
                leader.end.refill(message)
        self._flush(leader)

    def _count_lost(self, leader: SimLeader) -> None:
        """What a former leader did not acknowledge is known to the spine with the first advert of its successor."""
        lost = self._lost[leader.partition.number]
        ready = {message for _, message in leader.view.best(len(leader.view.ready))}
        for message, rank in lost.items():
            if message in ready and (message, rank) not in leader.waiting.values():
                self._count(leader.partition.number, message, rank)
        lost.clear()

    def _adopt(self, leader: SimLeader, link: _Link, hello: SpineHello) -> None:
        refused = leader.end.refuses(hello)
        if refused is not None:
            self._send_to_spine(link, refused)
            return
        if hello.spine_epoch > leader.end.spine_epoch and self._variant.logs_spine_epochs:
            leader.append(Kind.SPINE, spine_epoch=hello.spine_epoch)
        self._log_partitions(leader, hello.partitions)
        if leader.end.adopt(hello):
            for message, rank in leader.last_pop:
                if message in leader.view.leased:
                    self._make_ready(leader, message, rank)
        leader.last_pop = ()

    def _grant(self, leader: SimLeader, link: _Link, pop: Pop) -> None:
        refused = leader.end.begin(pop)
        if refused is not None:
            self._send_to_spine(link, refused)
            return
        taken = []
        limit = pop.limit if self._variant.keeps_limits else None
        for rank, message in leader.view.best(pop.count):
            if limit is not None and rank > limit:
                break
            taken.append((message, rank))
        leader.append(Kind.LEASED, *taken)
        leader.last_pop = tuple(taken)
        ranks = tuple(rank for _, rank in taken)
        messages = tuple(message for message, _ in taken)
        self._add(
            MessagesGranted(
                self._step,
                leader.partition.number,
                leader.offset,
                messages,
                ranks,
                pop.spine_epoch,
                pop.sequence,
                pop.bound,
                pop.basis,
            )
        )
        for event in [event for event, (message, _) in leader.waiting.items() if message in messages]:
            del leader.waiting[event]
        for message in messages:
            self._lost[leader.partition.number].pop(message, None)
        self._send_to_spine(link, leader.end.granted(pop, ranks, leader.offset, leader.view.least_ranks))

    def _flush(self, leader: SimLeader) -> None:
        """Send the advert that is due, to the spine that the leader obeys."""
        if not leader.leads or not leader.end.advert_due:
            return
        for spine in self._spines:
            link = spine.links.get(leader.partition.number)
            if spine.spine.epoch == leader.end.spine_epoch and link is not None and link.leader is leader:
                self._send_to_spine(link, leader.end.advert(leader.view.least_ranks, leader.offset))
                return

    def _spine_receives(self, spine: _SimSpine, message: ToSpine) -> None:
        self._note(f"spine {spine.spine.epoch}", f"receives {message}")
        match message:
            case Advert():
                spine.spine.take_advert(message)
            case Granted():
                settled = spine.spine.take_granted(message)
                if settled is not None and settled.count:
                    spine.wanted -= settled.count
                    self._add(PopDelivered(self._step, settled.partition, spine.spine.epoch, settled.sequence))
            case Refused():
                too_few = spine.spine.bound.partitions < self._leaders[message.partition].end.partitions
                if message.spine_epoch <= spine.spine.epoch and not too_few:  # it reads the topic's record first
                    self._connect(spine, message.partition)
        self._pump(spine)

    def _pump(self, spine: _SimSpine) -> None:
        for partition, message in [*spine.spine.acks(), *spine.spine.plan(spine.wanted)]:
            self._send_to_leader(spine.links[partition], message)


def run_heap_seed(
    seed: int,
    *,
    variant: HeapVariant = CORRECT_HEAP,
    tracing: bool = False,
    k: int | None = None,
    world_of: type[HeapWorld] = HeapWorld,
) -> HeapRun:
    """Run one seed, and rank its pops."""
    world = world_of(seed, variant, tracing=tracing, k=k)
    world.run()
    ranks = rank_pops(world.events, world.configuration.k)
    counts = {"pops": len(ranks.pops), "messages": world.messages_sent}
    violations = [*ranks.violations, *world.violations]
    return HeapRun(world.configuration, world.events, violations, counts, ranks.pops)
