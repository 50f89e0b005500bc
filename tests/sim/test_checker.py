"""Each rule, broken by hand."""

import msgspec
import pytest

from holdfast.contracts.store import Change, Entry
from holdfast.kernel.keys import HOLDERS, epoch_key, holder_key
from holdfast.kernel.lease import EpochRecord, HolderRecord
from holdfast.sim.checker import RULES, check
from holdfast.sim.history import (
    EFFECTS,
    ActorCrashed,
    ActorsStopped,
    CommitApplied,
    Effect,
    EffectAcknowledged,
    EffectStarted,
    Event,
    FaultsHealed,
    LeaseAcquired,
    ReadObserved,
    SessionEnded,
    SessionRenewed,
    TraceNote,
)
from holdfast.sim.transcript import transcript


def put(key: str, value: object, version: int, session: str | None = None) -> Change:
    return Change(key, Entry(key, msgspec.json.encode(value), version, session))


def takes(
    version: int, actor: str, epoch: int, *, session: str = "s", holder_epoch: int | None = None
) -> CommitApplied:
    """The commit by which `actor` acquires r."""
    named = HolderRecord(actor, epoch if holder_epoch is None else holder_epoch)
    changes = (put(epoch_key("r"), EpochRecord(epoch), version), put(holder_key("r"), named, version, session))
    return CommitApplied(0.0, version, changes)


def gives_up(version: int) -> CommitApplied:
    return CommitApplied(0.0, version, (Change(holder_key("r"), None),))


def effect(version: int, actor: str, epoch: int, number: int) -> CommitApplied:
    return CommitApplied(0.0, version, (put(EFFECTS + "r", Effect(actor, epoch, number), version),))


def has(actor: str, epoch: int, version: int) -> LeaseAcquired:
    return LeaseAcquired(0.0, actor, "r", epoch, version)


def acts(actor: str, epoch: int, number: int = 1) -> EffectStarted:
    return EffectStarted(0.0, actor, "r", epoch, number)


def knows(actor: str, number: int, version: int) -> EffectAcknowledged:
    return EffectAcknowledged(0.0, actor, "r", number, version)


def sees(version: int, *, whole: str | None = None) -> ReadObserved:
    return ReadObserved(0.0, {holder_key("r"): version} if version or whole is None else {}, whole)


GOOD: list[Event] = [
    takes(1, "ann", 1),
    has("ann", 1, 1),
    acts("ann", 1),
    effect(2, "ann", 1, 1),
    SessionRenewed(0.0, "s"),
    sees(1),
    knows("ann", 1, 2),
    SessionEnded(0.0, "s"),
    gives_up(3),
    sees(0),
    FaultsHealed(0.0),
    TraceNote(0.0, "bob", "comes"),
    takes(4, "bob", 2, session="t"),
    has("bob", 2, 4),
    sees(4, whole=HOLDERS),
    acts("bob", 2),
    effect(5, "bob", 2, 1),
    knows("bob", 1, 5),
    gives_up(6),
    sees(0, whole=HOLDERS),
    ActorsStopped(0.0, ("r",), ()),
]

BROKEN: dict[str, list[list[Event]]] = {
    "versions-grow": [[takes(2, "ann", 1), effect(2, "ann", 1, 1)], [takes(2, "ann", 1), effect(1, "ann", 1, 1)]],
    "epochs-grow": [
        [takes(1, "ann", 1), gives_up(2), takes(3, "ann", 1)],
        [takes(1, "ann", 7), gives_up(2), takes(3, "bob", 6)],
    ],
    "one-holder": [
        [takes(1, "ann", 1), CommitApplied(0.0, 2, (put(holder_key("r"), HolderRecord("bob", 1), 2, "t"),))],
        [takes(1, "ann", 2, holder_epoch=1)],
        [CommitApplied(0.0, 1, (put(epoch_key("r"), EpochRecord(1), 1),))],
    ],
    "honest-lease": [
        [has("ann", 1, 1)],
        [takes(1, "ann", 1), has("bob", 1, 1)],
        [takes(1, "ann", 1), has("ann", 1, 2)],
    ],
    "acting-alone": [[takes(1, "ann", 1), gives_up(2), takes(3, "bob", 2), acts("ann", 1)]],
    "acting-held": [
        [takes(1, "ann", 1), gives_up(2), acts("ann", 1)],
        [takes(1, "ann", 1), sees(0), acts("ann", 1)],
        [takes(1, "ann", 1), acts("bob", 1)],
    ],
    "no-old-effect": [[takes(1, "ann", 1), gives_up(2), takes(3, "bob", 2), effect(4, "ann", 1, 1)]],
    "effect-once": [[takes(1, "ann", 1), effect(2, "ann", 1, 1), effect(3, "ann", 1, 1)]],
    "honest-ack": [
        [takes(1, "ann", 1), knows("ann", 1, 2)],
        [takes(1, "ann", 1), effect(2, "ann", 1, 1), knows("ann", 1, 3)],
    ],
    "gone-is-gone": [
        [takes(1, "ann", 1), gives_up(2), sees(1)],
        [takes(1, "ann", 1), sees(0, whole=HOLDERS), sees(1, whole=HOLDERS)],
        [takes(1, "ann", 1), gives_up(2), takes(3, "bob", 2), sees(1)],
    ],
    "dead-is-dead": [
        [takes(1, "ann", 1), SessionEnded(0.0, "s"), SessionRenewed(0.0, "s")],
        [SessionEnded(0.0, "s"), takes(1, "ann", 1)],
    ],
    "goes-on": [
        [FaultsHealed(0.0), ActorsStopped(0.0, ("r",), ())],
        [
            takes(1, "ann", 1),
            effect(2, "ann", 1, 1),
            knows("ann", 1, 2),
            FaultsHealed(0.0),
            ActorsStopped(0.0, ("r",), ()),
        ],
    ],
    "leaves-nothing": [[ActorsStopped(0.0, ("r",), (holder_key("r"),))]],
    "no-surprise": [[ActorCrashed(0.0, "ann", "KeyError('x')")]],
}


def test_a_good_history_breaks_no_rule() -> None:
    assert check(GOOD) == []


def test_every_rule_is_broken_here() -> None:
    assert BROKEN.keys() == RULES.keys()


@pytest.mark.parametrize(("rule", "events"), [(rule, events) for rule, lists in BROKEN.items() for events in lists])
def test_a_broken_rule_is_named_at_the_event_that_broke_it(rule: str, events: list[Event]) -> None:
    violations = check(events)
    assert violations[0].rule == rule
    assert {violation.index for violation in violations} == {len(events) - 1}


def test_a_transcript_has_a_line_for_every_event_and_every_broken_rule() -> None:
    events: list[Event] = [*GOOD, ActorCrashed(1.0, "ann", "oops")]
    lines = list(transcript(events, check(events)))
    assert len(lines) == len(events) + 1
    assert lines[-1].split(maxsplit=1)[0] == "!"
    assert "no-surprise: ann: oops" in lines[-1]
