"""The mark of who owns the objects below a prefix, and what two of them mean together: pure.

The same mark is in the store and in object storage, written in this order. So object storage is never ahead of the store that it
belongs to: a higher number there is that of another cluster, or of a history that this store has lost.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from holdfast.vocabulary.errors import HoldfastError, UsageError

CLAIMED: Final = 2  # the number of a mark from which on object storage must have one
SPANS_MAX: Final = 64

_ADOPT: Final = "`holdfast objects adopt --store URL --objects URL`"


class OwnerMark(msgspec.Struct, frozen=True, kw_only=True):
    """Cluster `cluster` owned the objects when its store was at `store_version`. `token` tells two histories apart.

    `moved_to`: where the cluster has taken a copy of them, to go on there. Its own store does not have such a mark: so a release
    that does not know the field refuses, too.
    """

    cluster: str
    number: int
    token: str
    store_version: int
    at_ms: int
    moved_to: str = ""


class TimeSpan(NamedTuple):
    """Wall time, both ends included."""

    from_ms: int
    until_ms: int

    def holds(self, at_ms: int) -> bool:
        """Whether `at_ms` lies in it."""
        return self.from_ms <= at_ms <= self.until_ms


class Ownership(Enum):
    """What the mark of a store and the mark in object storage mean together."""

    UNCLAIMED = "nobody has claimed these objects"
    BEGUN = "this store has recorded a mark that object storage does not have yet"
    OURS = "they are this store's"
    FOREIGN = "they are another cluster's"
    STORE_BEHIND = "they were marked by a later state of this store, or by a copy of it"
    OBJECTS_BEHIND = "this store has marked other objects, or later ones"
    MOVED = "their cluster has moved, and left these behind"


def judge_owner(cluster: str, recorded: OwnerMark | None, found: OwnerMark | None) -> Ownership:
    """Whose objects these are. `found` was read before `recorded`."""
    if found is None:
        if recorded is None:
            return Ownership.UNCLAIMED
        return Ownership.BEGUN if recorded.number < CLAIMED else Ownership.OBJECTS_BEHIND
    if found.cluster != cluster:
        return Ownership.FOREIGN
    if recorded is None or found.number > recorded.number:
        return Ownership.MOVED if found.moved_to else Ownership.STORE_BEHIND
    if found.number < recorded.number:
        return Ownership.BEGUN if found.number == recorded.number - 1 else Ownership.OBJECTS_BEHIND
    return Ownership.OURS if found.token == recorded.token else Ownership.STORE_BEHIND


def merge_spans(spans: Sequence[TimeSpan]) -> tuple[TimeSpan, ...]:
    """The spans in order, joined where they touch. Too many: the earliest become one, which holds more than they did."""
    merged: list[TimeSpan] = []
    for span in sorted(spans):
        if merged and span.from_ms <= merged[-1].until_ms:
            merged[-1] = TimeSpan(merged[-1].from_ms, max(merged[-1].until_ms, span.until_ms))
        else:
            merged.append(span)
    while len(merged) > SPANS_MAX:
        merged[:2] = [TimeSpan(merged[0].from_ms, merged[1].until_ms)]
    return tuple(merged)


class NotOwnerError(UsageError):
    """These objects belong to another cluster, or to a state of the store that this one does not have. Nothing was changed."""

    def __init__(
        self,
        place: str,
        ownership: Ownership,
        *,
        cluster: str,
        store_version: int,
        recorded: OwnerMark | None,
        found: OwnerMark | None,
    ) -> None:
        HoldfastError.__init__(self, place, ownership)
        self.place, self.ownership, self.cluster, self.store_version = place, ownership, cluster, store_version
        self.recorded, self.found = recorded, found
        self.what, self.given, self.allowed = str(self), None, ""

    def __reduce__(self) -> tuple[object, ...]:
        facts = (self.place, self.ownership, self.cluster, self.store_version, self.recorded, self.found)
        return _not_owner_error, facts

    def __str__(self) -> str:
        found, recorded = self.found, self.recorded
        mine = f"cluster {self.cluster or 'without an id'}, version {self.store_version}"
        mine += f", mark {recorded.number}" if recorded is not None else ", no mark"
        theirs = f"version {found.store_version}, mark {found.number}" if found is not None else "no mark"
        match self.ownership:
            case Ownership.FOREIGN:
                return (
                    f"{self.place} belongs to cluster {found.cluster if found else ''} ({theirs}), not to this store "
                    f"({mine}): give another --objects prefix; if the other cluster is gone for good, {_ADOPT} takes it over"
                )
            case Ownership.STORE_BEHIND:
                return (
                    f"{self.place} was marked by a later state of the store ({theirs}) than this one ({mine}): this store was "
                    "restored from a backup, or is a copy, and does not know what was published since. Use the store that "
                    f"marked it; if that is lost, stop every process that uses it and run {_ADOPT}"
                )
            case Ownership.MOVED:
                return (
                    f"cluster {self.cluster} has moved, and left {self.place} behind: use {found.moved_to if found else ''}. Only "
                    f"if that is lost for good, {_ADOPT} with --force makes this store the cluster again"
                )
            case Ownership.OBJECTS_BEHIND if found is None:
                return (
                    f"this store has marked objects before ({mine}), and there is none in {self.place}: is it mounted, and is it "
                    "the --objects this store was used with? If they are lost for good, or were moved here without their marks, "
                    f"run {_ADOPT}"
                )
            case Ownership.OBJECTS_BEHIND:
                return (
                    f"{self.place} has {theirs}, but this store has marked objects before ({mine}): these are other objects, or "
                    f"an older copy. Give the --objects this store was used with; if they are lost or were moved, run {_ADOPT}"
                )
        return f"{self.place} has no owner yet: start a server of this release with it first"


def _not_owner_error(
    place: str,
    ownership: Ownership,
    cluster: str,
    store_version: int,
    recorded: OwnerMark | None,
    found: OwnerMark | None,
) -> NotOwnerError:
    return NotOwnerError(place, ownership, cluster=cluster, store_version=store_version, recorded=recorded, found=found)
