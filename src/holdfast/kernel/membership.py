"""Membership: the live agents and workers. A member is a key under its session; its numeric node id never changes.

Two questions are kept apart. *May it own things?* Yes while its session lives (30 s). *Is it listed?* Until its last heartbeat is
60 s old, so that a listing can show "agent-3, gone for 40 s".
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import Absent, AtVersion, Committed, Conflict, Entry, Put, Requirement, Store
from holdfast.contracts.validation import prefix_end
from holdfast.kernel.cluster_move import MOVED_KEY, ClusterMovedError, decode_moved
from holdfast.kernel.keys import NODE_COUNTER, NODES, last_seen_key, member_key, members_prefix
from holdfast.kernel.mirror import open_mirror
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ExpiredError, InvalidError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import check_at_least
from holdfast.vocabulary.tasks import background_tasks
from holdfast.vocabulary.types import Member


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipSettings:
    """How often a member updates its heartbeat, how long it is listed after the last one, and how long it waits for its id."""

    heartbeat_ms: int = 20_000
    shown_ms: int = 60_000
    wait_for_id_ms: int = 45_000

    def __post_init__(self) -> None:
        check_at_least("heartbeat_ms", self.heartbeat_ms, 1)
        check_at_least("shown_ms", self.shown_ms, self.heartbeat_ms)
        check_at_least("wait_for_id_ms", self.wait_for_id_ms, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatus:
    """A member in a listing. `live`: its session lives; otherwise its last heartbeat was at `seen_at_ms`."""

    member: Member
    live: bool
    seen_at_ms: int


class _NodeRecord(msgspec.Struct, frozen=True):
    node: int


class _NodeCounterRecord(msgspec.Struct, frozen=True):
    next: int


class _LastSeenRecord(msgspec.Struct, frozen=True):
    member: Member
    seen_at_ms: int


def read_member(entry: Entry) -> Member:
    """The member in a store entry."""
    return msgspec.json.decode(entry.value, type=Member)


def read_seen_at_ms(entry: Entry) -> int:
    """When the member of a `seen/…` entry was seen last."""
    return msgspec.json.decode(entry.value, type=_LastSeenRecord).seen_at_ms


@asynccontextmanager
async def hold_membership(
    store: Store, kind: str, member: Member, *, clock: Clock, random: Random, settings: MembershipSettings
) -> AsyncIterator[Member]:
    """Be a member for the body, under `member.session`; leaving removes the listing at once.

    An id belongs to one live member. If another has it, perhaps our own earlier process, this waits for its session to end, then
    raises `InvalidError`. `ClusterMovedError`: the cluster has left this store.
    """
    member = replace(member, node=await node_id(store, member.id, clock=clock, random=random))
    await _register(store, kind, member, clock, random, settings)
    async with background_tasks(_heartbeat(store, kind, member, clock, random, settings)):
        yield member


async def _register(
    store: Store, kind: str, member: Member, clock: Clock, random: Random, settings: MembershipSettings
) -> None:
    key = member_key(kind, member.id)
    deadline_ms = clock.boot_ms() + settings.wait_for_id_ms
    async with open_mirror(store, key, read_member, clock=clock, random=random) as mirror:
        while True:
            outcome = await commit_resolved(
                store,
                clock=clock,
                random=random,
                require=(Absent(key), Absent(MOVED_KEY)),
                apply=(Put(key, msgspec.json.encode(member), member.session), _last_seen_put(kind, member, clock)),
            )
            if isinstance(outcome, Committed):
                return
            if (moved := outcome.found.get(MOVED_KEY)) is not None:
                raise ClusterMovedError(moved=decode_moved(moved), migration=None)
            present = outcome.found.get(key)
            if present is None:
                raise ExpiredError(f"session {member.session}", "the store has ended it")
            if clock.boot_ms() >= deadline_ms:
                there = read_member(present)
                raise InvalidError(
                    f"{kind} id",
                    member.id,
                    f"unused by live {kind}s; the one at {there.address or 'an unknown address'} has it",
                )
            await mirror.notify.wait_ms(clock, max(1, deadline_ms - clock.boot_ms()))


async def _heartbeat(
    store: Store, kind: str, member: Member, clock: Clock, random: Random, settings: MembershipSettings
) -> None:
    while True:
        await clock.sleep_ms(random.jitter(settings.heartbeat_ms))
        try:
            await commit_resolved(store, clock=clock, random=random, apply=(_last_seen_put(kind, member, clock),))
        except (UnavailableError, OutcomeUnknownError):
            continue  # a listing that lags harms nobody; the session decides about ownership


def _last_seen_put(kind: str, member: Member, clock: Clock) -> Put:
    return Put(last_seen_key(kind, member.id), msgspec.json.encode(_LastSeenRecord(member, clock.now_ms())))


async def list_members(store: Store, kind: str, *, now_ms: int, settings: MembershipSettings) -> list[MemberStatus]:
    """All live members, and those with a heartbeat within `shown_ms`, by id."""
    live_prefix, seen_prefix = members_prefix(kind), last_seen_key(kind, "")
    live = {m.id: m for m in map(read_member, (await store.scan(live_prefix, prefix_end(live_prefix))).entries)}
    statuses = []
    for entry in (await store.scan(seen_prefix, prefix_end(seen_prefix))).entries:
        seen = msgspec.json.decode(entry.value, type=_LastSeenRecord)
        if seen.member.id in live or now_ms - seen.seen_at_ms < settings.shown_ms:
            present = live.get(seen.member.id)
            statuses.append(
                MemberStatus(member=present or seen.member, live=present is not None, seen_at_ms=seen.seen_at_ms)
            )
    return statuses


def read_node_id(entry: Entry) -> int:
    """The numeric id in a `node/…` entry."""
    return msgspec.json.decode(entry.value, type=_NodeRecord).node


async def known_node_id(store: Store, member_id: str) -> int | None:
    """The numeric id of a member that has been here, alive or not."""
    entry = await store.get(NODES + member_id)
    return None if entry is None else read_node_id(entry)


async def node_id(store: Store, member_id: str, *, clock: Clock, random: Random) -> int:
    """The member's numeric id: from a counter the first time, the same afterwards. Never 0."""
    key = NODES + member_id
    while True:
        known = await known_node_id(store, member_id)
        if known is not None:
            return known
        counter = await store.get(NODE_COUNTER)
        node = 1 if counter is None else msgspec.json.decode(counter.value, type=_NodeCounterRecord).next
        unmoved: Requirement = Absent(NODE_COUNTER) if counter is None else AtVersion(NODE_COUNTER, counter.version)
        outcome = await commit_resolved(
            store,
            clock=clock,
            random=random,
            require=(Absent(key), unmoved),
            apply=(
                Put(key, msgspec.json.encode(_NodeRecord(node))),
                Put(NODE_COUNTER, msgspec.json.encode(_NodeCounterRecord(node + 1))),
            ),
        )
        if not isinstance(outcome, Conflict):
            return node
