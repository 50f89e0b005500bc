"""Who takes which slots: properties that hold whatever the workers and pipelines are."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.pipeline.workers.slot_assignment import (
    AssignmentInputs,
    SlotDecision,
    SlotId,
    WorkerPeer,
    decide_slots,
    spread,
)

NAMES = [f"w{number}" for number in range(6)]
wanted = st.dictionaries(st.sampled_from(["p", "q", "r", "s"]), st.integers(0, 9), max_size=4)
workers = st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True)


def peers_of(names: list[str], room: int = 100, unable: frozenset[str] = frozenset()) -> tuple[WorkerPeer, ...]:
    return tuple(WorkerPeer(id=name, slots_per_pipeline_max=room, able=name not in unable) for name in sorted(names))


def slots_of(wanted: dict[str, int]) -> set[SlotId]:
    return {SlotId(each, number) for each, count in wanted.items() for number in range(count)}


class Town:
    """Workers that all see the same, act one after another, and whose giving back takes no time."""

    def __init__(
        self, wanted: dict[str, int], peers: tuple[WorkerPeer, ...], holders: dict[SlotId, str] | None = None
    ) -> None:
        self.wanted, self.peers = wanted, peers
        self.holders = dict(holders or {})
        self.moves = 0

    def seen_by(self, name: str, *, settled: bool = True) -> AssignmentInputs:
        return AssignmentInputs(
            me=name, desired=self.wanted, peers=self.peers, holders=dict(self.holders), settled=settled
        )

    def decisions(self, *, settled: bool = True) -> dict[str, SlotDecision]:
        return {peer.id: decide_slots(self.seen_by(peer.id, settled=settled)) for peer in self.peers}

    def act(self, name: str) -> bool:
        decision = decide_slots(self.seen_by(name))
        for slot in decision.release:
            assert self.holders.pop(slot) == name
            self.moves += 1
        for slot in decision.take:
            assert slot not in self.holders, "a slot that somebody holds is taken"
            self.holders[slot] = name
        return bool(decision.take or decision.release)

    def settle(self) -> None:
        for _ in range(200):
            acted = [self.act(peer.id) for peer in self.peers]
            if not any(acted):
                return
        raise AssertionError("they never come to rest")


@given(wanted, workers, st.dictionaries(st.tuples(st.sampled_from("pqrs"), st.integers(0, 9)), st.sampled_from(NAMES)))
def test_from_any_state_every_desired_slot_is_held_once_and_spread_fairly(
    wanted: dict[str, int], names: list[str], held: dict[tuple[str, int], str]
) -> None:
    holders = {SlotId(*slot): name for slot, name in held.items() if name in names}
    town = Town(wanted, peers_of(names), holders)
    town.settle()
    assert set(town.holders) == slots_of(wanted)
    total = Counter(town.holders.values())
    most, least = max(total[name] for name in names), min(total[name] for name in names)
    assert most - least <= 1
    for each in wanted:
        of_it = Counter(name for slot, name in town.holders.items() if slot.pipeline_id == each)
        assert max(of_it[name] for name in names) - min(of_it[name] for name in names) <= 1


@given(wanted, workers, st.data())
def test_in_one_view_no_two_workers_take_the_same_slot_and_none_takes_a_held_one(
    wanted: dict[str, int], names: list[str], data: st.DataObject
) -> None:
    slots = sorted(slots_of(wanted))
    held = data.draw(st.dictionaries(st.sampled_from(slots), st.sampled_from(NAMES)) if slots else st.just({}))
    takes = [slot for each in Town(wanted, peers_of(names), held).decisions().values() for slot in each.take]
    assert len(takes) == len(set(takes))
    assert not set(takes) & set(held)


@given(wanted, workers, st.sampled_from(NAMES))
def test_a_newcomer_gets_its_share_and_nothing_else_moves(
    wanted: dict[str, int], names: list[str], newcomer: str
) -> None:
    before = Town(wanted, peers_of(names))
    before.settle()
    after = Town(wanted, peers_of(sorted({*names, newcomer})), before.holders)
    after.settle()
    moved = [slot for slot, name in after.holders.items() if before.holders[slot] != name]
    assert all(after.holders[slot] == newcomer for slot in moved)
    assert after.moves == len(moved) == (0 if newcomer in names else Counter(after.holders.values())[newcomer])


@pytest.mark.slow
@given(wanted, st.lists(st.sampled_from(NAMES), min_size=2, max_size=5, unique=True))
def test_when_a_worker_leaves_only_its_slots_move(wanted: dict[str, int], names: list[str]) -> None:
    before = Town(wanted, peers_of(names))
    before.settle()
    gone = names[0]
    left = {slot: name for slot, name in before.holders.items() if name != gone}
    after = Town(wanted, peers_of(names[1:]), left)
    first = {name: each.release for name, each in after.decisions().items()}
    after.settle()
    assert set(after.holders) == slots_of(wanted)
    kept = [slot for slot, name in left.items() if after.holders[slot] == name]
    assert len(left) - len(kept) == after.moves
    assert after.moves <= len(left) // 2
    assert all(len(each) <= 1 for each in first.values())


@pytest.mark.slow
@given(st.integers(1, 12), st.integers(1, 12), workers)
def test_scaling_moves_no_other_slot(less: int, more: int, names: list[str]) -> None:
    less, more = sorted((less, more))
    town = Town({"p": less}, peers_of(names))
    town.settle()
    small = dict(town.holders)
    town.wanted = {"p": more}
    town.settle()
    assert {slot: town.holders[slot] for slot in small} == small
    assert town.moves == 0
    town.wanted = {"p": less}
    town.settle()
    assert set(town.holders) == set(small)


def test_unwanted_slots_are_released_at_once() -> None:
    held = {SlotId("p", number): "w0" for number in range(4)}
    for wanted in ({}, {"p": 0}):
        decision = decide_slots(Town(wanted, peers_of(["w0", "w1"]), held).seen_by("w0", settled=False))
        assert set(decision.release) == set(held)


def test_rebalancing_releases_one_slot_at_a_time_once_the_workers_are_stable() -> None:
    held = {SlotId("p", number): "w0" for number in range(4)}
    inputs = Town({"p": 4}, peers_of(["w0", "w1"]), held).seen_by("w0")
    assert len(decide_slots(inputs).release) == 1
    assert decide_slots(replace(inputs, settled=False)).release == ()
    leaving = frozenset(decide_slots(inputs).release)
    assert decide_slots(replace(inputs, leaving=leaving)).release == (), "the next one waits for the first"


def test_rebalancing_waits_for_a_worker_whose_spark_is_up_and_free_slots_do_not() -> None:
    cold = WorkerPeer(id="w1", slots_per_pipeline_max=9, ready=False)
    held = {SlotId("p", number): "w0" for number in range(4)}
    town = Town({"p": 4}, (*peers_of(["w0"]), cold), held)
    assert decide_slots(town.seen_by("w0")).release == ()
    assert decide_slots(town.seen_by("w1")).needs_driver, "time to start one"
    town.wanted = {"p": 8}
    assert len(decide_slots(town.seen_by("w1")).take) == 4


@given(wanted, workers, st.integers(1, 3))
def test_no_worker_exceeds_its_slots_per_pipeline_and_no_slot_waits_while_there_is_room(
    wanted: dict[str, int], names: list[str], room: int
) -> None:
    town = Town(wanted, peers_of(names, room))
    town.settle()
    for each, count in wanted.items():
        of_it = Counter(name for slot, name in town.holders.items() if slot.pipeline_id == each)
        assert all(of_it[name] <= room for name in names)
        assert sum(of_it.values()) == min(count, room * len(names))
    unplaced = decide_slots(town.seen_by(names[0])).unplaced
    assert set(unplaced) == slots_of(wanted) - set(town.holders)


def test_slots_above_a_workers_limit_go_to_one_with_room() -> None:
    peers = (WorkerPeer(id="large", slots_per_pipeline_max=9), WorkerPeer(id="small", slots_per_pipeline_max=1))
    town = Town({"p": 6}, peers)
    town.settle()
    assert Counter(town.holders.values()) == {"large": 5, "small": 1}


@pytest.mark.slow
@given(wanted, st.lists(st.sampled_from(NAMES), min_size=2, max_size=5, unique=True))
def test_a_worker_whose_spark_fails_gets_no_slot_while_another_is_able(
    wanted: dict[str, int], names: list[str]
) -> None:
    town = Town(wanted, peers_of(names))
    town.settle()
    town.peers = peers_of(names, unable=frozenset(names[:1]))
    held = [slot for slot, name in town.holders.items() if name == names[0]]
    assert set(decide_slots(town.seen_by(names[0], settled=False)).release) == set(held), (
        "all at once: nobody works at them"
    )
    town.settle()
    assert names[0] not in town.holders.values()


def test_without_an_able_worker_slots_stay_where_they_are() -> None:
    held = {SlotId("p", 0): "w0", SlotId("p", 1): "w1"}
    town = Town({"p": 2}, peers_of(["w0", "w1"], unable=frozenset({"w0", "w1"})), held)
    assert all(not each.release and not each.take for each in town.decisions().values())


@given(wanted)
def test_without_workers_nothing_is_placed(wanted: dict[str, int]) -> None:
    inputs = AssignmentInputs(me="w0", desired=wanted, peers=(), holders={})
    assert spread(inputs) == ({}, sorted(slots_of(wanted)))
    assert decide_slots(inputs).take == ()
