"""Fair share, as arithmetic."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.kernel.fair_share import FairShares, contiguous, sticky

ids = st.sets(st.sampled_from([f"c{number}" for number in range(12)]))
counts = st.integers(min_value=0, max_value=40)


def owner_of(plan: FairShares) -> dict[int, str]:
    return {piece: consumer for consumer, pieces in plan.items() for piece in pieces}


def check(plan: FairShares, consumers: set[str], partitions: int) -> None:
    """Everyone is named, every piece is given once, and shares differ by one at most."""
    assert set(plan) == consumers
    if not consumers:
        return
    assert sorted(piece for pieces in plan.values() for piece in pieces) == list(range(partitions))
    shares = sorted(len(pieces) for pieces in plan.values())
    assert shares[0] >= partitions // len(consumers)
    assert shares[-1] <= -(-partitions // len(consumers))


@given(ids, counts)
def test_contiguous_is_fair_and_gives_runs(consumers: set[str], partitions: int) -> None:
    plan = contiguous(consumers, partitions)
    check(plan, consumers, partitions)
    assert [piece for consumer in sorted(plan) for piece in plan[consumer]] == list(range(partitions if plan else 0))


@given(ids, ids, counts)
def test_sticky_is_fair_and_moves_only_what_must_move(before: set[str], after: set[str], partitions: int) -> None:
    old = contiguous(before, partitions)
    new = sticky(old, after, partitions)
    check(new, after, partitions)
    if not after:
        return
    # The fewest moves possible: what the quotas, given to the fullest first, cannot keep.
    base, extra = divmod(partitions, len(after))
    held = sorted((len(old.get(each, ())) for each in after), reverse=True)
    kept_at_most = sum(min(count, base + (rank < extra)) for rank, count in enumerate(held))
    kept = sum(owner_of(old).get(piece) == consumer for piece, consumer in owner_of(new).items())
    assert kept == kept_at_most


@given(ids, ids, counts)
def test_sticky_of_its_own_answer_is_that_answer(before: set[str], after: set[str], partitions: int) -> None:
    plan = sticky(contiguous(before, partitions), after, partitions)
    assert sticky(plan, after, partitions) == plan


@given(ids, counts)
def test_from_nothing_sticky_is_contiguous(consumers: set[str], partitions: int) -> None:
    assert sticky({}, consumers, partitions) == contiguous(consumers, partitions)


@given(ids, counts, st.data())
def test_a_shunned_piece_goes_to_someone_else_and_the_shares_stay_fair(
    consumers: set[str], partitions: int, data: st.DataObject
) -> None:
    old = contiguous(consumers, partitions)
    owners = owner_of(old)
    lapsed = data.draw(st.sampled_from(sorted(owners))) if owners else None
    avoid = {} if lapsed is None else {lapsed: owners[lapsed]}
    left = {each: [piece for piece in pieces if piece != lapsed] for each, pieces in old.items()}
    new = sticky(left, consumers, partitions, avoid=avoid)
    check(new, consumers, partitions)
    if lapsed is not None and len(consumers) > 1:
        assert owner_of(new)[lapsed] != owners[lapsed]
        moved = [piece for piece, owner in owner_of(new).items() if owners[piece] != owner]
        assert len(moved) <= 2  # the piece itself, and one in exchange


@given(ids, counts, st.dictionaries(st.integers(0, 39), st.sampled_from([f"c{number}" for number in range(12)])))
def test_any_shunning_leaves_the_shares_fair(consumers: set[str], partitions: int, avoid: dict[int, str]) -> None:
    check(sticky({}, consumers, partitions, avoid=avoid), consumers, partitions)


def test_sticky_ignores_what_nobody_can_hold() -> None:
    assert sticky({"A": [0, 0, 99, -1], "B": [0], "gone": [1]}, ["A", "B"], 2) == {"A": (0,), "B": (1,)}
