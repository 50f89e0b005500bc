"""What must be true of records and committed offsets, as producers, readers and groups saw them.

Pure. What was acknowledged is compared with what was read at the end, when nothing failed any more and nothing was sent: the log as
it is. Everything that anybody was told earlier must agree with it.
"""

from collections.abc import Callable
from typing import Any, Final

from holdfast.sim.checker import Violation
from holdfast.sim.cluster.history import (
    ClusterEvent,
    OffsetCommitted,
    OffsetFetched,
    ReadingFinished,
    RecordsAcknowledged,
    RecordsRead,
    RecordsSent,
    RecordsServed,
    SequenceRefused,
)

RECORD_RULES: Final = {
    "nothing-lost": "every acknowledged record is in the log, at the offset that was acknowledged",
    "one-record-per-offset": "an offset holds one record, for everybody and for ever",
    "read-in-order": "a reader gets records in the order of their offsets, each once, and none is left out",
    "read-stays": "what was read once is in the log",
    "sequence-known": "no producer is refused whose batches were all acknowledged before the next was sent",
    "once-if-idempotent": "a record of an idempotent producer is in the log once, in the order it was sent",
    "watermark-grows": "the high watermark of an epoch never goes back",
    "one-leader-per-epoch": "an epoch of a partition is served by one process",
    "epochs-follow-offsets": "a batch keeps the epoch it was written under, and epochs do not fall with offsets",
    "later-is-higher": "a batch that was sent after another was acknowledged has a higher offset",
    "group-offset-stays": "a committed offset of a group never goes back",
}

_Offsets = dict[int, str]


class RecordRules:
    """Follows a history event by event; `finish` compares everything with the log at the end."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self._index, self._at_ms = 0, 0.0
        self._known: dict[str, _Offsets] = {}  # partition → offset → value, as first told
        self._acknowledged: dict[str, dict[int, tuple[str, bool]]] = {}
        self._read: dict[str, dict[str, _Offsets]] = {}  # partition → reader → what it got
        self._spans: list[tuple[str, str, int, int, int]] = []  # partition, reader, start, end, index of the event
        self._finished: dict[str, list[str]] = {}  # partition → readers that read all of it
        self._positions: dict[tuple[str, str], int] = {}
        self._watermarks: dict[tuple[str, int], list[tuple[float, int]]] = {}  # when it was answered
        self._leaders: dict[tuple[str, int], str] = {}
        self._epochs: dict[str, dict[int, int]] = {}  # partition → base offset → epoch
        self._sent_at_ms: dict[tuple[str, tuple[str, ...]], float] = {}  # producer, values
        self._batches: dict[str, list[tuple[float, float, int]]] = {}  # partition → sent, acknowledged, base offset
        self._committed: dict[tuple[str, str], list[tuple[float, int]]] = {}
        self._rules: dict[type, Callable[[Any], None]] = {
            RecordsSent: self._take_sent,
            RecordsAcknowledged: self._take_acknowledged,
            SequenceRefused: self._take_refused,
            RecordsRead: self._take_read,
            RecordsServed: self._take_served,
            ReadingFinished: self._take_finished,
            OffsetCommitted: self._take_committed,
            OffsetFetched: self._take_fetched,
        }

    def take(self, index: int, event: ClusterEvent) -> None:
        """The next event."""
        rule = self._rules.get(type(event))
        if rule is not None:
            self._index, self._at_ms = index, event.at_ms
            rule(event)

    def _broken(self, rule: str, what: str) -> None:
        self.violations.append(Violation(rule, self._at_ms, what, self._index))

    def _know(self, partition: str, offset: int, value: str, who: str) -> None:
        known = self._known.setdefault(partition, {}).setdefault(offset, value)
        if known != value:
            self._broken("one-record-per-offset", f"{partition} at {offset}: {value} for {who}, {known} before")

    def _take_sent(self, event: RecordsSent) -> None:
        self._sent_at_ms.setdefault((event.producer, event.values), event.at_ms)

    def _take_acknowledged(self, event: RecordsAcknowledged) -> None:
        sent_ms = self._sent_at_ms.get((event.producer, event.values), event.at_ms)
        self._batches.setdefault(event.partition, []).append((sent_ms, event.at_ms, event.base_offset))
        for offset, value in enumerate(event.values, event.base_offset):
            self._know(event.partition, offset, value, event.producer)
            self._acknowledged.setdefault(event.partition, {})[offset] = (value, event.idempotent)

    def _take_refused(self, event: SequenceRefused) -> None:
        self._broken("sequence-known", f"{event.producer} on {event.partition}: {event.refusal}")

    def _take_read(self, event: RecordsRead) -> None:
        place = (event.partition, event.reader)
        position = self._positions.get(place, event.start)
        if event.start < position:
            self._broken("read-in-order", f"{event.reader} read {event.partition} from {event.start} after {position}")
        got = self._read.setdefault(event.partition, {}).setdefault(event.reader, {})
        at = event.start - 1
        for offset, value in event.records:
            if not at < offset < event.end:
                self._broken("read-in-order", f"{event.reader} got offset {offset} of {event.partition} after {at}")
            at = offset
            self._know(event.partition, offset, value, event.reader)
            got[offset] = value
        epochs = self._epochs.setdefault(event.partition, {})
        for base, epoch in event.epochs:
            if epochs.setdefault(base, epoch) != epoch:
                self._broken(
                    "epochs-follow-offsets", f"{event.partition} at {base} is of epoch {epochs[base]} and of {epoch}"
                )
        self._positions[place] = event.end
        self._spans.append((event.partition, event.reader, event.start, event.end, self._index))

    def _take_served(self, event: RecordsServed) -> None:
        key = (event.partition, event.epoch)
        answers = self._watermarks.setdefault(key, [])
        before = max((mark for at_ms, mark in answers if at_ms <= event.asked_ms), default=0)
        if event.high_watermark < before:
            self._broken(
                "watermark-grows",
                f"{event.partition} had high watermark {before}, and {event.high_watermark} in the same epoch {event.epoch}",
            )
        answers.append((event.at_ms, event.high_watermark))
        leader = self._leaders.setdefault(key, event.agent)
        if leader != event.agent:
            self._broken(
                "one-leader-per-epoch", f"epoch {event.epoch} of {event.partition} is {leader}'s and {event.agent}'s"
            )

    def _take_finished(self, event: ReadingFinished) -> None:
        self._finished.setdefault(event.partition, []).append(event.reader)

    def _take_committed(self, event: OffsetCommitted) -> None:
        self._committed.setdefault((event.group, event.partition), []).append((event.at_ms, event.offset))

    def _take_fetched(self, event: OffsetFetched) -> None:
        earlier = self._committed.get((event.group, event.partition), ())
        least = max((offset for at_ms, offset in earlier if at_ms <= event.asked_ms), default=-1)
        if event.offset < least:
            self._broken(
                "group-offset-stays",
                f"{event.group} committed {least} of {event.partition}, and is told {event.offset}",
            )

    def finish(self) -> None:
        """The history is complete."""
        for partition, readers in self._finished.items():
            log: _Offsets = {}
            for reader in readers:
                log |= self._read.get(partition, {}).get(reader, {})
            self._compare(partition, log)
            self._compare_epochs(partition)
            self._compare_times(partition)
        for partition, reader, start, end, index in self._spans:
            self._index = index
            got = self._read[partition][reader]
            for offset, (value, _) in self._acknowledged.get(partition, {}).items():
                if start <= offset < end and offset not in got:
                    self._broken("read-in-order", f"{reader} read {partition} past {offset} without {value}")

    def _compare_epochs(self, partition: str) -> None:
        newest = 0
        for base, epoch in sorted(self._epochs.get(partition, {}).items()):
            if epoch < newest:
                self._broken("epochs-follow-offsets", f"{partition} at {base} is of epoch {epoch}, after {newest}")
            newest = max(newest, epoch)

    def _compare_times(self, partition: str) -> None:
        """Of batches that were acknowledged before one was sent, none has a higher offset."""
        batches = self._batches.get(partition, [])
        answered = sorted(batches, key=lambda batch: batch[1])
        highest, at = -1, 0
        for sent_ms, _, base in sorted(batches):
            while at < len(answered) and answered[at][1] < sent_ms:
                highest, at = max(highest, answered[at][2]), at + 1
            if base <= highest:
                self._broken(
                    "later-is-higher", f"{partition}: a batch at {base} was sent after {highest} was acknowledged"
                )

    def _compare(self, partition: str, log: _Offsets) -> None:
        for offset, (value, _) in self._acknowledged.get(partition, {}).items():
            if log.get(offset) != value:
                self._broken(
                    "nothing-lost",
                    f"{value} was acknowledged as offset {offset} of {partition}, which holds {log.get(offset)}",
                )
        for reader, got in self._read.get(partition, {}).items():
            for offset, value in got.items():
                if log.get(offset) != value:
                    self._broken(
                        "read-stays", f"{reader} got {value} at {offset} of {partition}, which holds {log.get(offset)}"
                    )
        idempotent = {
            value.rpartition("-")[0] for value, once in self._acknowledged.get(partition, {}).values() if once
        }
        last: dict[str, int] = {}
        for offset in sorted(log):
            producer, _, number = log[offset].rpartition("-")
            if producer not in idempotent:
                continue
            if int(number) <= last.get(producer, -1):
                self._broken(
                    "once-if-idempotent",
                    f"{log[offset]} is at {offset} of {partition}, after {producer}-{last[producer]}",
                )
            last[producer] = max(int(number), last.get(producer, -1))
