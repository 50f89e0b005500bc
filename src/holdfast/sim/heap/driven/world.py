"""The world of driven heaps: heap partitions and spines as they ship, under virtual time, from one seed.

The one rule: what ships is not simulated. Partitions, their journals and links, recovery, and spines with their drivers are the
real ones; the log, the network, time and clients are the seed's.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from holdfast.heap.payloads import PayloadCache
from holdfast.heap.records import Operation
from holdfast.heap.settings import HeapSettings
from holdfast.heap.spine.rank_bound import RankBound
from holdfast.sim.checker import Violation
from holdfast.sim.cluster.loop import ClusterLoop
from holdfast.sim.heap.driven.checker import DrivenChecker
from holdfast.sim.heap.driven.clients import SimClients
from holdfast.sim.heap.driven.configuration import DrivenConfiguration, draw_driven
from holdfast.sim.heap.driven.features import NO_FEATURES, draw_features
from holdfast.sim.heap.driven.history import (
    AdvertAcknowledged,
    CodeFailed,
    DrivenEvent,
    HeapGrown,
    Incident,
    LeaderStarted,
    RecordsAppended,
    SnapshotListed,
    SpineStarted,
    StateRecovered,
    TailCut,
    WorldEnded,
)
from holdfast.sim.heap.driven.leader import DrivenLeader, LeaderParts
from holdfast.sim.heap.driven.letters import SimOperator, SimPartitions
from holdfast.sim.heap.driven.log import SimLog, SimOwnedPartition
from holdfast.sim.heap.driven.network import Conditions, SimNetwork
from holdfast.sim.heap.driven.snapshots import SnapshotSpace
from holdfast.sim.heap.driven.spine import DrivenSpine
from holdfast.sim.heap.driven.topic import LETTERS, SimTopic, clients_topic, letters_topic
from holdfast.sim.heap.driven.variant import CORRECT_DRIVEN, DrivenVariant
from holdfast.sim.loop import SimLoop, StuckError
from holdfast.sim.process import SimClock, SimProcess
from holdfast.vocabulary.random import SeededRandom

_LOGGER: Final = logging.getLogger("holdfast")  # what simulated processes log goes nowhere
_HEALED: Final = Conditions(delay_ms=2.0, sync_ms=2.0)
_HEALED_MS: Final = 15_000.0  # how soon after the faults everything is done
_CALLBACKS_MAX: Final = 400_000
_TICK_MS: Final = 20.0
_NEWS_MS: Final = 200.0  # until all have noticed that the heap has grown
_SETTINGS: Final = HeapSettings(
    move_retry_ms=20,
    batch_wait_ms=500,
    snapshot_interval_ms=100,
    snapshot_records_min=4,
    snapshot_records_max=16,
    snapshot_pause_ms=20,
)


@dataclass(frozen=True, slots=True)
class DrivenRun:
    """The result of one seed. `ranks`: true ones, of every message that was delivered with a bound."""

    configuration: DrivenConfiguration
    events: list[DrivenEvent]
    violations: list[Violation]
    counts: dict[str, int]
    ranks: list[int]


class DrivenWorld:
    """One topic on a few hosts."""

    def __init__(self, seed: int, loop: SimLoop, variant: DrivenVariant) -> None:
        self._seeded = SeededRandom(seed)
        self._random, self._loop, self._variant = self._seeded.random, loop, variant
        features = draw_features(seed) if variant.features else NO_FEATURES
        self.configuration = configuration = draw_driven(self._seeded, features)
        self.events: list[DrivenEvent] = []
        self.is_healed = False
        self.network = SimNetwork(loop, self._seeded, configuration.conditions, self.failed)
        self.counts = {"leaders": 0, "spines": 0, "incidents": 0}
        self._topic = clients_topic(configuration.config, configuration.partitions)
        self._letters = letters_topic(configuration.config, features.letters)
        self._topics = [self._topic]  # as it was after each growth
        self._logs: dict[int, SimLog] = {}
        self._leaders: dict[int, DrivenLeader] = {}  # by place
        self._former: dict[int, DrivenLeader] = {}  # that do not know it, by place
        self._spines: list[DrivenSpine] = []  # the present one first
        self._clients = SimClients(self)
        self._snapshots = SnapshotSpace(self.network, self._seeded)
        partitions = SimPartitions(self, self._clients)
        self._parts = LeaderParts(
            variant=variant,
            settings=_SETTINGS,
            network=self.network,
            random=self._seeded,
            knock=self._knock,
            earlier=partitions,
            deliver=partitions.deliver if features.has_dead_letters else None,
            snapshots=features.snapshots,
        )

    # ── running ──

    async def run(self) -> None:
        """Faults, then none, until every message is done."""
        configuration, loop = self.configuration, self._loop
        for place in self._topic.places:
            self._lead(place, 1, self._topic)
        self._change_spine()
        self._clients.start()
        if configuration.features.has_dead_letters:
            for place in self._letters.places:
                self._lead(place, 1, self._letters)
            self.network.start(SimOperator(self, self._clock("operator")).run(), "operator")
        for more in configuration.features.growths:
            loop.post_at(self._random.uniform(0.0, configuration.faults_ms), self._grow, more)
        for _ in range(configuration.incidents):
            loop.post_at(self._random.uniform(0.0, configuration.faults_ms), self._incident)
        await self.network.sleep_ms(configuration.faults_ms)
        self._heal()
        until_ms = loop.now_ms + _HEALED_MS
        while self._left() and loop.now_ms < until_ms:
            await self.network.sleep_ms(_TICK_MS)
        self.add(WorldEnded(loop.now_ms, self._left()))
        await self.network.end()

    def _left(self) -> int:
        views = [leader.view for leader in self._leaders.values()]
        waiting = sum(1 if view is None else len(view.state) + len(view.state.outbox) for view in views)
        undurable = sum(log.end > log.durable for log in self._logs.values())
        return waiting + undurable + self._clients.producing

    def abandon(self) -> None:
        """End every task of a world that is stuck, so that none outlives it."""
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.callbacks_left = 100_000
        self._loop.post_at(self._loop.now_ms + 1, self._loop.stop)
        with suppress(StuckError):
            self._loop.run_forever()

    def add(self, event: DrivenEvent) -> None:
        """The next event."""
        self.events.append(event)

    def failed(self, who: str, error: BaseException) -> None:
        """Code raised what it must not."""
        self.add(CodeFailed(self._loop.now_ms, who, repr(error)))

    # ── whom clients ask ──

    @property
    def partitions(self) -> int:
        return self._topic.sets.partitions

    def leader(self, partition: int) -> DrivenLeader:
        former = self._former.get(partition)
        return former if former is not None and self._random.random() < 0.3 else self._leaders[partition]

    def spine(self) -> DrivenSpine:
        alive = [spine for spine in self._spines if not spine.is_over]
        return self._random.choice(alive) if self._random.random() < 0.2 else alive[0]

    def _knock(self, partition: int) -> None:
        """A leader asks the spine for a hello; that may get lost."""
        if not self.network.is_lost():
            at_ms = self._loop.now_ms + self.network.delay_ms()
            self._loop.post_at(at_ms, lambda: self._spines[0].knocked(partition))

    # ── leaders ──

    def _clock(self, name: str) -> SimClock:
        """Of one process; walls differ, and so do the times since boot."""
        skew_ms = self._random.uniform(-50.0, 50.0)
        return SimClock(self._loop, SimProcess(name, self._loop), boot_offset_ms=1e6, wall_offset_ms=skew_ms)

    def _lead(self, place: int, epoch: int, topic: SimTopic) -> DrivenLeader:
        """A new leader, which knows this record of its heap."""
        configuration, features, name = self.configuration, self.configuration.features, f"p{place}.{epoch}"
        host = self._random.randrange(configuration.hosts)
        self.counts["leaders"] += 1
        self.add(LeaderStarted(self._loop.now_ms, place, epoch, host))
        on_append = partial(self._appended, place, epoch)
        which = topic.partition_id(place)
        log = SimOwnedPartition(which, epoch, self._logs.setdefault(place, SimLog()), self.network, on_append)
        payloads = PayloadCache(configuration.cache_bytes_max, configuration.cache_bytes_max)
        clock = self._clock(name)
        if features.snapshots:
            listed = partial(self._listed, place, epoch)
            log.snapshots = self._snapshots.open(which, epoch, self._variant.snapshots, clock, listed)
        self._leaders[place] = leader = DrivenLeader(
            host,
            place,
            log,
            topic,
            parts=self._parts,
            payloads=payloads,
            clock=clock,
            recovered=partial(self._recovered, place, epoch),
        )
        return leader

    def _appended(
        self,
        place: int,
        epoch: int,
        offset: int,
        operations: tuple[Operation, ...],
        times: tuple[int, ...],
        forked: bool,
    ) -> None:
        configuration = self.configuration
        self.add(RecordsAppended(self._loop.now_ms, place, epoch, offset, operations, forked, times))
        if not forked and self._random.random() < configuration.ambushes:
            at_ms = self._loop.now_ms + self._random.uniform(0.0, 2 * configuration.conditions.sync_ms)
            self._loop.post_at(at_ms, self._ambush, place, epoch)

    def _listed(self, place: int, epoch: int, offset: int) -> None:
        self.add(SnapshotListed(self._loop.now_ms, place, epoch, offset))

    def _recovered(self, place: int, epoch: int, offset: int, snapshot: int, as_logged: bool) -> None:
        self.add(StateRecovered(self._loop.now_ms, place, epoch, offset, snapshot, as_logged))

    def _ambush(self, partition: int, epoch: int) -> None:
        if not self.is_healed and self._leaders[partition].log.epoch == epoch:
            self._change_leader(partition)

    def _change_leader(self, partition: int) -> None:
        """The old one knows it, is dead, or goes on for a while."""
        old, log = self._leaders[partition], self._logs[partition]
        if partition in self._former:
            self._former.pop(partition).close()
        how = self._random.choice(("ends", "dies", "goes on"))
        self._note(f"{how}: leader {old.log.epoch} of p{partition}")
        old.log.depose()
        cut = self._random.choice(log.tail_offsets())
        if cut < log.end:
            log.cut(cut)
            self.add(TailCut(self._loop.now_ms, partition, cut))
        if how == "ends":
            old.close()
        elif how == "dies":
            old.die()
            for spine in self._spines if partition < LETTERS else ():
                spine.lose(partition)
        else:
            self._former[partition] = old
            self._loop.post_at(self._loop.now_ms + self._random.uniform(10.0, 500.0), old.close)
        if self.configuration.features.snapshots and self._random.random() < 0.1:
            self._snapshots.damage(old.log.partition_id, lambda size: self._random.randrange(size))
        topic = self._known_topic(partition)
        new = self._lead(partition, old.log.epoch + 1, topic)
        if partition >= LETTERS:
            return
        if topic is not self._topic:
            self._loop.post_at(self._loop.now_ms + self._random.uniform(0.0, _NEWS_MS), self._tell_leader, partition)
        for spine in self._spines:
            at_ms = self._loop.now_ms + self._random.uniform(0.0, 100.0)
            self._loop.post_at(at_ms, self._notice_leader, spine, new)

    def _notice_leader(self, spine: DrivenSpine, leader: DrivenLeader) -> None:
        if self._leaders[leader.place] is leader:
            spine.leader_changed(leader)

    # ── growth ──

    def _known_topic(self, place: int) -> SimTopic:
        """The record that a new leader knows: some learn of a growth later."""
        if place >= LETTERS:
            return self._letters
        known = [topic for topic in self._topics if place in topic.places]
        return self._random.choice(known) if len(known) > 1 and not self.is_healed else known[-1]

    def _grow(self, more: int) -> None:
        """The record changes; everybody notices it some time later. Leaders of new partitions know it."""
        before = self._topic
        wall_ms = self._clock("store").now_ms()
        self._topic = topic = before.grown(more, wall_ms)
        self._topics.append(topic)
        self._note(f"the heap grows to {topic.sets.partitions} partitions")
        self.add(HeapGrown(self._loop.now_ms, topic.sets.partitions))
        for place in topic.places[before.sets.partitions :]:
            self._lead(place, 1, topic)
        for place in topic.places[: before.sets.partitions]:
            self._loop.post_at(self._loop.now_ms + self._random.uniform(0.0, _NEWS_MS), self._tell_leader, place)
        for spine in self._spines:
            self._loop.post_at(self._loop.now_ms + self._random.uniform(0.0, _NEWS_MS), self._tell_spine, spine)

    def _tell_leader(self, place: int) -> None:
        self._leaders[place].topic_changed(self._topic)

    def _tell_spine(self, spine: DrivenSpine) -> None:
        spine.heap_grown(self._bound(self._topic), self._leaders_of(self._topic))

    def _bound(self, topic: SimTopic) -> RankBound:
        return RankBound.split(self.configuration.k, topic.sets.partitions)

    def _leaders_of(self, topic: SimTopic) -> list[DrivenLeader]:
        return [self._leaders[place] for place in topic.places]

    # ── spines ──

    def _change_spine(self) -> None:
        configuration, epoch = self.configuration, len(self._spines) + 1
        host = self._random.randrange(configuration.hosts)
        for old in self._spines:
            if not old.is_over:
                self._loop.post_at(self._loop.now_ms + self._random.choice((0.0, 100.0, 500.0)), old.end)
        self.counts["spines"] += 1
        self.add(SpineStarted(self._loop.now_ms, epoch, host))
        topic = self._known_topic(0)
        spine = DrivenSpine(
            epoch,
            host,
            self._bound(topic),
            self._leaders_of(topic),
            fan_out=configuration.fan_out,
            variant=self._variant,
            network=self.network,
            clock=self._clock(f"spine.{epoch}"),
            knock=self._knock,
            acknowledged=self._acknowledged if configuration.features.has_limits else None,
        )
        self._spines.insert(0, spine)
        if topic is not self._topic:
            self._loop.post_at(self._loop.now_ms + self._random.uniform(0.0, _NEWS_MS), self._tell_spine, spine)

    def _acknowledged(self, partition: int, offset: int) -> None:
        self.add(AdvertAcknowledged(self._loop.now_ms, partition, offset))

    # ── faults ──

    def _note(self, what: str) -> None:
        self.counts["incidents"] += 1
        self.add(Incident(self._loop.now_ms, what))

    def _incident(self) -> None:
        kind = self._random.random()
        partition = self._random_place()
        if kind < 0.4:
            self._change_leader(partition)
        elif kind < 0.6:
            self._note("the spine changes")
            self._change_spine()
        elif kind < 0.85:
            spine = self._random.choice(self._spines)
            partition %= LETTERS
            self._note(f"streams of spine {spine.epoch} and p{partition} break")
            spine.lose(partition)
        else:
            log = self._leaders[partition].log
            if log.closed is None and log.next_offset > log.high_watermark:
                self._note(f"the disk of p{partition} fails")
                self.add(TailCut(self._loop.now_ms, partition, log.high_watermark))
                log.fail_appends()

    def _random_place(self) -> int:
        if self.configuration.features.has_dead_letters and self._random.random() < 0.3:
            return self._random.choice(self._letters.places)
        return self._random.randrange(self.partitions)

    def _heal(self) -> None:
        """Nothing fails from here on."""
        self.add(Incident(self._loop.now_ms, "heals: nothing fails from here on"))
        self.is_healed, self.network.conditions = True, _HEALED
        for former in self._former.values():
            former.close()
        self._former.clear()
        for spine in self._spines[1:]:
            spine.end()
        self._tell_spine(self._spines[0])
        for leader in self._leaders_of(self._topic):
            if leader.topic is not self._topic:
                leader.topic_changed(self._topic)
            self._spines[0].leader_changed(leader)


def run_driven_seed(seed: int, *, variant: DrivenVariant = CORRECT_DRIVEN, tracing: bool = False) -> DrivenRun:
    """Run one world from beginning to end. Every step is in its events, traced or not."""
    loop = ClusterLoop(SeededRandom(seed), callbacks_max=_CALLBACKS_MAX)  # what is another thread's is a step
    world = DrivenWorld(seed, loop, variant)
    main = loop.create_task(world.run(), name="world")
    level = _LOGGER.level
    _LOGGER.setLevel(logging.CRITICAL + 1)
    try:
        loop.run_until_complete(main)
    except StuckError as stuck:
        world.failed("world", stuck)
        world.abandon()
    finally:
        _LOGGER.setLevel(level)
        loop.close()
    for context in loop.errors:
        world.add(CodeFailed(loop.now_ms, "loop", f"{context.get('message')}: {context.get('exception')!r}"))
    configuration = world.configuration
    checker = DrivenChecker(
        k=configuration.k,
        mode=configuration.config.mode,
        partitions=configuration.partitions,
        features=configuration.features,
    )
    violations = checker.check(world.events)
    return DrivenRun(configuration, world.events, violations, world.counts, checker.ranks)
