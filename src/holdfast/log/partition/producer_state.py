"""Idempotent producers of one partition: what each sent last. Pure; time is an argument.

A producer may have five batches in flight. A batch that was seen before is answered with its first offset and not appended again;
one that skips ahead, or has an older producer epoch, is refused. An unknown producer may start at any sequence, as with
Kafka since 2.5: its state may have expired, and refusing would lose data for nothing. So no producer id is ever refused as unknown.

A client takes DUPLICATE for success. It is returned only for a batch all of whose records are here: one within what is remembered,
or further back than five whole batches, which no client with five in flight can still be waiting for.

What was refused for a moment (no leader yet, back-pressure) is noted for a while, and what follows it is refused as retriable, too:
the client sends both again, in order. Otherwise the second batch of an unknown producer would be taken, and its first be out of
order for ever; and the second batch of one that is known would be out of order, for which librdkafka starts over with a new epoch
and new numbers, under which a batch that did reach us before a crash is appended once more.

Transaction markers have no sequence: they are validated by their epoch alone, and leave the sequence where it is.

What was appended and is not durable yet can be undone: each append keeps what it replaced until `settle`.

Which producers changed since the last snapshot in a footer is kept, too, so that the next footer need not have all of them. A
producer named as changed that did not costs its bytes; one left out would be lost. So undoing and failing leave the names.

Producers are in the order of their last batch, so that the most silent ones are found without a search.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from holdfast.log.batches import BatchHeader
from holdfast.log.errors import ProducerRefusal, ProducerRefusedError
from holdfast.log.segments.model import BATCHES_REMEMBERED_MAX, ProducerSection, ProducerSnapshot, SequenceRange

_SEQUENCES = 1 << 31  # after 2³¹-1 comes 0

MISSED_MS = 60_000  # so long is a batch that was not taken waited for: longer than clients pause between tries
MISSED_MAX = 1_000


class _ReplacedState(NamedTuple):
    """What an append put aside: the producer as it was before the batch at `base_offset`."""

    base_offset: int
    producer_id: int
    before: ProducerSnapshot | None


class _MissedBatch(NamedTuple):
    """The earliest batch of a producer that came and was not taken."""

    epoch: int
    sequence: int
    at_ms: int


class ForgottenProducers(NamedTuple):
    """How many producers were forgotten: silent for too long, or the most silent of too many."""

    expired: int
    evicted: int


class ProducerStates:
    """The producers of one partition, as of everything appended so far (durable or on its way).

    `since`: the end of the segment whose footer has a snapshot (-1: none has), and `changed` who changed since. Beyond `count_max`
    the most silent producer is forgotten.
    """

    __slots__ = ("_changed", "_count_max", "_evicted", "_missed", "_producers", "_replaced", "since")

    def __init__(
        self,
        snapshots: Iterable[ProducerSnapshot] = (),
        *,
        since: int = -1,
        changed: Iterable[int] = (),
        count_max: int = 1 << 62,
    ) -> None:
        self._replaced: deque[_ReplacedState] | tuple[()] = ()  # a deque once it is needed: it is large
        self._missed: dict[int, _MissedBatch] = {}
        self._count_max, self._evicted = count_max, 0
        self.load(snapshots, since=since, changed=changed)

    def load(self, snapshots: Iterable[ProducerSnapshot], *, since: int, changed: Iterable[int]) -> None:
        """Start from what the footers say."""
        self._producers: OrderedDict[int, ProducerSnapshot] = OrderedDict(
            (each.producer_id, each) for each in sorted(snapshots, key=lambda each: each.last_timestamp_ms)
        )
        self.since = since
        self._changed = dict.fromkeys(changed, max(since, 0))  # by producer, the offset of the last change
        self._evict(max(since, 0))

    def __len__(self) -> int:
        return len(self._producers)

    def validate(self, header: BatchHeader, now_ms: int = 0) -> int | None:
        """None: append it. An offset: it was appended there before. Raises `ProducerRefusedError`."""
        if header.producer_id < 0:
            return None
        known = self._producers.get(header.producer_id)
        if known is None:
            if self._missed:
                self._check_missed(header, now_ms)
            return None
        if header.producer_epoch < known.producer_epoch:
            raise self._refused(
                ProducerRefusal.OLD_EPOCH,
                header,
                f"epoch {header.producer_epoch}",
                f"epoch {known.producer_epoch} or newer",
            )
        if header.is_control:
            return None
        first, last = _range(header)
        if header.producer_epoch > known.producer_epoch:
            if first != 0:
                self._check_missed(header, now_ms)
                raise self._refused(
                    ProducerRefusal.OUT_OF_ORDER, header, f"sequence {first}", "0: a new epoch starts over"
                )
            return None
        for seen in known.batches:
            if (seen.first_seq, seen.last_seq) == (first, last):
                noted = self._missed.get(header.producer_id)
                if noted is not None and (noted.epoch, noted.sequence) == (header.producer_epoch, first):
                    del self._missed[header.producer_id]  # it came again, and had been here before
                return seen.base_offset
        if not known.batches:
            return None
        expected = (known.batches[-1].last_seq + 1) % _SEQUENCES
        if first == expected:
            return None
        if _all_here(known.batches, first, last):
            raise self._refused(ProducerRefusal.DUPLICATE, header, f"sequence {first}", f"{expected}")
        self._check_missed(header, now_ms)
        raise self._refused(ProducerRefusal.OUT_OF_ORDER, header, f"sequence {first}", f"{expected}")

    def record_missed(self, header: BatchHeader, now_ms: int) -> None:
        """The batch came and was not taken, for no fault of its own: what follows it must not be taken before it."""
        producer_id = header.producer_id
        if producer_id < 0 or header.is_control:
            return
        noted = self._missed.pop(producer_id, None)
        if noted is None or noted.epoch != header.producer_epoch or not _is_after(header.base_sequence, noted.sequence):
            noted = _MissedBatch(header.producer_epoch, header.base_sequence, now_ms)
        self._missed[producer_id] = noted
        if len(self._missed) > MISSED_MAX:
            del self._missed[next(iter(self._missed))]

    def _check_missed(self, header: BatchHeader, now_ms: int) -> None:
        noted = self._missed.get(header.producer_id)
        if noted is None or noted.epoch != header.producer_epoch or now_ms - noted.at_ms >= MISSED_MS:
            return
        if _is_after(header.base_sequence, noted.sequence) and not header.is_control:
            raise self._refused(
                ProducerRefusal.TOO_SOON,
                header,
                f"sequence {header.base_sequence}",
                f"{noted.sequence}, which is to be sent again",
            )

    def append(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Remember a batch that `validate` accepted."""
        self.replay(header, base_offset, now_ms)
        if self._missed:
            self._missed.pop(header.producer_id, None)

    def replay(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Remember a batch that was appended before. What was refused since is still to come."""
        if header.producer_id < 0:
            return
        known = self._producers.get(header.producer_id)
        earlier = known.batches if known is not None and known.producer_epoch == header.producer_epoch else ()
        batches = earlier
        if not header.is_control:
            batches = (*earlier, SequenceRange(*_range(header), base_offset))[-BATCHES_REMEMBERED_MAX:]
        self._producers[header.producer_id] = ProducerSnapshot(
            header.producer_id, header.producer_epoch, now_ms, batches
        )
        self._changed[header.producer_id] = base_offset
        if isinstance(self._replaced, tuple):
            self._replaced = deque()
        self._replaced.append(_ReplacedState(base_offset, header.producer_id, known))
        if known is not None:
            self._producers.move_to_end(header.producer_id)
        elif len(self._producers) > self._count_max:
            self._evict(base_offset)

    def settle(self, below_offset: int) -> None:
        """Batches below the offset are durable: they are not going to be taken back."""
        replaced = self._replaced
        while replaced and replaced[0].base_offset < below_offset:
            replaced.popleft()

    def forget_from(self, offset: int) -> None:
        """Batches from `offset` on were never made durable: be as if they had not been seen."""
        replaced = self._replaced
        while replaced and replaced[-1].base_offset >= offset:
            _put_back(self._producers, replaced.pop())

    def expire(self, now_ms: int, *, expiry_ms: int, below_offset: int) -> ForgottenProducers:
        """Forget producers that have been silent for too long, before the footer of a segment that ends at `below_offset`.

        How many that were, and how many were forgotten since the last call because there were too many.
        """
        expired = 0
        while self._producers:
            producer_id, oldest = next(iter(self._producers.items()))
            if now_ms - oldest.last_timestamp_ms < expiry_ms:
                break
            del self._producers[producer_id]
            self._changed[producer_id] = below_offset - 1
            expired += 1
        if not self._replaced:
            self._replaced = ()
        evicted, self._evicted = self._evicted, 0
        return ForgottenProducers(expired, evicted)

    def _evict(self, at_offset: int) -> None:
        while len(self._producers) > self._count_max:
            producer_id, _ = self._producers.popitem(last=False)
            self._changed[producer_id] = at_offset
            self._evicted += 1

    def delta_pays(self, count_min: int) -> bool:
        """Whether a delta since the last snapshot is much smaller than another one; with less than `count_min` none is."""
        return self.since >= 0 and count_min <= len(self._producers) >= 2 * len(self._changed)

    def section(self, below_offset: int, *, delta: bool) -> Callable[[], ProducerSection]:
        """What to write into the footer of a segment that ends at `below_offset`, above which nothing is settled.

        Only the choice is made here; the call that makes the section may be done on any thread, however many there are.
        """
        then = self._undone(below_offset)
        if delta:
            chosen = {each: then[each] if each in then else self._producers.get(each) for each in self._changed}
            return partial(_section, chosen, self.since)
        chosen = {**self._producers, **then}
        return partial(_section, chosen, -1)

    def rebase(self, offset: int) -> None:
        """The footer of a segment that ends at `offset` has a snapshot: count changes from there."""
        self.since = offset
        self._changed = {producer_id: at for producer_id, at in self._changed.items() if at >= offset}

    def snapshot(self, below_offset: int) -> tuple[ProducerSnapshot, ...]:
        """All producers as of `below_offset`, above which nothing is settled."""
        return self.section(below_offset, delta=False)().producers

    def _undone(self, below_offset: int) -> dict[int, ProducerSnapshot | None]:
        """What the producers that changed at or above `below_offset` were before."""
        then: dict[int, ProducerSnapshot | None] = {}
        for replaced in reversed(self._replaced):
            if replaced.base_offset < below_offset:
                break
            then[replaced.producer_id] = replaced.before
        return then

    def _refused(self, refusal: ProducerRefusal, header: BatchHeader, given: str, allowed: str) -> ProducerRefusedError:
        return ProducerRefusedError(refusal, header.producer_id, given, allowed)


def _section(chosen: Mapping[int, ProducerSnapshot | None], since: int) -> ProducerSection:
    found = [chosen[producer_id] for producer_id in sorted(chosen)]
    producers = tuple(each for each in found if each is not None)
    gone = tuple(sorted(each for each, state in chosen.items() if state is None)) if since >= 0 else ()
    return ProducerSection(producers=producers, since=since, gone=gone)


def _put_back(producers: dict[int, ProducerSnapshot], replaced: _ReplacedState) -> None:
    if replaced.before is None:
        producers.pop(replaced.producer_id, None)
    else:
        producers[replaced.producer_id] = replaced.before


def _is_after(sequence: int, other: int) -> bool:
    return 0 < (sequence - other) % _SEQUENCES < _SEQUENCES // 2


def _all_here(remembered: tuple[SequenceRange, ...], first: int, last: int) -> bool:
    """Whether every record from `first` to `last` was appended before, for all we can know."""
    newest = remembered[-1].last_seq
    first_back, last_back = (newest - first) % _SEQUENCES, (newest - last) % _SEQUENCES
    if not last_back <= first_back < _SEQUENCES // 2:
        return False  # it reaches beyond what has come
    oldest_back = (newest - remembered[0].first_seq) % _SEQUENCES
    return first_back <= oldest_back or len(remembered) == BATCHES_REMEMBERED_MAX


def _range(header: BatchHeader) -> tuple[int, int]:
    return header.base_sequence, (header.base_sequence + header.last_offset_delta) % _SEQUENCES
