"""Who reads which partitions: properties of sharing, decided by each worker from its own view."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from holdfast.pipeline.workers.partition_assignment import PlannedClaim, assign_partitions
from holdfast.registry import Heartbeat, PartitionState


@dataclass
class Generation:
    """A registry, and the consumers of several workers, each worker with a session of its own name."""

    count: int
    states: dict[int, PartitionState] = field(default_factory=dict)
    heartbeats: dict[int, Heartbeat] = field(default_factory=dict)
    held: dict[str, dict[str, dict[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.states = {number: PartitionState(id=number) for number in range(self.count)}

    def consumers(self) -> set[str]:
        return {name for mine in self.held.values() for name in mine}

    def act(self, worker: str) -> bool:
        mine = self.held[worker]
        shares = assign_partitions(
            partitions=self.states, heartbeats=self.heartbeats, consumers=self.consumers(), held=mine, session=worker
        )
        for claim in shares.claims:
            self._claim(worker, claim)
        for name, numbers in shares.revoke.items():
            for number in numbers:
                self._release(number, name, mine[name].pop(number))
        assert not any(shares.adopt.values())
        assert not any(shares.lost.values())
        return bool(shares.claims) or any(shares.revoke.values())

    def _claim(self, worker: str, claim: PlannedClaim) -> None:
        state = self.states[claim.partition]
        if claim.expired is not None:
            assert claim.partition not in self.heartbeats, "a living claim is taken"
            assert state.owner == claim.expired
        else:
            assert state.owner is None, "an owned partition is claimed"
        epoch = state.epoch + (2 if claim.expired is not None else 1)
        self.states[claim.partition] = PartitionState(id=claim.partition, owner=claim.consumer, epoch=epoch)
        self.heartbeats[claim.partition] = Heartbeat(epoch=epoch, session=worker, ttl_ms=1, version=1, shared=True)
        self.held[worker][claim.consumer][claim.partition] = epoch

    def _release(self, number: int, name: str, epoch: int) -> None:
        assert self.states[number] == PartitionState(id=number, owner=name, epoch=epoch)
        self.states[number] = PartitionState(id=number, epoch=epoch + 1)
        del self.heartbeats[number]

    def crash(self, worker: str) -> None:
        del self.held[worker]
        self.heartbeats = {
            number: heartbeat for number, heartbeat in self.heartbeats.items() if heartbeat.session != worker
        }

    def settle(self) -> None:
        for _ in range(50):
            acted = [self.act(worker) for worker in sorted(self.held)]
            if not any(acted):
                return
        raise AssertionError("they never come to rest")

    def owners(self) -> dict[int, str | None]:
        return {number: state.owner for number, state in self.states.items()}


def joined(generation: Generation, worker: str, *slots: str) -> None:
    generation.held.setdefault(worker, {}).update({slot: {} for slot in slots})


@given(st.integers(1, 24), st.lists(st.integers(1, 3), min_size=1, max_size=4), st.data())
def test_everything_is_owned_once_and_fairly_through_joins_and_crashes(
    count: int, sizes: list[int], data: st.DataObject
) -> None:
    generation = Generation(count)
    for worker, size in enumerate(sizes):
        joined(generation, f"w{worker}", *(f"{worker}-{slot}" for slot in range(size)))
        generation.settle()
    if len(generation.held) > 1:
        generation.crash(data.draw(st.sampled_from(sorted(generation.held))))
        before = generation.owners()
        survivors = generation.consumers()
        generation.settle()
        after = generation.owners()
        assert all(
            after[each] == owner for each, owner in before.items() if owner in survivors and _stays(after, before)
        )
    numbers = [len(pieces) for mine in generation.held.values() for pieces in mine.values()]
    assert sum(numbers) == count
    assert max(numbers) - min(numbers) <= 1


def _stays(after: dict[int, str | None], before: dict[int, str | None]) -> bool:
    """Whether balance lets everything stay: nobody had more than its new share."""
    share_max = max(list(after.values()).count(owner) for owner in set(after.values()))
    return all(list(before.values()).count(owner) <= share_max for owner in set(before.values()) & set(after.values()))


def test_a_newcomers_share_is_revoked_first_and_nothing_else_moves() -> None:
    generation = Generation(8)
    joined(generation, "ann", "0")
    generation.settle()
    joined(generation, "bob", "1")
    first = assign_partitions(
        partitions=generation.states,
        heartbeats=generation.heartbeats,
        consumers=["0", "1"],
        held=generation.held["bob"],
        session="bob",
    )
    assert first.claims == ()
    asked = assign_partitions(
        partitions=generation.states,
        heartbeats=generation.heartbeats,
        consumers=["0", "1"],
        held=generation.held["ann"],
        session="ann",
    )
    assert asked.revoke == {"0": {4, 5, 6, 7}}
    generation.settle()
    assert {number: state.epoch for number, state in generation.states.items() if number < 4} == dict.fromkeys(
        range(4), 1
    )


def test_a_claim_whose_response_was_lost_is_adopted_but_not_one_of_a_former_session() -> None:
    states = {0: PartitionState(id=0, owner="a", epoch=3), 1: PartitionState(id=1, owner="a", epoch=5)}
    heartbeats = {
        0: Heartbeat(epoch=3, session="mine", ttl_ms=1, version=1),
        1: Heartbeat(epoch=5, session="my former one", ttl_ms=1, version=1),
    }
    shares = assign_partitions(partitions=states, heartbeats=heartbeats, consumers=[], held={"a": {}}, session="mine")
    assert shares.adopt == {"a": {0: 3}}
    assert shares.claims == ()


def test_a_view_that_lags_takes_nothing_away_and_one_that_moved_on_does() -> None:
    states = {0: PartitionState(id=0, epoch=2), 1: PartitionState(id=1, owner="b", epoch=9)}
    heartbeats = {1: Heartbeat(epoch=9, session="hers", ttl_ms=1, version=1)}
    shares = assign_partitions(
        partitions=states, heartbeats=heartbeats, consumers=["b"], held={"a": {0: 3, 1: 5}}, session="mine"
    )
    assert shares.lost == {"a": {1}}
    assert shares.claims == ()


def test_a_heartbeat_of_another_epoch_keeps_no_claim_alive() -> None:
    states = {0: PartitionState(id=0, owner="b", epoch=4)}
    heartbeats = {0: Heartbeat(epoch=2, session="hers", ttl_ms=1, version=1)}
    shares = assign_partitions(partitions=states, heartbeats=heartbeats, consumers=[], held={"a": {}}, session="mine")
    assert shares.claims == (PlannedClaim(partition=0, consumer="a", epoch=4, expired="b"),)
