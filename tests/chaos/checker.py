"""The verdict on a history: whether it can be true of a log that loses nothing, doubles nothing and reorders nothing. Pure.

Each rule is a function from operations to violations; `RULES` is all of them. The one rule of the rules: they know what clients
saw and nothing else, so that a server cannot talk its way out.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from tests.chaos.history import Event
from tests.chaos.operations import Operations, Send, operations


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """Something that must not be."""

    rule: str
    partition: int
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: partition {self.partition}: {self.text}"


Rule = Callable[[Operations], Iterator[Violation]]


def _values_seen(ops: Operations) -> dict[tuple[int, int], dict[str, str]]:
    """(partition, offset) → value → who saw it there first."""
    seen: dict[tuple[int, int], dict[str, str]] = defaultdict(dict)
    for send in ops.sends.values():
        if send.outcome == "ok":
            seen[send.partition, send.offset].setdefault(send.value, f"acknowledged to {send.process}")
    for read in ops.reads:
        for offset, value, _ in read.records:
            seen[read.partition, offset].setdefault(value, f"read by {read.process}")
    return seen


def one_value_per_offset(ops: Operations) -> Iterator[Violation]:
    """An offset is never given to another record, whoever acknowledged or read it, and whenever."""
    for (partition, offset), values in _values_seen(ops).items():
        if len(values) > 1:
            told = ", ".join(f"{value} ({who})" for value, who in values.items())
            yield Violation("offset reassigned", partition, f"offset {offset} is {told}")


def everything_is_read(ops: Operations) -> Iterator[Violation]:
    """What was acknowledged, or seen by anybody, is read by every reader, and by every group.

    What nobody acknowledged may have come after the end at which readers stopped.
    """
    acknowledged = {(send.partition, send.offset) for send in ops.sends.values() if send.outcome == "ok"}
    ends: dict[int, int] = {}
    for (_, partition), end in ops.done.items():
        ends[partition] = min(end, ends.get(partition, end))
    visible: dict[int, dict[int, str]] = defaultdict(dict)
    for (partition, offset), values in _values_seen(ops).items():
        if offset < ends.get(partition, offset + 1) or (partition, offset) in acknowledged:
            visible[partition][offset] = next(iter(values))
    found: dict[tuple[str, int], set[int]] = defaultdict(set)
    for read in ops.reads:
        reader = ops.groups.get(read.process, read.process)
        found[reader, read.partition].update(offset for offset, _, _ in read.records)
    for reader in [*ops.of_kind("reader"), *dict.fromkeys(ops.groups.values())]:
        for partition, offsets in visible.items():
            for offset in sorted(offsets.keys() - found[reader, partition]):
                yield Violation("lost", partition, f"{offsets[offset]} at {offset} was never read by {reader}")


def every_reader_reaches_the_end(ops: Operations) -> Iterator[Violation]:
    """A run ends when everybody has read everything: who has not was kept from it."""
    for reader in ops.of_kind("reader"):
        for partition in ops.partitions:
            if (reader, partition) not in ops.done:
                yield Violation("unfinished", partition, f"{reader} did not reach the end")


def readers_go_forward(ops: Operations) -> Iterator[Violation]:
    """A reader is given each offset once, in order; a group's member in order while the partition is its own."""
    last: dict[tuple[str, int], int] = {}
    begun = {(each.process, each.partition, each.first) for each in ops.assigned}
    for read in ops.reads:
        at = (read.process, read.partition)
        for offset, value, _ in read.records:
            if (read.process, read.partition, offset) in begun:
                last.pop(at, None)
            if offset <= last.get(at, -1):
                yield Violation(
                    "reordered", read.partition, f"{read.process} read {value} at {offset} after {last[at]}"
                )
            last[at] = offset


def _places(ops: Operations) -> dict[str, set[tuple[int, int]]]:
    """Value → where it was seen."""
    places: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for (partition, offset), values in _values_seen(ops).items():
        for value in values:
            places[value].add((partition, offset))
    return places


def nothing_is_there_twice(ops: Operations) -> Iterator[Violation]:
    """A record of an idempotent producer has one offset, however often it was sent."""
    idempotent = set(ops.of_kind("idempotent"))
    for value, found in _places(ops).items():
        if len(found) > 1 and (value not in ops.sends or ops.sends[value].process in idempotent):
            told = ", ".join(f"{partition}@{offset}" for partition, offset in sorted(found))
            yield Violation("duplicate", min(found)[0], f"{value} is at {told}")


def nothing_comes_from_nowhere(ops: Operations) -> Iterator[Violation]:
    """Whatever is read was sent, to that partition, and was not refused for good."""
    for read in ops.reads:
        for offset, value, _ in read.records:
            send = ops.sends.get(value)
            if send is None or send.partition != read.partition:
                yield Violation("phantom", read.partition, f"{value} at {offset} was never sent there")
            elif send.outcome == "fail":
                yield Violation("phantom", read.partition, f"{value} at {offset} was refused for good")


def producers_keep_their_order(ops: Operations) -> Iterator[Violation]:
    """An idempotent producer's records are in the order in which it sent them, whatever it knows of their outcome."""
    order = {send.value: number for number, send in enumerate(ops.sends.values())}
    idempotent = set(ops.of_kind("idempotent"))
    by_partition: dict[int, dict[int, str]] = defaultdict(dict)
    for (partition, offset), values in _values_seen(ops).items():
        by_partition[partition][offset] = next(iter(values))
    for partition, offsets in by_partition.items():
        last: dict[str, Send] = {}
        for offset in sorted(offsets):
            send = ops.sends.get(offsets[offset])
            if send is None or send.process not in idempotent:
                continue
            before = last.get(send.process)
            if before is not None and order[before.value] > order[send.value]:
                yield Violation("reordered", partition, f"{send.value} at {offset} follows {before.value}")
            last[send.process] = send


def acknowledged_before_means_lower(ops: Operations) -> Iterator[Violation]:
    """Real time: a record sent after another was acknowledged has a higher offset. So a log is linearizable."""
    by_partition: dict[int, list[Send]] = defaultdict(list)
    for send in ops.sends.values():
        if send.outcome == "ok":
            by_partition[send.partition].append(send)
    for partition, sends in by_partition.items():
        answered = sorted(sends, key=lambda send: send.answered_ms)
        highest: Send | None = None
        at = 0
        for send in sorted(sends, key=lambda send: send.invoked_ms):
            while at < len(answered) and answered[at].answered_ms < send.invoked_ms:
                if highest is None or answered[at].offset > highest.offset:
                    highest = answered[at]
                at += 1
            if highest is not None and send.offset <= highest.offset:
                text = f"{send.value} got {send.offset} after {highest.value} had {highest.offset}"
                yield Violation("offset went back", partition, text)


def ends_never_go_back(ops: Operations) -> Iterator[Violation]:
    """Within an epoch end offsets grow in real time; no leader answers less than one of a lower epoch has answered.

    A deposed leader may answer late; its answers have its epoch, and are no more than what its successors begin with.
    """
    by_partition: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
    for each in ops.ends:
        by_partition[each.partition].append((each.epoch, each.answered_ms, each.invoked_ms, each.end))
    for partition, ends in by_partition.items():
        below, below_epoch = 0, -1  # the highest end of all lower epochs
        of_epoch: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for epoch, answered_ms, invoked_ms, end in ends:
            of_epoch[epoch].append((answered_ms, invoked_ms, end))
        for epoch in sorted(of_epoch):
            answers = sorted(of_epoch[epoch])
            for answered_ms, invoked_ms, end in answers:
                if end < below:
                    text = f"epoch {epoch} ended at {end}, epoch {below_epoch} at {below} already"
                    yield Violation("end went back", partition, text)
                earlier = max((other for at, _, other in answers if at < invoked_ms), default=0)
                if end < earlier:
                    yield Violation(
                        "end went back", partition, f"epoch {epoch}: {end} at {answered_ms} after {earlier}"
                    )
            highest = max(end for _, _, end in answers)
            if highest > below:
                below, below_epoch = highest, epoch


def ends_include_what_was_acknowledged(ops: Operations) -> Iterator[Violation]:
    """An end offset lies above everything that was acknowledged before it was asked for, under its epoch or a lower one.

    What was written under a higher epoch a deposed leader need not know.
    """
    epochs = {(read.partition, offset): epoch for read in ops.reads for offset, _, epoch in read.records if epoch >= 0}
    acknowledged = [each for each in ops.sends.values() if each.outcome == "ok"]
    acknowledged.sort(key=lambda each: each.answered_ms)
    highest: dict[int, dict[int, Send]] = defaultdict(dict)  # partition → epoch → send
    at = 0
    for each in sorted(ops.ends, key=lambda each: each.invoked_ms):
        while at < len(acknowledged) and acknowledged[at].answered_ms < each.invoked_ms:
            send = acknowledged[at]
            epoch = epochs.get((send.partition, send.offset))
            if epoch is not None:
                known = highest[send.partition].setdefault(epoch, send)
                if send.offset > known.offset:
                    highest[send.partition][epoch] = send
            at += 1
        for epoch, send in highest[each.partition].items():
            if epoch <= each.epoch and send.offset >= each.end:
                text = f"epoch {each.epoch} ended at {each.end} after {send.value} was acknowledged at {send.offset}"
                yield Violation("end went back", each.partition, text)


def one_leader_per_epoch(ops: Operations) -> Iterator[Violation]:
    """Whatever agents say of an epoch of a partition, they name one leader."""
    for (partition, epoch), leaders in ops.leaders.items():
        if len(leaders) > 1:
            named = ", ".join(map(str, sorted(leaders)))
            yield Violation("two leaders", partition, f"epoch {epoch} was led by {named}")


def epochs_follow_offsets(ops: Operations) -> Iterator[Violation]:
    """A record keeps the epoch it was written under, and epochs do not fall with offsets."""
    epochs: dict[int, dict[int, int]] = defaultdict(dict)
    for read in ops.reads:
        for offset, value, epoch in read.records:
            if epoch < 0:
                continue
            known = epochs[read.partition].setdefault(offset, epoch)
            if known != epoch:
                text = f"{value} at {offset} is of epoch {known} and of {epoch}"
                yield Violation("epoch changed", read.partition, text)
    for partition, known_epochs in epochs.items():
        last = -1
        for offset in sorted(known_epochs):
            if known_epochs[offset] < last:
                text = f"offset {offset} is of epoch {known_epochs[offset]}, one below it of {last}"
                yield Violation("epoch went back", partition, text)
            last = max(last, known_epochs[offset])


def commits_are_kept(ops: Operations) -> Iterator[Violation]:
    """Whoever gets a partition after a commit was acknowledged begins at it or later."""
    commits: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for commit in ops.commits:
        commits[commit.group, commit.partition].append((commit.answered_ms, commit.offset))
    for each in ops.assigned:
        before = [offset for at, offset in commits[each.group, each.partition] if at < each.time_ms]
        if before and each.first < max(before):
            text = f"{each.process} began at {each.first}, {max(before)} was committed for {each.group}"
            yield Violation("commit lost", each.partition, text)


def nobody_is_told_that_records_are_gone(ops: Operations) -> Iterator[Violation]:
    """Errors that make a client start over, or give up, are answers no healthy log gives."""
    for process, partition, error in ops.refusals:
        yield Violation("refused", partition, f"{process} was answered {error}")


def clients_wrote_it(ops: Operations) -> Iterator[Violation]:
    """The history itself makes sense."""
    for text in ops.malformed:
        yield Violation("malformed history", -1, text)


RULES: Final[tuple[Rule, ...]] = (
    clients_wrote_it,
    everything_is_read,
    every_reader_reaches_the_end,
    one_value_per_offset,
    nothing_is_there_twice,
    nothing_comes_from_nowhere,
    readers_go_forward,
    producers_keep_their_order,
    acknowledged_before_means_lower,
    ends_never_go_back,
    ends_include_what_was_acknowledged,
    one_leader_per_epoch,
    epochs_follow_offsets,
    commits_are_kept,
    nobody_is_told_that_records_are_gone,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a history amounts to. `repeated`: records that plain producers sent again, and that are there more than once."""

    acknowledged: int = 0
    repeated: int = 0
    unknown: int = 0
    refused: int = 0
    read: int = 0
    epochs: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    without_ack_ms: dict[int, int] = field(default_factory=dict)
    violations: tuple[Violation, ...] = ()

    def count(self, *rules: str) -> int:
        """How many violations are of these rules."""
        return sum(each.rule in rules for each in self.violations)

    def __str__(self) -> str:
        return "\n".join(map(str, self.violations[:20])) or "clean"


def check(history: Iterable[Event]) -> Verdict:
    """Judge a history."""
    ops = operations(history)
    outcomes = [send.outcome for send in ops.sends.values()]
    faults: dict[str, int] = defaultdict(int)
    for fault, _ in ops.faults:
        faults[fault] += 1
    return Verdict(
        acknowledged=outcomes.count("ok"),
        repeated=sum(len(found) > 1 for found in _places(ops).values()),
        unknown=outcomes.count("info"),
        refused=outcomes.count("fail"),
        read=sum(len(read.records) for read in ops.reads),
        epochs=len(ops.leaders),
        faults=dict(faults),
        without_ack_ms=longest_without_ack_ms(ops.sends.values()),
        violations=tuple(violation for rule in RULES for violation in rule(ops)),
    )


def longest_without_ack_ms(sends: Iterable[Send]) -> dict[int, int]:
    """Per partition: the longest time in which something was sent, or waited, and nothing was acknowledged."""
    invoked: dict[int, list[int]] = defaultdict(list)
    answered: dict[int, list[int]] = defaultdict(list)
    for send in sends:
        invoked[send.partition].append(send.invoked_ms)
        if send.outcome == "ok":
            answered[send.partition].append(send.answered_ms)
    longest = {}
    for partition, times in invoked.items():
        moments = [min(times), *sorted(answered[partition]), *([max(times)] if not answered[partition] else [])]
        longest[partition] = max((b - a for a, b in pairwise(moments)), default=0)
    return longest
