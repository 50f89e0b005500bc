"""The true rank of every pop of a run, by the oracle of the simulator (`holdfast.sim.heap.rank_oracle`). Pure.

A run has no order over its partitions but time: all clocks are those of one host, after whole hours are taken away that a fault has
added. A message counts from when its readiness was acknowledged to a client, or from the first pop on after which every pop was
decided on an advert that shows it. The one rule: what is not certain counts for the pop, so that no rank is ever too high.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from tests.chaos.heaps.ledger import LeaseSpan, Ledger, ReadySpan
from tests.chaos.heaps.operations import LeaseName, Operations, Place

from holdfast.heap.records import GrantBasis
from holdfast.sim.checker import Violation
from holdfast.sim.heap.history import HeapEvent, MessageCounted, MessageGone, MessagesGranted, PopDelivered
from holdfast.sim.heap.rank_oracle import rank_pops

HOUR_MS: Final = 3_600_000
MARGIN_MS: Final = 5  # between clocks of one host
_GONE, _GRANTED, _COUNTED = range(3)  # the order of what happens at the same time
_Timed = tuple[float, int, int, HeapEvent]


class RankReport(NamedTuple):
    """How many messages were measured, the worst rank and what was broken."""

    pops: int
    worst: int
    violations: list[Violation]


class _Times:
    """Times of records and of the history, as times of one clock."""

    def __init__(self, ops: Operations) -> None:
        offsets = ops.wall_offsets_ms or [0]
        self._began_ms, self.margin_ms = offsets[0], MARGIN_MS + max(offsets) - min(offsets)

    def of_record(self, timestamp_ms: int) -> float:
        since_ms = timestamp_ms - self._began_ms
        return since_ms - HOUR_MS * round(since_ms / HOUR_MS)


def _shown(grant: MessagesGranted, partition: int) -> int:
    """The offset of the advert of a partition that a pop was decided on; 0: its spine did not know yet that there is one."""
    return grant.basis[partition] if partition < len(grant.basis) else 0


class _Told:
    """When every later pop was decided on an advert of a partition that shows a record."""

    def __init__(self, grants: Sequence[MessagesGranted], partition: int) -> None:
        shown = sorted((_shown(each, partition), each.at_ms) for each in grants if each.basis)
        self._offsets = [offset for offset, _ in shown]
        self._until_ms: list[float] = []  # the last pop that was decided on so low an offset
        for _, at_ms in shown:
            self._until_ms.append(max(at_ms, self._until_ms[-1]) if self._until_ms else at_ms)

    def from_ms(self, record: int) -> float | None:
        """None: no pop ever was."""
        if not self._offsets or record >= self._offsets[-1]:
            return None
        at = bisect_right(self._offsets, record)
        return self._until_ms[at - 1] if at else float("-inf")


def rank_report(ops: Operations, ledgers: Mapping[int, Ledger], k: int) -> RankReport:
    """Measure every message that a spine's pop delivered, of a heap with this bound. `ledgers`: its partitions."""
    times = _Times(ops)
    delivered = {delivery.lease for delivery in ops.deliveries}
    grants = [each for number, ledger in ledgers.items() for each in _grants(ledger, number, times)]
    if k == 1:
        grants = _in_order_of_pops(grants)
    timed: list[_Timed] = [(each.at_ms, _GRANTED, each.sequence, each) for each in grants]
    for each in grants:
        if any(LeaseName(*_name(ledgers, message), each.offset) in delivered for message in each.messages):
            handed_out = PopDelivered(each.at_ms, each.partition, each.spine_epoch, each.sequence)
            timed.append((each.at_ms, _GONE, each.sequence, handed_out))
    for number, ledger in ledgers.items():
        told, acknowledged = _Told(grants, number), _acknowledged(ops, ledger)
        for span in ledger.ready:
            timed += _readiness(span, number, k, times, told, acknowledged)
    timed.sort(key=lambda each: each[:3])
    ranks = rank_pops([event for *_, event in timed], k)
    return RankReport(len(ranks.pops), max((pop.rank for pop in ranks.pops), default=0), ranks.violations)


def _message(number: int, offset: int) -> int:
    return number << 48 | offset


def _name(ledgers: Mapping[int, Ledger], message: int) -> Place:
    number = message >> 48
    return Place(ledgers[number].topic, number, message & ((1 << 48) - 1))


def _acknowledged(ops: Operations, ledger: Ledger) -> dict[tuple[int, str, int], int]:
    """(offset of the message, cause, offset of the record or rank) → when a client was told so, by the history's time."""
    found: dict[tuple[int, str, int], int] = {}
    for enqueued in ops.enqueued.values():
        if enqueued.outcome == "ok":
            for place in enqueued.places:
                if place[:2] == (ledger.topic, ledger.partition):
                    found[place.offset, "ENQUEUE", place.offset] = enqueued.answered_ms
                    found[place.offset, "RESOLVE", place.offset] = enqueued.answered_ms  # if it was of a batch
    ends = {span.name: span for span in ledger.leases.values()}
    for call in ops.settlements:
        span = ends.get(call.target)  # type: ignore[call-overload]
        if span is not None and call.outcome == "ok" and span.ended_by == call.f.upper():
            found[span.name.offset, span.ended_by, span.ended_at] = call.answered_ms
    for call in ops.changes:
        if call.outcome == "ok" and call.f == "reprioritise" and call.target[:2] == (ledger.topic, ledger.partition):
            key = (call.target[2], "REPRIORITISE", call.priority)
            found[key] = max(call.answered_ms, found.get(key, 0))
    return found


def _readiness(
    span: ReadySpan,
    number: int,
    k: int,
    times: _Times,
    told: _Told,
    acknowledged: Mapping[tuple[int, str, int], int],
) -> list[_Timed]:
    """A message counts from some time on, and is gone at another, unless its grant says so."""
    since = {"REPRIORITISE": span.rank, "RESOLVE": span.place.offset}.get(span.cause, span.since)
    key = (span.place.offset, span.cause, since)
    told_ms, answered_ms = told.from_ms(span.since), acknowledged.get(key)
    known = [told_ms] if told_ms is not None else []
    known += [answered_ms + times.margin_ms] if answered_ms is not None else []
    if not known:
        return []
    message = _message(number, span.place.offset)
    from_ms = max(times.of_record(span.since_ms), min(known))
    events: list[_Timed] = [(from_ms, _COUNTED, span.since, MessageCounted(from_ms, number, message, span.rank))]
    if span.until >= 0:
        gone_ms = times.of_record(span.until_ms) - times.margin_ms
        granted = span.left_by == "GRANT"
        if from_ms >= (times.of_record(span.until_ms) if granted and k == 1 else gone_ms):
            return []
        if not granted or k > 1:
            events.append((gone_ms, _GONE, span.until, MessageGone(gone_ms, number, message)))
    return events


def _grants(ledger: Ledger, number: int, times: _Times) -> list[MessagesGranted]:
    """The grants of a partition's pops; those without a spine have no basis."""
    by_record: dict[int, list[LeaseSpan]] = {}
    for span in ledger.leases.values():
        by_record.setdefault(span.name.granted_at, []).append(span)
    found = []
    for at, spans in by_record.items():
        basis = spans[0].basis or GrantBasis(0, -at - 1, 0, ())
        messages = tuple(_message(number, span.name.offset) for span in spans)
        ranks = tuple(span.rank for span in spans)
        at_ms = times.of_record(spans[0].granted_ms)
        told = (basis.spine_epoch, basis.sequence, basis.bound, basis.offsets)
        found.append(MessagesGranted(at_ms, number, at, messages, ranks, *told))
    return found


def _in_order_of_pops(grants: Sequence[MessagesGranted]) -> list[MessagesGranted]:
    """With a bound of 1 a pop is sent when the one before was answered: clocks that differ do not change their order."""
    last: dict[int, float] = {}
    ordered = []
    for grant in sorted(grants, key=lambda each: (each.spine_epoch, each.sequence, each.at_ms)):
        if not grant.basis:
            ordered.append(grant)
            continue
        at_ms = last[grant.spine_epoch] = max(grant.at_ms, last.get(grant.spine_epoch, grant.at_ms))
        ordered.append(msgspec.structs.replace(grant, at_ms=at_ms))
    return ordered
