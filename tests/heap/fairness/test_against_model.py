"""The index of a fair partition against a model that knows no heaps: a list of messages, looked through each time."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.heaps import through_a_snapshot

from holdfast.heap.canonical_state import encode_state
from holdfast.heap.config import HeapConfig
from holdfast.heap.decisions import HeapRules, decide_grant
from holdfast.heap.fairness.rules import FairRules
from holdfast.heap.partition_state import HeapState
from holdfast.heap.records import (
    Ack,
    Cancel,
    Enqueue,
    Move,
    Op,
    Operation,
    Purge,
    Ready,
    Reprioritise,
    Retry,
    decode_operation,
    encode_operation,
)

SECOND_NS = 1_000_000_000
COST = 1 << 32


@dataclass
class Model:
    """What the documentation says: the best priority, then the least served key; limits and buckets by counting."""

    rules: FairRules
    ready: dict[int, tuple[int, str]] = field(default_factory=dict)  # offset → priority, key
    leased: dict[int, str] = field(default_factory=dict)
    grants_ms: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def allowed(self, now_ms: int) -> set[int]:
        """What no limit holds back. Buckets are counted: no window of time has more than its burst and what comes in it."""
        keys = {key for _, key in self.ready.values()}
        free = {key for key in keys if not key or not self._is_held(key, now_ms)}
        return {offset for offset, (_, key) in self.ready.items() if key in free}

    def _is_held(self, key: str, now_ms: int) -> bool:
        limit, interval_ns, burst = self.rules.key_leases_max, self.rules.key_interval_ns, self.rules.key_burst
        if limit and sum(each == key for each in self.leased.values()) >= limit:
            return True
        granted = self.grants_ms[key]
        return bool(interval_ns) and any(
            len(granted) - at + 1 > burst + (now_ms - granted[at]) * 1_000_000 // interval_ns
            for at in range(len(granted))
        )


STEP = st.tuples(
    st.sampled_from(
        ["add", "add", "delay", "grant", "grant", "ack", "nack", "cancel", "worse", "move", "purge", "ready"]
    ),
    st.integers(0, 3),
    st.integers(0, 2),
    st.integers(0, 400),
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(STEP, max_size=70),
    st.integers(0, 2),
    st.sampled_from([0, SECOND_NS // 10]),
    st.sampled_from([0, SECOND_NS // 8]),
    st.integers(0, 69),
)
def test_every_grant_is_one_the_model_allows_and_replays_and_snapshots_are_the_same_state(
    steps: list[tuple[str, int, int, int]], limit: int, key_interval_ns: int, interval_ns: int, snapshot_at: int
) -> None:
    rules = FairRules(
        by_key=True,
        key_leases_max=limit,
        key_interval_ns=key_interval_ns,
        key_burst=2,
        interval_ns=interval_ns,
        burst=3,
    )
    live, replayed, model = HeapState("min"), HeapState("min"), Model(rules)
    heap = HeapRules(topic="t", config=HeapConfig(), inflight_max=1_000, fair=rules)
    now_ms, keys = 0, dict[int, str]()

    def append(operation: Operation) -> int:
        nonlocal replayed
        offset = live.next_offset
        key, value, headers = encode_operation(operation)
        live.apply(offset, now_ms, operation)
        replayed.apply(offset, now_ms, decode_operation(key, value, headers))
        return offset

    append(rules)
    for number, (what, one, two, later_ms) in enumerate(steps):
        now_ms += later_ms
        if number == snapshot_at:
            replayed = through_a_snapshot(replayed)
        waiting = sorted(model.ready)
        if what in ("add", "delay"):
            name = f"k{one}" if one else ""
            at = append(Enqueue(two, b"", now_ms + 1 if what == "delay" else 0, fairness_key=name or None))
            keys[at] = name
            if what == "add":
                model.ready[at] = (two, name)
        elif what == "ready" and (due := live.due(now_ms, 10)):
            append(Ready(due))
            model.ready.update({offset: (priority, keys[offset]) for offset, priority in due})
        elif what == "grant":
            operation = decide_grant(
                live, heap, count=1 + one, consumer="c", visibility_ms=1_000, epoch=1, now_ms=now_ms
            )
            for offset, priority in operation.entries if operation is not None else ():
                allowed = model.allowed(now_ms)
                assert offset in allowed
                assert priority == min(model.ready[each][0] for each in allowed), "priorities win"
                key = model.ready.pop(offset)[1]
                model.leased[offset] = key
                model.grants_ms[key].append(now_ms)
            if operation is not None:
                append(operation)
            elif not interval_ns:
                assert not model.allowed(now_ms), "nothing is held back without a reason"
        elif what in ("ack", "nack") and model.leased:
            done = sorted(model.leased)[one % len(model.leased)]
            append(Ack((done,)) if what == "ack" else Retry(Op.NACK, ((done, 0),)))
            key = model.leased.pop(done)
            if what == "nack":
                model.ready[done] = (live.priority({offset: rank for rank, offset in live.ready}[done]), key)
        elif what == "worse" and waiting:
            append(Reprioritise(((waiting[one % len(waiting)], two),)))
            model.ready[waiting[one % len(waiting)]] = (two, model.ready[waiting[one % len(waiting)]][1])
        elif what in ("cancel", "move") and waiting:
            gone = waiting[one % len(waiting)]
            append(Cancel((gone,)) if what == "cancel" else Move(gone, 0, "t.dlq", 0, 1, ""))
            del model.ready[gone]
        elif what == "purge" and one == 0:
            append(Purge(live.next_offset))
            model.ready.clear()
            model.leased.clear()
        assert {offset for _, offset in live.ready} == set(model.ready)
        assert encode_state(live) == encode_state(replayed)
    assert Counter(model.leased.values()) == Counter(keys[offset] for offset in live.leases)
    assert encode_state(through_a_snapshot(live)) == encode_state(live)


def test_fairness_can_be_switched_on_and_off_while_messages_wait_are_delayed_and_leased() -> None:
    state = HeapState("max")
    rules = HeapRules(topic="t", config=HeapConfig(), inflight_max=100)
    for offset, message in enumerate((Enqueue(1, b""), Enqueue(9, b""), Enqueue(5, b"", 50))):
        state.apply(offset, 0, message)
    leased = decide_grant(state, rules, count=1, consumer="c", visibility_ms=1_000, epoch=1, now_ms=0)
    assert leased is not None
    state.apply(3, 0, leased)
    before = encode_state(state)
    state.apply(4, 0, FairRules(by_key=True))
    assert encode_state(through_a_snapshot(state)) == encode_state(state)
    state.apply(5, 0, Enqueue(1, b"", fairness_key="a"))
    assert [offset for _, offset in state.ready.peek(9)] == [0, 5]
    state.apply(6, 0, Cancel((5,)))
    state.apply(7, 0, FairRules())
    state.next_offset, state.counters.enqueued, state.counters.cancelled = 4, 3, 0
    assert encode_state(state) == before
