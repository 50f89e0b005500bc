"""Fair share: who gets which of P numbered pieces of work. Pure functions, no I/O, the same answer on every machine.

The one rule: with C consumers everyone gets ⌊P/C⌋ or ⌈P/C⌉ pieces, whatever came before.

`contiguous` deals runs of neighbours in the order of the ids: easy to predict, but one consumer's coming or going moves
pieces of many. `sticky` moves only what must move. What a move costs is up to the caller.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from holdfast.vocabulary.settings import check_at_least

FairShares = dict[str, tuple[int, ...]]  # consumer → its pieces, ascending; every consumer is named, even with nothing

_NO_ONE_AVOIDED: Final[Mapping[int, str]] = MappingProxyType({})


def contiguous(consumers: Iterable[str], partitions: int) -> FairShares:
    """Runs of neighbours: the first P mod C consumers, by id, get one piece more."""
    check_at_least("partitions", partitions, 0)
    plan: FairShares = {}
    start = 0
    for consumer, quota in _quotas(sorted(set(consumers)), partitions).items():
        plan[consumer] = tuple(range(start, start + quota))
        start += quota
    return plan


def sticky(
    previous: Mapping[str, Iterable[int]],
    consumers: Iterable[str],
    partitions: int,
    *,
    avoid: Mapping[int, str] = _NO_ONE_AVOIDED,
) -> FairShares:
    """As few moves away from `previous` as balance allows; `sticky` of its own answer is that answer.

    `avoid` names, for a piece, the consumer that just failed at it: it goes to another one if there is one, at the price of one
    exchange if balance requires it.
    """
    check_at_least("partitions", partitions, 0)
    ids = sorted(set(consumers))
    held = _held(previous, ids, partitions)
    # Those who hold most get the larger quotas: any other choice would move a piece more.
    quotas = _quotas(sorted(ids, key=lambda each: (-len(held[each]), each)), partitions)
    for consumer in ids:
        del held[consumer][quotas[consumer] :]
    kept = {piece for pieces in held.values() for piece in pieces}
    free = [piece for piece in range(partitions) if piece not in kept]
    _fill_quotas(free, held, quotas)
    if len(ids) > 1:
        for piece, consumer in sorted(avoid.items()):
            if piece in held.get(consumer, ()):
                _move_to_another(piece, consumer, held, set(free), avoid)
    return {consumer: tuple(sorted(held[consumer])) for consumer in ids}


def _quotas(ids: list[str], partitions: int) -> dict[str, int]:
    """How many pieces each gets; those first in the list get the extra ones."""
    if not ids:
        return {}
    base, extra = divmod(partitions, len(ids))
    return {consumer: base + (rank < extra) for rank, consumer in enumerate(ids)}


def _held(previous: Mapping[str, Iterable[int]], ids: list[str], partitions: int) -> dict[str, list[int]]:
    """What the present consumers hold already; a piece that two claim counts for the first."""
    taken: set[int] = set()
    held: dict[str, list[int]] = {}
    for consumer in ids:
        pieces = {piece for piece in previous.get(consumer, ()) if 0 <= piece < partitions} - taken
        taken |= pieces
        held[consumer] = sorted(pieces)
    return held


def _fill_quotas(free: list[int], held: dict[str, list[int]], quotas: dict[str, int]) -> None:
    """Fill everyone up in the order of the ids, so that a plan from nothing is the contiguous one."""
    start = 0
    for consumer in sorted(held):
        end = start + quotas[consumer] - len(held[consumer])
        held[consumer] += free[start:end]
        start = end


def _move_to_another(
    piece: int, consumer: str, held: dict[str, list[int]], moving: set[int], avoid: Mapping[int, str]
) -> None:
    """Move `piece` from the consumer that failed at it to another, in exchange if the counts would differ by two."""
    other = min((each for each in held if each != consumer), key=lambda each: (len(held[each]), each))
    if len(held[other]) >= len(held[consumer]):
        # Pieces that move anyway are exchanged first: that adds no move.
        back = [each for each in held[other] if avoid.get(each) not in (consumer, other)]
        if not back:
            return
        given = max(back, key=lambda each: (each in moving, each))
        held[other].remove(given)
        held[consumer].append(given)
    held[consumer].remove(piece)
    held[other].append(piece)
