"""The checker: what must be true of every history.

Pure: events in, violations out. It checks the store's promises (docs/safety.md, rules 1, 2 and 4), the lease's (one holder per
epoch, nobody acts once another may) and the effects' (fenced where they land). It does not depend on how the world was made.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from holdfast.contracts.store import Change, Entry
from holdfast.kernel.keys import EPOCHS, HOLDERS, holder_key
from holdfast.kernel.lease import read_epoch, read_holder
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
)

RULES: Final = {
    "versions-grow": "commits land with strictly growing versions",
    "epochs-grow": "the epochs of a resource strictly grow",
    "one-holder": "an epoch has one holder, named by the commit that began it",
    "honest-lease": "a lease an actor has is one the store granted to it",
    "acting-alone": "nobody acts once a newer epoch has begun",
    "acting-held": "nobody acts on a resource it does not hold in the store",
    "no-old-effect": "no effect lands after a newer epoch has begun",
    "effect-once": "no effect lands twice",
    "honest-ack": "an acknowledged effect has landed, as the acknowledged commit",
    "gone-is-gone": "a key that vanished never reappears as it was",
    "dead-is-dead": "a session that ended never renews and holds nothing",
    "goes-on": "once faults end, every resource is worked on",
    "leaves-nothing": "when all have left gracefully, nothing is held",
    "no-surprise": "no code fails in a way that is not part of its contract",
}


class Violation(msgspec.Struct, frozen=True):
    """A broken rule: which, when, and by what. `index` is the event's place in the history."""

    rule: str
    at_ms: float
    what: str
    index: int


def check(history: Iterable[Event]) -> list[Violation]:
    """Every violation, in the order they happened."""
    checker = Checker()
    for event in history:
        checker.take(event)
    return checker.violations


class Checker:
    """Follows a history event by event."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self._index = -1
        self._at_ms = 0.0
        self._version = 0
        self._epochs: dict[str, int] = {}  # newest epoch by resource
        self._holders: dict[tuple[str, int], tuple[str, int]] = {}  # (resource, epoch): (holder, version)
        self._present: dict[str, int] = {}  # version by key, as last shown
        self._gone: set[tuple[str, int]] = set()
        self._dead: set[str] = set()
        self._effects: dict[tuple[str, int], int] = {}  # (actor, number): version
        self._healed = False
        self._worked: set[str] = set()  # resources with an acknowledged effect since everything healed
        self._rules: dict[type, Callable[[Any], None]] = {
            CommitApplied: self._commit_applied,
            SessionEnded: self._ended,
            SessionRenewed: self._renewed,
            ReadObserved: self._seen,
            LeaseAcquired: self._acquired,
            EffectStarted: self._acting,
            EffectAcknowledged: self._acknowledged,
            ActorCrashed: self._crashed,
            FaultsHealed: self._heals,
            ActorsStopped: self._stopped,
        }

    def take(self, event: Event) -> None:
        """The next event."""
        self._index += 1
        self._at_ms = event.at_ms
        rule = self._rules.get(type(event))
        if rule is not None:
            rule(event)

    def _broken(self, rule: str, what: str) -> None:
        self.violations.append(Violation(rule, self._at_ms, what, self._index))

    def _commit_applied(self, event: CommitApplied) -> None:
        if event.version <= self._version:
            self._broken("versions-grow", f"commit {event.version} landed after commit {self._version}")
        self._version = event.version
        for change in event.changes:
            self._shown(change.key, 0 if change.entry is None else change.entry.version)
            if change.entry is None:
                continue
            if change.entry.session in self._dead:
                self._broken("dead-is-dead", f"{change.key} was put under session {change.entry.session}, which ended")
            if change.key.startswith(EPOCHS):
                self._epoch_begun(change.key.removeprefix(EPOCHS), change.entry, event.changes)
            elif change.key.startswith(EFFECTS):
                self._effect_landed(change.key.removeprefix(EFFECTS), change.entry)
            elif change.key.startswith(HOLDERS):
                self._holder_named(change.entry)

    def _epoch_begun(self, resource: str, entry: Entry, changes: tuple[Change, ...]) -> None:
        epoch, newest = read_epoch(entry), self._epochs.get(resource, 0)
        if epoch <= newest:
            self._broken("epochs-grow", f"{resource} went from epoch {newest} to {epoch}")
        self._epochs[resource] = max(epoch, newest)
        named = [each.entry for each in changes if each.key == holder_key(resource) and each.entry is not None]
        if [read_holder(each).epoch for each in named] != [epoch]:
            self._broken("one-holder", f"epoch {epoch} of {resource} began without its holder")

    def _holder_named(self, entry: Entry) -> None:
        held = read_holder(entry)
        known = self._holders.setdefault((held.resource, held.epoch), (held.holder, held.version))
        if known != (held.holder, held.version):
            self._broken("one-holder", f"epoch {held.epoch} of {held.resource} is {known[0]}'s and {held.holder}'s")

    def _effect_landed(self, resource: str, entry: Entry) -> None:
        effect = msgspec.json.decode(entry.value, type=Effect)
        newest = self._epochs.get(resource, 0)
        if effect.epoch < newest:
            self._broken(
                "no-old-effect",
                f"effect {effect.number} of {effect.actor} landed on {resource} with epoch {effect.epoch} in epoch {newest}",
            )
        known = self._effects.setdefault((effect.actor, effect.number), entry.version)
        if known != entry.version:
            self._broken(
                "effect-once", f"effect {effect.number} of {effect.actor} is in commits {known} and {entry.version}"
            )

    def _ended(self, event: SessionEnded) -> None:
        self._dead.add(event.session)

    def _renewed(self, event: SessionRenewed) -> None:
        if event.session in self._dead:
            self._broken("dead-is-dead", f"session {event.session} was renewed after its end")

    def _seen(self, event: ReadObserved) -> None:
        for key, version in event.versions.items():
            self._shown(key, version)
        if event.whole is not None:
            for key in [key for key, version in self._present.items() if version and key.startswith(event.whole)]:
                if key not in event.versions:
                    self._shown(key, 0)

    def _shown(self, key: str, version: int) -> None:
        before = self._present.get(key, 0)
        if before == version:
            return
        if before:
            self._gone.add((key, before))
        if (key, version) in self._gone:
            self._broken("gone-is-gone", f"{key} is back at version {version}")
        self._present[key] = version

    def _acquired(self, event: LeaseAcquired) -> None:
        granted = self._holders.get((event.resource, event.epoch))
        if granted != (event.actor, event.version):
            self._broken(
                "honest-lease",
                f"{event.actor} has acquired epoch {event.epoch} of {event.resource} from commit {event.version};"
                f" granted: {granted}",
            )

    def _acting(self, event: EffectStarted) -> None:
        newest = self._epochs.get(event.resource, 0)
        if event.epoch != newest:
            self._broken(
                "acting-alone", f"{event.actor} acts on {event.resource} with epoch {event.epoch} in epoch {newest}"
            )
            return
        holder, version = self._holders.get((event.resource, event.epoch), ("", 0))
        if holder != event.actor or self._present.get(holder_key(event.resource), 0) != version:
            self._broken("acting-held", f"{event.actor} acts on {event.resource}, which it does not hold any more")

    def _acknowledged(self, event: EffectAcknowledged) -> None:
        self._worked.add(event.resource)
        landed = self._effects.get((event.actor, event.number), 0)
        if landed != event.version:
            self._broken(
                "honest-ack",
                f"effect {event.number} of {event.actor} was acknowledged as commit {event.version}, landed: {landed}",
            )

    def _crashed(self, event: ActorCrashed) -> None:
        self._broken("no-surprise", f"{event.actor}: {event.error}")

    def _heals(self, _: FaultsHealed) -> None:
        self._healed = True
        self._worked.clear()

    def _stopped(self, event: ActorsStopped) -> None:
        for resource in event.resources:
            if self._healed and resource not in self._worked:
                self._broken("goes-on", f"nobody worked on {resource} though nothing failed any more")
        for key in event.holders:
            self._broken("leaves-nothing", f"{key} is still there")
