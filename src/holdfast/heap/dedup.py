"""Which enqueues of which producers are known, and where their messages are.

Sequence numbers of a producer's epoch are kept in arrays, 24 bytes each; they are looked up, not guessed: a filter alone could not
name the message, and would drop one on a false positive. What is forgotten, and when, stands in FORGET records.

Producers whose name begins with `~` are ours: heaps that move messages here. They send in order, so that their highest number says
everything, and is never forgotten.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import compress
from operator import lt, not_
from typing import Final, NamedTuple, TypeAlias

from holdfast.heap.records import ProducerSequence
from holdfast.vocabulary.native import native

INTERNAL: Final = "~"
_NOTHING: Final = -(1 << 63)
_SAMPLE: Final = 10_000


_Column: TypeAlias = "array[int]"


def _drop_older(numbers: _Column, offsets: _Column, times: _Column, before: int, /) -> tuple[int, int | None]:
    """Drop the rows of three columns whose time is before one, in place: how many are kept, and the highest number of others."""
    stays = list(map(before.__le__, times))
    highest = max(compress(numbers, map(not_, stays)), default=None)
    for column in (numbers, offsets, times):
        kept = array("q", compress(column, stays))
        column[: len(kept)] = kept
    return stays.count(True), highest


drop_older: Final = _drop_older if native is None else native.drop_older


class KnownEnqueue(NamedTuple):
    """Where a message of a producer is."""

    offset: int
    enqueued_ms: int


class _Sequences:
    """The sequence numbers of one epoch of a producer, in order."""

    __slots__ = ("floor", "numbers", "offsets", "times")

    def __init__(self) -> None:
        self.numbers, self.offsets, self.times = array("q"), array("q"), array("q")
        self.floor = _NOTHING  # below this it is not known which were enqueued

    def find(self, sequence: int) -> int | None:
        at = bisect_left(self.numbers, sequence)
        return at if at < len(self.numbers) and self.numbers[at] == sequence else None

    def add(self, sequence: int, offset: int, time_ms: int) -> bool:
        if not self.numbers or sequence > self.numbers[-1]:
            self.numbers.append(sequence)
            self.offsets.append(offset)
            self.times.append(time_ms)
            return True
        at = bisect_left(self.numbers, sequence)
        if self.numbers[at] == sequence:  # that was before the window
            self.offsets[at], self.times[at] = offset, time_ms
            return False
        self.numbers.insert(at, sequence)
        self.offsets.insert(at, offset)
        self.times.insert(at, time_ms)
        return True

    def forget(self, before_ms: int, *, keep_floor: bool) -> int:
        """How many were enqueued before a time; they are forgotten."""
        count = len(self.times)
        kept, highest = drop_older(self.numbers, self.offsets, self.times, before_ms)
        for column in (self.numbers, self.offsets, self.times):
            del column[kept:]
        if highest is not None and keep_floor:
            self.floor = max(self.floor, highest + 1)
        return count - kept


def _run_of(keys: Sequence[ProducerSequence | None]) -> tuple[str, int, bytes] | None:
    """The producer, the epoch and the numbers of keys, as bytes of an array: if they have one producer and epoch, and grow."""
    if native is not None:
        return native.sequence_run(keys)
    if not keys or not all(keys):
        return None
    producers, epochs, numbers = zip(*keys, strict=True)
    one = producers.count(producers[0]) == len(keys) == epochs.count(epochs[0])
    return (
        (producers[0], epochs[0], array("q", numbers).tobytes()) if one and all(map(lt, numbers, numbers[1:])) else None
    )


class Dedup:
    """The producers of a partition."""

    __slots__ = ("_producers", "count")

    def __init__(self) -> None:
        self._producers: dict[str, dict[int, _Sequences]] = {}
        self.count = 0  # sequence numbers that are kept

    def find(self, key: ProducerSequence) -> KnownEnqueue | None:
        """The message that was enqueued under this key, if it is known."""
        kept = self._producers.get(key.producer, {}).get(key.epoch)
        if kept is None:
            return None
        if key.producer.startswith(INTERNAL):
            return KnownEnqueue(kept.offsets[0], kept.times[0]) if key.sequence <= kept.numbers[0] else None
        at = kept.find(key.sequence)
        return None if at is None else KnownEnqueue(kept.offsets[at], kept.times[at])

    def is_next(self, key: ProducerSequence) -> bool:
        """Whether the key is new for certain: above all that is known of a producer with one epoch. False: `find` knows."""
        producer, epoch, sequence = key
        epochs = self._producers.get(producer)
        if epochs is None:
            return True
        kept = epochs.get(epoch)
        if kept is None or not kept.numbers or len(epochs) > 1:
            return False
        return sequence > kept.numbers[-1] and sequence >= kept.floor and not producer.startswith(INTERNAL)

    def floor(self, key: ProducerSequence) -> int | None:
        """Below this number it is not known any more which were enqueued; None: it is."""
        kept = self._producers.get(key.producer, {}).get(key.epoch)
        return None if kept is None or key.sequence >= kept.floor else kept.floor

    def newest_epoch(self, producer: str) -> int | None:
        """The highest epoch of a producer that is known."""
        return max(self._producers.get(producer, ()), default=None)

    def highest(self, producer: str, epoch: int) -> int:
        """The highest number of a producer's epoch that may have been enqueued; -1: none."""
        kept = self._producers.get(producer, {}).get(epoch)
        return -1 if kept is None else max(-1, kept.floor - 1, *kept.numbers[-1:])

    def add(self, key: ProducerSequence, offset: int, time_ms: int) -> None:
        """A message was enqueued under this key."""
        producer, epoch, sequence = key
        epochs = self._producers.get(producer)
        if epochs is None:
            epochs = self._producers[producer] = {}
        kept = epochs.get(epoch)
        if kept is None:
            kept = epochs[epoch] = _Sequences()
        if kept.numbers and producer.startswith(INTERNAL):
            self.count -= len(kept.numbers)
            kept.numbers, kept.offsets, kept.times = array("q"), array("q"), array("q")
        self.count += kept.add(sequence, offset, time_ms)

    def is_next_run(self, keys: Sequence[ProducerSequence | None]) -> bool:
        """Whether keys of one producer are all new for certain: they grow, and the first one `is_next`."""
        return self._next_run(keys) is not None

    def _next_run(self, keys: Sequence[ProducerSequence | None]) -> tuple[str, int, bytes] | None:
        run = _run_of(keys)
        if run is None or run[0].startswith(INTERNAL) or not self.is_next(keys[0]):  # type: ignore[arg-type]
            return None
        return run

    def add_run(self, keys: Sequence[ProducerSequence | None], first: int, time_ms: int) -> None:
        """Messages were enqueued under these keys, where they have one, at offsets from `first` on."""
        run = self._next_run(keys)
        if run is None:
            for offset, key in enumerate(keys, first):
                if key is not None:
                    self.add(key, offset, time_ms)
            return
        producer, epoch, numbers = run
        kept = self._producers.setdefault(producer, {}).setdefault(epoch, _Sequences())
        kept.numbers.frombytes(numbers)
        kept.offsets.extend(range(first, first + len(keys)))
        kept.times.extend(array("q", (time_ms,)) * len(keys))
        self.count += len(keys)

    def forget(self, before_ms: int, *, keep_floor: bool) -> None:
        """Forget what was enqueued before a time, except of our own producers."""
        for producer, epochs in list(self._producers.items()):
            if producer.startswith(INTERNAL):
                continue
            for epoch, kept in list(epochs.items()):
                self.count -= kept.forget(before_ms, keep_floor=keep_floor)
                if not kept.numbers and not keep_floor:
                    del epochs[epoch]
            if not epochs:
                del self._producers[producer]

    def oldest_ms(self) -> int | None:
        """When the oldest number was enqueued that can be forgotten."""
        times = (
            min(kept.times)
            for producer, epochs in self._producers.items()
            if not producer.startswith(INTERNAL)
            for kept in epochs.values()
            if kept.times
        )
        return min(times, default=None)

    def median_ms(self) -> int:
        """The time before which about half of the numbers were enqueued."""
        each = (kept.times for epochs in self._producers.values() for kept in epochs.values())
        times = sorted(time for column in each for time in column[:: max(1, self.count // _SAMPLE)])
        return times[len(times) // 2] + 1 if times else 0

    def rows(self) -> Iterator[tuple[str, int, int, bytes]]:
        """Everything, in order: producer, epoch, floor, and (number, offset, time) each."""
        for producer, epochs in sorted(self._producers.items()):
            for epoch, kept in sorted(epochs.items()):
                columns = array("q")
                for column in (kept.numbers, kept.offsets, kept.times):
                    columns.extend(column)
                yield producer, epoch, kept.floor, columns.tobytes()

    def restore(self, producer: str, epoch: int, floor: int, columns: bytes) -> None:
        """Take over a row of `rows`."""
        kept = self._producers.setdefault(producer, {}).setdefault(epoch, _Sequences())
        values = array("q")
        values.frombytes(columns)
        third = len(values) // 3
        kept.numbers, kept.offsets, kept.times = values[:third], values[third : 2 * third], values[2 * third :]
        kept.floor = floor
        self.count += third
