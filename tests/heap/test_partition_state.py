"""The pure state of a partition against a naive one: order, exclusive leases, and replays that are equal byte for byte."""

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.support.heaps import through_a_snapshot

from holdfast.heap.canonical_state import encode_state
from holdfast.heap.config import HeapConfig
from holdfast.heap.decisions import HeapRules, current_lease, decide_due, decide_extension, decide_failure, decide_grant
from holdfast.heap.errors import LeaseLostError
from holdfast.heap.lease_token import LeaseToken
from holdfast.heap.packed_heap import PackedHeap
from holdfast.heap.partition_state import HeapState
from holdfast.heap.pure_offset_heap import ROW_BYTES
from holdfast.heap.records import (
    Ack,
    Cancel,
    Enqueue,
    Grant,
    Move,
    Moved,
    Op,
    Operation,
    Purge,
    Reprioritise,
    Retry,
    decode_operation,
    encode_operation,
)
from holdfast.vocabulary.random import SeededRandom


class HeapMachine(RuleBasedStateMachine):
    """Operations as a leader makes them; the model is a dict of every message with what it is."""

    @initialize(mode=st.sampled_from(["min", "max"]))
    def begin(self, mode: str) -> None:
        config = HeapConfig(mode=mode, max_retries=1, inflight_max=6, leases_per_consumer_max=5, backoff_base_ms=10)
        self.heap = HeapRules(topic="t", config=config, inflight_max=6, dead_letters=("t.dlq", 0))
        self.state = HeapState(mode)
        self.random = SeededRandom(1)
        self.now_ms = 1_000
        self.log: list[tuple[int, int, Operation]] = []
        self.priorities: dict[int, int] = {}  # of all that are here
        self.delayed: dict[int, int] = {}
        self.leased: dict[int, LeaseToken] = {}
        self.stale: list[LeaseToken] = []
        self.dead: set[int] = set()

    def add(self, operation: Operation) -> int:
        at = self.state.next_offset
        self.state.apply(at, self.now_ms, operation)
        self.log.append((at, self.now_ms, operation))
        return at

    def ready(self) -> list[int]:
        sign = 1 if self.heap.config.mode == "min" else -1
        here = (each for each in self.priorities if each not in self.delayed and each not in self.leased)
        return sorted(here, key=lambda each: (sign * self.priorities[each], each))

    @rule(priority=st.integers(-3, 3), delay_ms=st.sampled_from([0, 0, 5, 50]), retries=st.sampled_from([-1, 0, 2]))
    def enqueue(self, priority: int, delay_ms: int, retries: int) -> None:
        at = self.add(Enqueue(priority, b"", self.now_ms + delay_ms if delay_ms else 0, retries))
        self.priorities[at] = priority
        if delay_ms:
            self.delayed[at] = self.now_ms + delay_ms

    @rule(count=st.integers(1, 4))
    def pop(self, count: int) -> None:
        room = min(count, 6 - len(self.leased), 5 - len(self.leased))
        expected = self.ready()[: max(0, room)]
        if len(self.leased) >= 5:
            return  # the consumer's own limit, which raises
        grant = decide_grant(
            self.state, self.heap, count=count, consumer="c", visibility_ms=100, epoch=2, now_ms=self.now_ms
        )
        assert [offset for offset, _ in (grant.entries if grant else ())] == expected
        if grant is not None:
            at = self.add(grant)
            for offset, priority in grant.entries:
                assert priority == self.priorities[offset]
                self.leased[offset] = LeaseToken(0, 2, offset, at)

    @rule(pick=st.integers(0, 9), how=st.sampled_from(["ack", "nack", "release", "extend", "cancel"]))
    def answer(self, pick: int, how: str) -> None:
        if not self.leased:
            return
        offset = sorted(self.leased)[pick % len(self.leased)]
        token = self.leased[offset]
        current_lease(self.state, "t", token)
        if how == "extend":
            self.add(decide_extension(self.state, self.heap, [token], 500, self.now_ms))
            return
        self.stale.append(self.leased.pop(offset))
        if how in ("ack", "cancel"):
            self.add(Ack((offset,)) if how == "ack" else Cancel((offset,)))
            del self.priorities[offset]
        else:
            self.fail(Op.NACK if how == "nack" else Op.RELEASE, [offset])

    def fail(self, op: Op, offsets: list[int]) -> None:
        operations = decide_failure(self.state, self.heap, op, offsets, now_ms=self.now_ms, random=self.random)
        for operation in operations:
            at = self.add(operation)
            if isinstance(operation, Retry):
                self.delayed.update({offset: ready_ms for offset, ready_ms in operation.entries if ready_ms})
            else:
                assert op is not Op.RELEASE
                self.dead.add(at)
                del self.priorities[operation.offset]

    @rule(pick=st.integers(0, 9), priority=st.integers(-3, 3))
    def reprioritise(self, pick: int, priority: int) -> None:
        if self.priorities:
            offset = sorted(self.priorities)[pick % len(self.priorities)]
            self.add(Reprioritise(((offset, priority),)))
            self.priorities[offset] = priority

    @rule(by_ms=st.sampled_from([1, 20, 200]))
    def time_passes(self, by_ms: int) -> None:
        self.now_ms += by_ms
        ready = decide_due(self.state, self.now_ms, 100)
        due = {offset for offset, ready_ms in self.delayed.items() if ready_ms <= self.now_ms}
        assert {offset for offset, _ in (ready.entries if ready else ())} == due
        if ready is not None:
            self.add(ready)
        for offset in due:
            del self.delayed[offset]
        overdue = self.state.overdue(self.now_ms, 100)
        for offset in overdue:
            self.stale.append(self.leased.pop(offset))
        self.fail(Op.EXPIRE, list(overdue))

    @rule()
    def moves_arrive(self) -> None:
        if self.dead:
            self.add(Moved(tuple(sorted(self.dead))))
            self.dead.clear()

    @rule(share=st.integers(0, 2))
    def purge(self, share: int) -> None:
        below = self.state.next_offset * share // 2
        self.add(Purge(below))
        for gone in [each for each in self.priorities if each < below]:
            del self.priorities[gone]
            self.delayed.pop(gone, None)
            self.leased.pop(gone, None)

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        assert len(self.state) == len(self.priorities)
        assert all(offset in self.state for offset in self.priorities)
        assert set(self.state.leases) == set(self.leased)
        assert set(self.state.outbox) == self.dead
        assert sum(self.state.consumers.values()) == len(self.leased)

    @invariant()
    def old_tokens_are_refused(self) -> None:
        for token in self.stale[-3:]:
            try:
                current_lease(self.state, "t", token)
            except LeaseLostError:
                continue
            raise AssertionError(f"{token} is taken for the current lease")

    def teardown(self) -> None:
        replayed = HeapState(self.heap.config.mode)
        half = HeapState(self.heap.config.mode)
        for number, (at, time_ms, operation) in enumerate(self.log):
            read = decode_operation(*encode_operation(operation))
            replayed.apply(at, time_ms, read)
            if number == len(self.log) // 2:
                half = through_a_snapshot(half)
            half.apply(at, time_ms, read)
        assert encode_state(replayed) == encode_state(self.state)
        assert encode_state(half) == encode_state(self.state)


TestHeapMachine = HeapMachine.TestCase
TestHeapMachine.settings = settings(
    max_examples=25, stateful_step_count=40, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)


def test_a_grant_of_what_is_not_ready_leases_nothing() -> None:
    state = HeapState("min")
    state.apply(0, 1, Enqueue(5, b""))
    state.apply(1, 1, Grant(1, 100, "a", ((0, 5), (9, 5))))
    state.apply(2, 1, Grant(1, 100, "b", ((0, 5),)))
    assert set(state.leases) == {0}
    assert state.leases[0].consumer == "a"
    assert state.consumers == {"a": 1}


def test_many_withdrawn_messages_leave_no_entries_behind() -> None:
    state = HeapState("min")
    for at in range(20_000):
        state.apply(2 * at, 1, Enqueue(at, b""))
        state.apply(2 * at + 1, 1, Cancel((2 * at,)))
    assert len(state) == 0
    assert isinstance(state.ready, PackedHeap)
    assert len(state.ready.entries()) < 10_000 * ROW_BYTES


def test_a_token_of_a_message_on_its_way_to_the_dead_letters_is_told_so() -> None:
    state = HeapState("min")
    state.apply(0, 1, Enqueue(5, b""))
    state.apply(1, 1, Grant(2, 100, "a", ((0, 5),)))
    state.apply(2, 200, Move(0, 5, "t.dlq", 0, 1, "expired"))
    token = LeaseToken(0, 2, 0, 1)
    with pytest.raises(LeaseLostError, match="it was the last try"):
        current_lease(state, "t", token)
    state.apply(3, 201, Moved((2,)))
    with pytest.raises(LeaseLostError, match="the message is gone"):
        current_lease(state, "t", token)
