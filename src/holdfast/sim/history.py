"""History: what happened in a world, in the order it truly happened.

Written by the store (what landed, whose session ended), by the actors (which leases they had when they acted) and by the world
(when it healed). The checker reads nothing else. Notes are for people; they are only taken when a run is traced.
"""

from collections.abc import Mapping

import msgspec

from holdfast.contracts.store import Change, Entry
from holdfast.sim.loop import SimLoop


class CommitApplied(msgspec.Struct, frozen=True, tag=True):
    """A commit took effect in the store."""

    at_ms: float
    version: int
    changes: tuple[Change, ...]


class SessionEnded(msgspec.Struct, frozen=True, tag=True):
    """The store ended a session."""

    at_ms: float
    session: str


class SessionRenewed(msgspec.Struct, frozen=True, tag=True):
    """The store accepted a keep-alive."""

    at_ms: float
    session: str


class ReadObserved(msgspec.Struct, frozen=True, tag=True):
    """A reader was shown these keys at these versions (0: absent). Below `whole`, what is not listed was not there."""

    at_ms: float
    versions: Mapping[str, int]
    whole: str | None = None


class LeaseAcquired(msgspec.Struct, frozen=True, tag=True):
    """An actor learned that it has the lease."""

    at_ms: float
    actor: str
    resource: str
    epoch: int
    version: int


class EffectStarted(msgspec.Struct, frozen=True, tag=True):
    """An actor found itself entitled to act, and acts: effect `number` is under way."""

    at_ms: float
    actor: str
    resource: str
    epoch: int
    number: int


class EffectAcknowledged(msgspec.Struct, frozen=True, tag=True):
    """An actor learned that its effect `number` landed as commit `version`."""

    at_ms: float
    actor: str
    resource: str
    number: int
    version: int


class ActorCrashed(msgspec.Struct, frozen=True, tag=True):
    """Code failed in a way that is not part of its contract."""

    at_ms: float
    actor: str
    error: str


class FaultsHealed(msgspec.Struct, frozen=True, tag=True):
    """From here on nothing fails any more."""

    at_ms: float


class ActorsStopped(msgspec.Struct, frozen=True, tag=True):
    """Every actor was asked to leave and has left; `resources` is what they shared, `holders` the holder keys still there."""

    at_ms: float
    resources: tuple[str, ...]
    holders: tuple[str, ...]


class TraceNote(msgspec.Struct, frozen=True, tag=True):
    """Something a reader of the transcript wants to know."""

    at_ms: float
    who: str
    text: str


Event = (
    CommitApplied
    | SessionEnded
    | SessionRenewed
    | ReadObserved
    | LeaseAcquired
    | EffectStarted
    | EffectAcknowledged
    | ActorCrashed
    | FaultsHealed
    | ActorsStopped
    | TraceNote
)


class Effect(msgspec.Struct, frozen=True):
    """What stands under `effect/{resource}`: whose work it is."""

    actor: str
    epoch: int
    number: int


EFFECTS = "effect/"


class History:
    """Takes events down, stamped with true time, and counts what the weather did."""

    def __init__(self, loop: SimLoop, *, tracing: bool) -> None:
        self._loop = loop
        self.tracing = tracing
        self.events: list[Event] = []
        self.counts: dict[str, int] = {}
        self.worked: set[str] = set()  # resources with an acknowledged effect since the world healed

    def count(self, what: str) -> None:
        """One more of `what`."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def note(self, who: str, text: str) -> None:
        """Tell the transcript; callers whose text is costly ask `tracing` first."""
        if self.tracing:
            self.events.append(TraceNote(self._loop.now_ms, who, text))

    def commit_applied(self, version: int, changes: tuple[Change, ...]) -> None:
        self.events.append(CommitApplied(self._loop.now_ms, version, changes))

    def session_ended(self, session: str) -> None:
        self.events.append(SessionEnded(self._loop.now_ms, session))

    def session_renewed(self, session: str) -> None:
        self.events.append(SessionRenewed(self._loop.now_ms, session))

    def read_observed(self, found: Mapping[str, Entry | None], *, whole: str | None = None) -> None:
        versions = {key: 0 if entry is None else entry.version for key, entry in found.items()}
        self.events.append(ReadObserved(self._loop.now_ms, versions, whole))

    def lease_acquired(self, actor: str, resource: str, epoch: int, version: int) -> None:
        self.events.append(LeaseAcquired(self._loop.now_ms, actor, resource, epoch, version))

    def effect_started(self, actor: str, resource: str, epoch: int, number: int) -> None:
        self.events.append(EffectStarted(self._loop.now_ms, actor, resource, epoch, number))

    def effect_acknowledged(self, actor: str, resource: str, number: int, version: int) -> None:
        self.worked.add(resource)
        self.events.append(EffectAcknowledged(self._loop.now_ms, actor, resource, number, version))

    def actor_crashed(self, actor: str, error: str) -> None:
        self.events.append(ActorCrashed(self._loop.now_ms, actor, error))

    def faults_healed(self) -> None:
        self.worked.clear()
        self.events.append(FaultsHealed(self._loop.now_ms))

    def actors_stopped(self, resources: tuple[str, ...], holders: tuple[str, ...]) -> None:
        self.events.append(ActorsStopped(self._loop.now_ms, resources, holders))
