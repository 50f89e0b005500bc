"""PartitionRecords: the partitions of one namespace over any Store. Claims, releases, ranges, fenced checkpoints, heartbeats.

The one rule: every effect is one commit that requires the partition's record as it was judged, and is judged by the epoch
the *caller* captured at assignment. A commit lost to another change of the record is judged again, with that same epoch.
Losing is an answer (False), a lost answer is resolved, and what a dead process leaves behind ends with its session.

It decides nothing about who should own what: that is `Rebalancer`.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.compare_and_swap import Swap, compare_and_swap
from holdfast.contracts.store import (
    Absent,
    AtVersion,
    Committed,
    Conflict,
    Delete,
    Entry,
    Operation,
    Put,
    Requirement,
    Session,
    Store,
)
from holdfast.contracts.validation import prefix_end
from holdfast.kernel.cluster_move import MOVED_KEY, check_not_moved
from holdfast.registry import intents, keys, records
from holdfast.registry.model import Heartbeat, PartitionState
from holdfast.registry.settings import RegistrySettings
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ExpiredError, InvalidError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import check_at_least
from holdfast.vocabulary.types import OffsetRange

_Decide = Callable[[PartitionState], PartitionState | None]
"""The state a partition is to have; None: refused."""


class PartitionTable:
    """The partitions of one namespace in `store`. Safe for many tasks and many processes."""

    def __init__(self, store: Store, *, clock: Clock, random: Random, settings: RegistrySettings | None = None) -> None:
        self.settings = settings or RegistrySettings()
        self._store, self._clock, self._random = store, clock, random
        self._namespace = self.settings.namespace
        self._written: dict[int, Entry] = {}  # what this process's last checkpoints left

    async def partition(self, number: int) -> PartitionState | None:
        """One partition; None if there is no such number."""
        entry = await self._store.get(keys.partition_key(self._namespace, number))
        return None if entry is None else records.decode_partition(entry)

    async def partitions(self) -> tuple[PartitionState, ...]:
        """All partitions, by id."""
        prefix = keys.partitions_prefix(self._namespace)
        return tuple(map(records.decode_partition, (await self._store.scan(prefix, prefix_end(prefix))).entries))

    async def unowned(self) -> tuple[PartitionState, ...]:
        """The partitions without an owner."""
        return tuple(state for state in await self.partitions() if state.owner is None)

    async def owned_by(self, consumer: str) -> tuple[PartitionState, ...]:
        """The partitions `consumer` owns, whether it is alive or not."""
        return tuple(state for state in await self.partitions() if state.owner == consumer)

    async def checkpoint(self, number: int) -> int:
        """The offset to continue from; 0 for a partition that does not exist."""
        state = await self.partition(number)
        return 0 if state is None else state.checkpoint

    async def claim(self, number: int, consumer: str, expected_epoch: int, *, session: Session | None = None) -> bool:
        """Make `consumer` the owner. True iff the epoch was `expected_epoch` and nobody owned it; the epoch is then one more.

        The heartbeat starts in the same commit: a claimer that dies right after it leaves a claim that expires by itself.
        Under a `session` of the claimer's own the claim lives as long as that session; `ExpiredError` if it is dead.
        `ClusterMovedError`: the cluster has left this store.
        """
        keys.check_name("consumer id", consumer)
        check_at_least("expected_epoch", expected_epoch, 0)
        entry = await self._entry(number)
        if not _claimable(records.decode_partition(entry), expected_epoch):
            return False
        under = session or await self._store.open_session(self.settings.ttl_ms)
        epoch = expected_epoch + 1
        heartbeat = records.encode_heartbeat(under.id, epoch, under.ttl_ms, shared=session is not None)

        def decide(state: PartitionState) -> PartitionState | None:
            return replace(state, owner=consumer, epoch=epoch) if _claimable(state, expected_epoch) else None

        try:
            written = await self._change(
                entry,
                decide,
                also=[Put(keys.heartbeat_key(self._namespace, number), heartbeat, under.id)],
                unless_moved=True,
            )
        except ExpiredError as expired:
            if session is not None:
                raise
            raise UnavailableError(f"partition {number}", f"claim took longer than its TTL: {expired}") from None
        if written is None and session is None:
            await self._end_session(under.id)
        return written is not None

    async def heartbeat(self, number: int, epoch: int) -> bool:
        """Renew the claim of `epoch` for another TTL. False: it expired or was released, and will never renew again."""
        heartbeat = await self._heartbeat(number, epoch)
        return heartbeat is not None and await self._store.keep_alive(heartbeat.session)

    async def expire_claim(self, number: int, epoch: int) -> None:
        """End the heartbeat of a claim: the partition counts as expired at once, and coordinators move it elsewhere."""
        heartbeat = await self._heartbeat(number, epoch)
        if heartbeat is not None and heartbeat.shared:
            key = keys.heartbeat_key(self._namespace, number)
            await self._commit([AtVersion(key, heartbeat.version)], [Delete(key)])
        elif heartbeat is not None:
            await self._store.close_session(heartbeat.session)

    async def release(self, number: int, consumer: str, epoch: int | None = None) -> bool:
        """Leave the partition without an owner: epoch one more, checkpoint kept, heartbeat ended.

        True iff `consumer` owns it and, when given, under `epoch`. Without one, the epoch found first is the one released.
        """
        entry = await self._entry(number)
        held = records.decode_partition(entry).epoch if epoch is None else epoch
        heartbeat = await self._heartbeat(number, held)

        def decide(state: PartitionState) -> PartitionState | None:
            owned = state.owner == consumer and state.epoch == held
            return replace(state, owner=None, epoch=held + 1) if owned else None

        also = [Delete(keys.heartbeat_key(self._namespace, number))]
        released = await self._change(entry, decide, also=also) is not None
        if released and heartbeat is not None and not heartbeat.shared:
            await self._end_session(heartbeat.session)
        return released

    async def release_all(self, consumer: str) -> tuple[int, ...]:
        """Release each partition `consumer` owns; the ids of those that were."""
        return tuple(
            [state.id for state in await self.owned_by(consumer) if await self.release(state.id, consumer, state.epoch)]
        )

    async def begin_range(self, number: int, consumer: str, epoch: int, intent: str) -> bool:
        """Record the range about to be processed (`intents`), before its first effect.

        True iff `consumer` owns the partition under `epoch` and no other range is begun; to begin the same one again changes
        nothing. It stays, through releases and claims, until `update_checkpoint` moves to its end: the next owner of the
        partition then does exactly this range. One that starts below the checkpoint is an `InvalidError`.
        """
        requested = intents.canonical_intent(intent)
        start = intents.intent_offsets(requested).start

        def decide(state: PartitionState) -> PartitionState | None:
            if state.owner != consumer or state.epoch != epoch or state.intent not in (None, requested):
                return None
            if state.intent is None and start < state.checkpoint:
                raise InvalidError(f"start of partition {number}'s range", start, f"at least {state.checkpoint}")
            return replace(state, intent=requested)

        return await self._change_owned(number, decide)

    async def amend_range(
        self, number: int, consumer: str, epoch: int, offsets: OffsetRange, fields: Mapping[str, Any]
    ) -> bool:
        """Add fields to the intent of the range that is begun, before its first effect.

        True iff `consumer` owns the partition under `epoch`, the range begun has these offsets, and none of the fields has another
        value already; to add the same ones again changes nothing.
        """

        def decide(state: PartitionState) -> PartitionState | None:
            if state.owner != consumer or state.epoch != epoch or state.intent is None:
                return None
            if intents.intent_offsets(state.intent) != offsets:
                return None
            amended = intents.amended_intent(state.intent, fields)
            return None if amended is None else replace(state, intent=amended)

        return await self._change_owned(number, decide)

    async def update_checkpoint(self, number: int, consumer: str, offset: int, epoch: int) -> bool:
        """Move the checkpoint up to `offset`. True iff `consumer` owns the partition under `epoch`.

        It never moves backwards: an offset at or below the stored one changes nothing, and the answer is the same. While a
        range is begun it moves to that range's end and nowhere else (`InvalidError`), which finishes the range.
        """
        check_at_least("offset", offset, 0)

        def decide(state: PartitionState) -> PartitionState | None:
            if state.owner != consumer or state.epoch != epoch:
                return None
            if offset <= state.checkpoint:
                return state
            if state.intent is not None and offset != (end := intents.intent_offsets(state.intent).end):
                raise InvalidError(f"checkpoint of partition {number}", offset, f"{end}, the end of the range begun")
            return replace(state, checkpoint=offset, intent=None)

        return await self._change_owned(number, decide)

    async def _change_owned(self, number: int, decide: _Decide) -> bool:
        # The record this process wrote last is most likely still there; if it is, the commit proves it without a read.
        known = self._written.pop(number, None)
        if known is None or not _changed_by(decide, records.decode_partition(known)):
            known = await self._entry(number)  # a cached record may be old: it can confirm, never refuse
        written = await self._change(known, decide)
        if written is not None:
            self._written[number] = written
        return written is not None

    async def _change(
        self, known: Entry, decide: _Decide, *, also: Sequence[Operation] = (), unless_moved: bool = False
    ) -> Entry | None:
        """Write the state `decide` returns, judging again whenever another change came first; None: it refused."""

        async def swap(entry: Entry | None) -> Swap[Entry | None]:
            if unless_moved and entry is not known:  # it may be why the last attempt has lost
                await check_not_moved(self._store)
            if entry is None:
                raise self._no_such_partition(records.partition_number(known.key))
            before = records.decode_partition(entry)
            after = decide(before)
            if after is None:
                return Swap(None)
            if after == before:
                return Swap(entry)
            value = records.encode_partition(after)
            require = (Absent(MOVED_KEY),) if unless_moved else ()
            return Swap(Entry(entry.key, value, 0), [Put(entry.key, value), *also], require)

        written, version = await compare_and_swap(
            self._store, known.key, swap, clock=self._clock, random=self._random, known=known
        )
        return replace(written, version=version) if written is not None and version else written

    async def _commit(self, require: Sequence[Requirement], apply: Sequence[Operation]) -> Committed | Conflict:
        return await commit_resolved(self._store, clock=self._clock, random=self._random, require=require, apply=apply)

    async def _entry(self, number: int) -> Entry:
        entry = None
        if number >= 0:  # no upper bound: others may have added partitions (`growth`)
            entry = await self._store.get(keys.partition_key(self._namespace, number))
        if entry is None:
            raise self._no_such_partition(number)
        return entry

    async def _heartbeat(self, number: int, epoch: int) -> Heartbeat | None:
        entry = await self._store.get(keys.heartbeat_key(self._namespace, number))
        heartbeat = None if entry is None else records.decode_heartbeat(entry)
        return heartbeat if heartbeat is not None and heartbeat.epoch == epoch else None

    async def _end_session(self, session_id: str) -> None:
        """End a session that holds nothing any more. If that fails, its TTL does it."""
        with suppress(UnavailableError, OutcomeUnknownError):
            await self._store.close_session(session_id)

    def _no_such_partition(self, number: int) -> InvalidError:
        allowed = f"0 to {self.settings.partitions - 1}, in an initialized registry"
        return InvalidError(f"partition of registry {self._namespace!r}", number, allowed)


def _claimable(state: PartitionState, expected_epoch: int) -> bool:
    return state.epoch == expected_epoch and state.owner is None


def _changed_by(decide: _Decide, cached: PartitionState) -> bool:
    try:
        after = decide(cached)
    except InvalidError:
        return False
    return after is not None and after != cached
