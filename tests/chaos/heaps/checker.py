"""The verdict on a run of heaps: whether what its clients saw, and what its logs say, can be true of a heap. Pure.

Each rule is a function from evidence to violations; `CLIENT_RULES` know what clients saw and nothing else, `LOG_RULES` read the
logs beside it, and the ranks are the oracle's (`ranks`).
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.heaps.ledger import Ledger, producers
from tests.chaos.heaps.operations import Call, Operations, Place
from tests.chaos.heaps.ranks import rank_report

DEAD_LETTERS: Final = ".dlq"
LOST: Final = ("lost", "unfinished")
DOUBLE_LEASES: Final = ("two live leases",)
DUPLICATES: Final = ("duplicate",)
RANKS: Final = ("rank", "not the best")


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """Something that must not be."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is judged: the clients' history, the partitions' logs, and the heap's rank bound."""

    topic: str
    k: int
    ops: Operations
    ledgers: Mapping[tuple[str, int], Ledger]
    replayed: Mapping[tuple[str, int], Mapping[str, int]] = field(default_factory=dict)  # counters of a whole replay


Rule = Callable[[Evidence], Iterator[Violation]]


# ── what clients saw ──


def nothing_is_lost(evidence: Evidence) -> Iterator[Violation]:
    """What was acknowledged is handed out until it is acknowledged, or withdrawn, by whoever was given it."""
    ops = evidence.ops
    settled = {call.value for call in ops.settlements if call.f == "ack" and call.outcome != "fail"}
    settled |= {call.value for call in ops.changes if call.f == "cancel" and call.outcome != "fail"}
    for each in ops.enqueued.values():
        if each.outcome == "ok" and each.value not in settled:
            yield Violation("lost", f"{each.value} at {sorted(each.places)} was enqueued and never done")


def everything_is_handed_out(evidence: Evidence) -> Iterator[Violation]:
    """A run ends when nothing is left."""
    if not evidence.ops.drained:
        yield Violation("unfinished", "the heap was not empty in the end")


def what_is_done_is_done(evidence: Evidence) -> Iterator[Violation]:
    """Nobody who asks after an acknowledgement, or a withdrawal, was answered gets the message."""
    done_ms: dict[str, int] = {}
    removals = [call for call in evidence.ops.settlements if call.f == "ack"]
    removals += [call for call in evidence.ops.changes if call.f == "cancel"]
    for call in removals:
        if call.outcome == "ok":
            done_ms[call.value] = min(call.answered_ms, done_ms.get(call.value, call.answered_ms))
    for delivery in evidence.ops.deliveries:
        if delivery.invoked_ms > done_ms.get(delivery.value, delivery.invoked_ms):
            text = f"{delivery.value} was done at {done_ms[delivery.value]}, {delivery.process} got it"
            yield Violation("delivered when done", f"{text} by a pop of {delivery.invoked_ms}")


def one_lease_at_a_time(evidence: Evidence) -> Iterator[Violation]:
    """A lease is live from its delivery to its last operation that was accepted; no two of a message overlap."""
    last: dict[tuple[object, ...], int] = {}
    for call in evidence.ops.settlements:
        if call.outcome == "ok" and (call.exact or call.f != "ack"):
            last[call.target] = max(call.invoked_ms, last.get(call.target, 0))
    spans: dict[Place, list[tuple[int, int, str]]] = defaultdict(list)
    for delivery in evidence.ops.deliveries:
        until_ms = last.get(delivery.lease, -1)
        if until_ms >= delivery.answered_ms:
            span = (delivery.answered_ms, until_ms, f"{delivery.process} by {delivery.lease.granted_at}")
            spans[delivery.lease.place].append(span)
    for place, held in spans.items():
        held.sort()
        latest = held[0]
        for span in held[1:]:
            if span[0] < latest[1]:
                text = f"{place} was {latest[2]} from {latest[0]} to {latest[1]}, and {span[2]} from {span[0]} to {span[1]}"
                yield Violation("two live leases", text)
            latest = max(latest, span, key=lambda each: each[1])


def nothing_is_there_twice(evidence: Evidence) -> Iterator[Violation]:
    """A value is one message of its heap, and at most one dead letter, however often it was sent."""
    places: dict[tuple[str, str], set[Place]] = defaultdict(set)
    for each in evidence.ops.enqueued.values():
        for place in each.places:
            places[each.value, place.topic].add(place)
    for delivery in evidence.ops.deliveries:
        places[delivery.value, delivery.lease.topic].add(delivery.lease.place)
    for (value, _), found in places.items():
        if len(found) > 1:
            yield Violation("duplicate", f"{value} is at {sorted(found)}")


def nothing_comes_from_nowhere(evidence: Evidence) -> Iterator[Violation]:
    """Whatever is handed out was enqueued, and has a priority that somebody gave it."""
    ops = evidence.ops
    given: dict[str, set[int]] = defaultdict(set)
    for call in ops.changes:
        if call.f == "reprioritise":
            given[call.value].add(call.priority)
    for delivery in ops.deliveries:
        enqueued = ops.enqueued.get(delivery.value)
        if enqueued is None or enqueued.outcome == "fail":
            yield Violation("phantom", f"{delivery.value}, which {delivery.process} got, was never enqueued")
        elif delivery.priority not in {enqueued.priority, *given[delivery.value]}:
            yield Violation("phantom", f"{delivery.value} was handed out with priority {delivery.priority}")


def nobody_is_refused(evidence: Evidence) -> Iterator[Violation]:
    """Errors that no client of a healthy heap gets."""
    for process, error in evidence.ops.refusals:
        yield Violation("refused", f"{process} was answered {error}")


# ── what the logs say beside it ──


def logs_make_sense(evidence: Evidence) -> Iterator[Violation]:
    """Every record fits what was before: one lease at a time, of what is ready and best."""
    for ledger in evidence.ledgers.values():
        for rule, text in ledger.mismatches:
            yield Violation(rule, text)


def what_was_enqueued_is_in_the_log(evidence: Evidence) -> Iterator[Violation]:
    """Where its producer was told."""
    for each in evidence.ops.enqueued.values():
        for place in each.places:
            record = evidence.ledgers[place[:2]].messages.get(place.offset)
            if record is None or record.payload.decode() != each.value:
                yield Violation("lost", f"{each.value} was acknowledged and is not at {place}")


def producers_are_known(evidence: Evidence) -> Iterator[Violation]:
    """A sequence number is in one record of its heap."""
    seen: dict[tuple[str, object], Place] = {}
    for (topic, partition), ledger in evidence.ledgers.items():
        for producer, offset in producers(ledger):
            place = Place(topic, partition, offset)
            first = seen.setdefault((topic, producer), place)
            if first != place:
                yield Violation("duplicate", f"{producer} is at {first} and at {place}")


def what_is_handed_out_is_in_the_log(evidence: Evidence) -> Iterator[Violation]:
    """A lease that a consumer has is one of the log, with its epoch, and its bound is that of its pop."""
    for delivery in evidence.ops.deliveries:
        span = evidence.ledgers[delivery.lease[:2]].leases.get(delivery.lease)
        if span is None or span.epoch != delivery.epoch:
            yield Violation("lease not in the log", f"{delivery.lease} of epoch {delivery.epoch}, {delivery.value}")
        elif delivery.bound != (span.basis.bound if span.basis is not None else 0):
            yield Violation("rank", f"{delivery.lease} was handed out with bound {delivery.bound}: {span.basis}")


def operations_had_a_lease(evidence: Evidence) -> Iterator[Violation]:
    """What was accepted ended the lease that it named; an ack that was sent again may have found the message gone."""
    ended_by = {"ack": {"ACK"}, "nack": {"NACK", "MOVE"}, "release": {"RELEASE"}}
    for call in evidence.ops.settlements:
        if call.outcome != "ok" or call.f not in ended_by:
            continue
        topic, partition, offset, _ = call.target
        ledger = evidence.ledgers[topic, partition]
        span = ledger.leases.get(call.target)  # type: ignore[call-overload]
        if span is not None and span.ended_by in ended_by[call.f]:
            continue
        if call.f == "ack" and not call.exact and ledger.gone.get(offset) in ("ACK", "CANCEL"):
            continue
        yield Violation("accepted without a lease", f"{_told(call)}: {span}; it is gone by {ledger.gone.get(offset)}")


def dead_letters_arrive(evidence: Evidence) -> Iterator[Violation]:
    """What left for the dead letters is there, once."""
    for (topic, partition), ledger in evidence.ledgers.items():
        arrived: dict[str, int] = defaultdict(int)
        letters = [each for (name, _), each in evidence.ledgers.items() if name == topic + DEAD_LETTERS]
        for each in letters:
            for message in each.messages.values():
                arrived[message.payload.decode()] += 1
        for move in ledger.moves:
            value = ledger.messages[move.offset].payload.decode()
            if arrived[value] != 1:
                rule = "duplicate" if arrived[value] else "lost"
                yield Violation(rule, f"{value} left {topic}-{partition} and arrived {arrived[value]} times")


def leaders_count_as_logs_do(evidence: Evidence) -> Iterator[Violation]:
    """A leader that began with a snapshot has the state that the whole log gives."""
    for which, counters in evidence.replayed.items():
        told = evidence.ops.stats.get(which)
        if told is not None and told != counters:
            yield Violation("another state", f"{which}: its leader counts {told}, its log {counters}")


def nothing_is_left_in_the_log(evidence: Evidence) -> Iterator[Violation]:
    """A heap that said that it is empty is."""
    if evidence.ops.drained:
        for which, ledger in evidence.ledgers.items():
            if ledger.left:
                yield Violation("lost", f"{which} has {len(ledger.left)} messages left, {min(ledger.left)} first")


def ranks_are_within_their_bound(evidence: Evidence) -> Iterator[Violation]:
    """The oracle's."""
    for each in rank_report(evidence.ops, _partitions(evidence), evidence.k).violations:
        yield Violation("rank", f"{each.rule} at {each.at_ms:.0f}: {each.what}")


CLIENT_RULES: Final[tuple[Rule, ...]] = (
    nothing_is_lost,
    everything_is_handed_out,
    what_is_done_is_done,
    one_lease_at_a_time,
    nothing_is_there_twice,
    nothing_comes_from_nowhere,
    nobody_is_refused,
)
LOG_RULES: Final[tuple[Rule, ...]] = (
    logs_make_sense,
    what_was_enqueued_is_in_the_log,
    producers_are_known,
    what_is_handed_out_is_in_the_log,
    operations_had_a_lease,
    dead_letters_arrive,
    leaders_count_as_logs_do,
    nothing_is_left_in_the_log,
    ranks_are_within_their_bound,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a run amounts to."""

    enqueued: int = 0
    unknown: int = 0
    known_again: int = 0  # enqueues that were answered as duplicates
    delivered: int = 0
    acknowledged: int = 0
    refused: int = 0  # operations on leases that were lost
    expired: int = 0
    dead_letters: int = 0
    cancelled: int = 0
    pops_ranked: int = 0
    worst_rank: int = 0
    spines: int = 0
    epochs: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    violations: tuple[Violation, ...] = ()

    def count(self, *rules: str) -> int:
        """How many violations are of these rules."""
        return sum(each.rule in rules for each in self.violations)


def check(evidence: Evidence) -> Verdict:
    """Judge a run."""
    ops, ledgers = evidence.ops, evidence.ledgers.values()
    outcomes = [each.outcome for each in ops.enqueued.values()]
    spans = [span for ledger in ledgers for span in ledger.leases.values()]
    ranks = rank_report(ops, _partitions(evidence), evidence.k)
    rules = (*CLIENT_RULES, *LOG_RULES)
    return Verdict(
        enqueued=outcomes.count("ok"),
        unknown=outcomes.count("info"),
        known_again=sum(each.duplicates for each in ops.enqueued.values()),
        delivered=len(ops.deliveries),
        acknowledged=sum(call.f == "ack" and call.outcome == "ok" for call in ops.settlements),
        refused=sum(call.outcome == "fail" for call in ops.settlements),
        expired=sum(span.ended_by == "EXPIRE" for span in spans),
        dead_letters=sum(len(ledger.moves) for ledger in ledgers),
        cancelled=sum(name == "CANCEL" for ledger in ledgers for name in ledger.gone.values()),
        pops_ranked=ranks.pops,
        worst_rank=ranks.worst,
        spines=len({basis.spine_epoch for ledger in ledgers for _, basis in ledger.bases}),
        epochs=len({(*span.name[:2], span.epoch) for span in spans}),
        faults=dict(ops.faults),
        violations=tuple(violation for rule in rules for violation in rule(evidence)),
    )


def _partitions(evidence: Evidence) -> dict[int, Ledger]:
    return {number: each for (topic, number), each in evidence.ledgers.items() if topic == evidence.topic}


def _told(call: Call) -> str:
    return f"{call.f} of {call.value} by {call.process} under {call.target}"
