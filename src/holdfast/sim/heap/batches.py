"""The world of batches: leaders, a store, and a change of leader between any two steps, all from one seed.

The one rule: memory dies with a leadership; logs and the store stay. Messages that are addressed to a former leader are lost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from holdfast.contracts.store import Absent, Delete, Operation, Put, Requirement
from holdfast.heap.batch.coordinator import BatchCoordinator, BatchState, Promise
from holdfast.heap.batch.model import BatchRecord, Forgotten, Prepared, Resolved, decision_key
from holdfast.heap.batch.participant import BatchOutcome
from holdfast.heap.batch.reservations import Reservations
from holdfast.heap.partition_state import HeapState
from holdfast.heap.records import Encoded, Enqueue, ProducerSequence, Reserve, decode_operation, encode_operation
from holdfast.heap.snapshot_format import SnapshotSubject, decode_image, encode_image
from holdfast.heap.state_image import capture, restored
from holdfast.kernel.keys import epoch_key
from holdfast.sim.checker import Violation
from holdfast.sim.heap.batch_variant import CORRECT_BATCHES, BatchVariant
from holdfast.vocabulary.random import SeededRandom

_TOPIC: Final = "t"
_STEPS_MAX: Final = 5_000
_NOW_MS: Final = 1_000  # time decides nothing here

BATCH_RULES: Final = {
    "all-or-none": "a batch is committed in all of its partitions, or in none",
    "honest-answer": "a batch that was acknowledged is committed, and one that was refused is not",
    "ends": "once leaders stay, nothing waits for a decision, and no decision is kept",
    "ready-if-committed": "a message is ready, and its number known, if its batch is committed there, and not otherwise",
}


class BatchEvent(msgspec.Struct, frozen=True):
    """A step of the world."""

    at_ms: float
    who: str
    text: str


@dataclass(slots=True)
class _Leader:
    """A leader of a partition. What it remembers beside the log dies with it."""

    partition: int
    epoch: int
    state: HeapState
    coordinating: dict[str, BatchCoordinator] = field(default_factory=dict)

    @property
    def batches(self) -> Reservations:
        """Its batches, as its log says."""
        return self.state.reserved


@dataclass(frozen=True, slots=True)
class SimulatedBatch:
    """The result of one seed."""

    events: list[BatchEvent]
    violations: list[Violation]
    counts: dict[str, int]


class BatchWorld:
    """Partitions of one topic, and clients that enqueue batches."""

    def __init__(self, seed: int, variant: BatchVariant, *, partitions: int | None = None) -> None:
        self._random = SeededRandom(seed).random
        self._variant = variant
        self._version = 0
        self._keys: dict[str, int] = {}  # key → version; values are not looked at
        count = partitions or self._random.choice((2, 3, 4))
        self._records: list[list[Encoded]] = [[] for _ in range(count)]  # as they are in logs
        self._snapshots: list[bytes] = [b""] * count  # of a partition's state; empty: none was taken
        self._leaders: list[_Leader] = []
        self._under_way: list[Callable[[], None]] = []
        self._batches = 0
        self._step = 0
        self.answers: dict[str, bool] = {}
        self.events: list[BatchEvent] = []
        for partition in range(len(self._records)):
            self._leaders.append(_Leader(partition, 0, HeapState("min")))
            self.change_leader(partition)

    # ── running ──

    def run(self) -> list[Violation]:
        """Batches and changes of leaders by chance, then the end; what was broken."""
        for _ in range(self._random.choice((50, 150, 400))):
            self._advance()
        return self.finish()

    def finish(self) -> list[Violation]:
        """No more changes of leaders, until all has come to an end; what was broken."""
        for _ in range(_STEPS_MAX):
            if not self._under_way:
                if not self._unfinished():
                    break
                self._time_out()
            if self._under_way:
                self._take_step()
        return self._check()

    def _time_out(self) -> None:
        """Nothing is on its way: coordinators give up what is not prepared, and everybody asks."""
        for leader in self._leaders:
            for batch in [*leader.coordinating.values()]:
                self._give_up(batch)
            self._ask(leader)

    def _advance(self) -> None:
        random = self._random
        chance = random.random()
        if chance < 0.06:
            self.start(random.sample(range(len(self._leaders)), random.randint(1, len(self._leaders))))
        elif chance < 0.12:
            self.change_leader(random.randrange(len(self._leaders)))
        elif chance < 0.2:
            self._ask(random.choice(self._leaders))
        elif chance < 0.21:
            self.take_snapshot(random.randrange(len(self._leaders)))
        elif chance < 0.24 and (coordinating := [*random.choice(self._leaders).coordinating.values()]):
            self._give_up(random.choice(coordinating))
        elif self._under_way:
            self._take_step()

    def _take_step(self) -> None:
        self.take_step(self._random.randrange(len(self._under_way)))

    def take_step(self, at: int) -> None:
        """One of the things that are under way happens."""
        self._step += 1
        self._under_way.pop(at)()

    @property
    def under_way(self) -> int:
        """How many things may happen next."""
        return len(self._under_way)

    def _later(self, leader: _Leader, step: Callable[[], None]) -> None:
        """A message to a leader, or the next thing it does: nothing if it leads no more by then."""

        def take() -> None:
            if self._leaders[leader.partition] is leader:
                step()

        self._under_way.append(take)

    def _note(self, who: int, text: str) -> None:
        self.events.append(BatchEvent(self._step, f"p{who}", text))

    # ── the store ──

    def _commit(self, require: "list[Requirement]", apply: "list[Operation]") -> bool:
        for each in require:
            found = self._keys.get(each.key)
            if found is not None if isinstance(each, Absent) else found != each.version:
                return False
        self._version += 1
        for operation in apply:
            if isinstance(operation, Put):
                self._keys[operation.key] = self._version
            elif isinstance(operation, Delete):
                self._keys.pop(operation.key, None)
        return True

    @staticmethod
    def _resource(partition: int) -> str:
        return f"partition/t/{partition:05d}"

    # ── leaders ──

    def change_leader(self, partition: int) -> None:
        """The leader dies, and another replays the log."""
        epoch = self._leaders[partition].epoch + 1
        self._commit([], [Put(epoch_key(self._resource(partition)), b"{}")])
        leader = self._leaders[partition] = _Leader(partition, epoch, self._recovered(partition))
        self._note(partition, f"has a leader at epoch {epoch}")
        self._ask(leader)

    def _recovered(self, partition: int) -> HeapState:
        """The state that the snapshot and the records behind it give."""
        state = HeapState("min")
        if self._snapshots[partition]:
            state = restored(decode_image(self._snapshots[partition], SnapshotSubject(_TOPIC, partition)))
        for offset, record in enumerate(self._records[partition][state.next_offset :], state.next_offset):
            state.apply(offset, _NOW_MS, decode_operation(record.key, record.value, record.headers))
        return state

    def take_snapshot(self, partition: int) -> None:
        """The next leader begins with what is there now."""
        image, subject = capture(self._leaders[partition].state), SnapshotSubject(_TOPIC, partition)
        self._snapshots[partition] = b"".join(encode_image(image, subject))
        self._note(partition, f"has a snapshot as of {image.next_offset}")

    def _append(self, leader: _Leader, record: BatchRecord | Reserve) -> None:
        records = self._records[leader.partition]
        leader.state.apply(len(records), _NOW_MS, record)
        records.append(encode_operation(record))
        self._note(leader.partition, f"appends {record}")

    def start(self, partitions: Sequence[int]) -> None:
        """A client enqueues a batch in these partitions."""
        self._batches += 1
        batch = self._variant.coordinator(_TOPIC, f"b{self._batches}", partitions)
        leader = self._leaders[batch.coordinator]
        leader.coordinating[batch.batch] = batch
        for partition in batch.partitions:
            self._send_prepare(leader, batch, self._leaders[partition])

    def _send_prepare(self, leader: _Leader, batch: BatchCoordinator, participant: _Leader) -> None:
        def prepare() -> None:
            message = Enqueue(0, b"", producer=_number(int(batch.batch[1:])))
            self._append(participant, Reserve(batch.batch, message))
            record = Prepared(batch.batch, participant.partition, participant.epoch, leader.epoch, batch.partitions)
            self._append(participant, record)
            resource = self._resource(participant.partition)
            promise = Promise(resource, participant.epoch, self._keys[epoch_key(resource)])
            self._later(leader, lambda: self._prepared(leader, batch, participant.partition, promise))

        self._later(participant, prepare)

    def _prepared(self, leader: _Leader, batch: BatchCoordinator, partition: int, promise: Promise) -> None:
        if batch.prepared(partition, promise):
            require, apply = batch.decision()
            # The commit lands whether or not the leader lives to learn of it.
            self._under_way.append(lambda: self._decide(leader, batch, [*require], [*apply]))

    def _decide(
        self, leader: _Leader, batch: BatchCoordinator, require: list[Requirement], apply: list[Operation]
    ) -> None:
        committed = self._commit(require, apply)
        self._note(leader.partition, f"{'commits' if committed else 'cannot commit'} {batch.batch}")
        self._later(leader, lambda: self._decided(leader, batch, committed=committed))

    def _decided(self, leader: _Leader, batch: BatchCoordinator, *, committed: bool) -> None:
        batch.decided(committed=committed)
        self.answers[batch.batch] = committed
        self._resolve_everywhere(leader, batch)

    def _give_up(self, batch: BatchCoordinator) -> None:
        if batch.abort():
            self.answers[batch.batch] = False
            self._resolve_everywhere(self._leaders[batch.coordinator], batch)

    def _resolve_everywhere(self, leader: _Leader, batch: BatchCoordinator) -> None:
        committed = batch.state is BatchState.COMMITTED
        if not committed:
            leader.coordinating.pop(batch.batch, None)
        for partition in batch.unresolved():
            self._send_resolve(leader, batch, self._leaders[partition], committed=committed)

    def _send_resolve(self, leader: _Leader, batch: BatchCoordinator, participant: _Leader, *, committed: bool) -> None:
        def resolve() -> None:
            self._resolve(participant, batch.batch, committed=committed)
            if committed:
                self._later(leader, lambda: self._resolved(leader, batch, participant.partition))

        self._later(participant, resolve)

    def _resolve(self, leader: _Leader, batch: str, *, committed: bool) -> None:
        if batch in leader.batches.prepared:
            self._append(leader, Resolved(batch, committed))

    def _resolved(self, leader: _Leader, batch: BatchCoordinator, partition: int) -> None:
        if batch.state is BatchState.COMMITTED and batch.resolved(partition):
            self._commit([], [*batch.forget()])
            leader.coordinating.pop(batch.batch, None)
            self._append(leader, Forgotten(batch.batch))

    # ── recovery ──

    def _ask(self, leader: _Leader) -> None:
        """At takeover, and now and then: what became of everything that is not at an end."""
        for prepared in leader.batches.prepared.values():
            self._later(leader, lambda prepared=prepared: self._look(leader, prepared))  # type: ignore[misc]
        for batch, prepared in leader.batches.to_forget.items():
            known = leader.coordinating.get(batch)
            if known is None:
                known = self._variant.coordinator.recovered(_TOPIC, batch, prepared.partitions)
                leader.coordinating[batch] = known
            if known.state is BatchState.COMMITTED:
                self._resolve_everywhere(leader, known)

    def _look(self, leader: _Leader, prepared: Prepared) -> None:
        """Read the epochs, then, a step later, the key."""
        key = decision_key(_TOPIC, prepared.coordinator, prepared.batch)
        coordinator = self._leaders[prepared.coordinator]
        if self._variant.reads_epochs_first:
            self._later(leader, lambda: self._conclude(leader, prepared, coordinator, is_decided=key in self._keys))
            return
        is_decided = key in self._keys
        self._later(
            leader,
            lambda: self._conclude(leader, prepared, self._leaders[prepared.coordinator], is_decided=is_decided),
        )

    def _conclude(self, leader: _Leader, prepared: Prepared, coordinator: _Leader, *, is_decided: bool) -> None:
        outcome = self._variant.outcome(
            prepared, own_epoch=leader.epoch, coordinator_epoch=coordinator.epoch, is_decided=is_decided
        )
        if outcome is not BatchOutcome.UNDECIDED:
            self._resolve(leader, prepared.batch, committed=outcome is BatchOutcome.COMMITTED)
        elif not self._variant.waits_for_the_coordinator:
            self._resolve(leader, prepared.batch, committed=False)
        else:
            self._later(coordinator, lambda: self._inquire(coordinator, leader, prepared))

    def _inquire(self, coordinator: _Leader, leader: _Leader, prepared: Prepared) -> None:
        """The coordinator alone could still commit: what it does not remember, it never will."""
        if prepared.batch not in coordinator.coordinating:
            committed = decision_key(_TOPIC, prepared.coordinator, prepared.batch) in self._keys
            self._later(leader, lambda: self._resolve(leader, prepared.batch, committed=committed))

    # ── rules ──

    def _unfinished(self) -> bool:
        waiting = any(leader.batches.prepared or leader.batches.to_forget for leader in self._leaders)
        return waiting or any("/batch/" in key for key in self._keys)

    def _check(self) -> list[Violation]:
        broken: list[Violation] = []
        outcomes: dict[str, dict[int, bool]] = {}
        partitions: dict[str, tuple[int, ...]] = {}
        for partition, records in enumerate(self._records):
            for encoded in records:
                record = decode_operation(encoded.key, encoded.value, encoded.headers)
                if isinstance(record, Prepared):
                    partitions[record.batch] = record.partitions
                elif isinstance(record, Resolved):
                    outcomes.setdefault(record.batch, {})[partition] = record.committed

        def say(rule: str, what: str) -> None:
            broken.append(Violation(rule, self._step, what, len(self.events) - 1))

        for batch, found in outcomes.items():
            committed = [partition for partition in partitions[batch] if found.get(partition)]
            if committed and len(committed) < len(partitions[batch]):
                say("all-or-none", f"{batch} is committed in {committed} of {partitions[batch]}")
            if batch in self.answers and self.answers[batch] != bool(committed):
                say("honest-answer", f"{batch} was answered {self.answers[batch]}, and is {found}")
        for leader in self._leaders:
            ready = sorted(int(name[1:]) for name, found in outcomes.items() if found.get(leader.partition))
            known = [number for number in range(self._batches + 1) if leader.state.dedup.find(_number(number))]
            if (len(leader.state.ready), known) != (len(ready), ready):
                say(
                    "ready-if-committed",
                    f"p{leader.partition}: {len(leader.state.ready)} ready, {known} known, {ready}",
                )
        if self._unfinished():
            say("ends", f"{[*self._keys]}")
        return broken


def _number(batch: int) -> ProducerSequence:
    return ProducerSequence("client", 0, batch)


def run_batch_seed(seed: int, *, variant: BatchVariant = CORRECT_BATCHES, tracing: bool = False) -> SimulatedBatch:
    """Run one seed. Every step is in its events, traced or not."""
    world = BatchWorld(seed, variant)
    violations = world.run()
    committed = sum(world.answers.values())
    return SimulatedBatch(world.events, violations, {"committed": committed, "aborted": len(world.answers) - committed})


def describe_batch_event(event: BatchEvent) -> tuple[str, str]:
    """Who did it, and what."""
    return event.who, event.text
