"""RegistryStore: the registry's records over any Store. Claims, releases, fenced checkpoints, heartbeats, registrations.

The one rule: every effect is one commit that requires the partition's record as it was judged, and is judged by the epoch
the *caller* captured at assignment. A commit lost to another change of the record is judged again, with that same epoch.
Losing is an answer (False), a lost answer is resolved, and what a dead process leaves behind ends with its session.

It decides nothing about who should own what: that is `Rebalancer`.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from holdfast.contracts.commits import commit_resolved
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
    Resync,
    Session,
    Store,
)
from holdfast.contracts.validation import prefix_end
from holdfast.registry import intents, keys, records
from holdfast.registry.model import ConsumerInfo, Heartbeat, PartitionState
from holdfast.registry.settings import RegistrySettings
from holdfast.registry.view import RegistryView
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ExpiredError, InvalidError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random, backoff_ms
from holdfast.vocabulary.settings import check_at_least

_ATTEMPTS_MAX: Final = 100  # losing this often to others' changes of one record means that something is broken
_PARTITIONS_PER_COMMIT: Final = 50  # each is a requirement and a put; a commit takes 100 operations

_Decide = Callable[[PartitionState], Sequence[Operation] | None]


class RegistryStore:
    """One namespace of partitions and consumers in `store`. Safe for many tasks, many processes, many coordinators."""

    def __init__(self, store: Store, *, clock: Clock, random: Random, settings: RegistrySettings | None = None) -> None:
        self.settings = settings or RegistrySettings()
        self._store, self._clock, self._random = store, clock, random
        self._namespace = self.settings.namespace
        self._seen: dict[int, tuple[Entry, PartitionState]] = {}  # what this process's last checkpoints left

    # --- the namespace

    async def initialize(self) -> None:
        """Create what is missing; never wipe. Racing calls, and calls after one that died half-way, end in the same state.

        Another number of partitions than the namespace has is an `InvalidError`: keys would change their partitions.
        """
        key, count = keys.meta(self._namespace), self.settings.partitions
        outcome = await self._commit([Absent(key)], [Put(key, records.encode_meta(count))])
        if isinstance(outcome, Conflict):
            found = outcome.found[key]
            stored = records.decode_partition_count(found) if found is not None else count
            if stored != count:
                raise InvalidError(f"partitions of registry {self._namespace!r}", count, f"{stored}, as it was created")
        # The count is decided before the slots are made, so that two counts can never mix.
        while missing := await self._missing():
            for at in range(0, len(missing), _PARTITIONS_PER_COMMIT):
                slots = [PartitionState(id=number) for number in missing[at : at + _PARTITIONS_PER_COMMIT]]
                puts = [Put(keys.partition(self._namespace, slot.id), records.encode_partition(slot)) for slot in slots]
                await self._commit([Absent(put.key) for put in puts], puts)

    async def _missing(self) -> list[int]:
        made = {state.id for state in await self.partitions()}
        return [number for number in range(self.settings.partitions) if number not in made]

    async def remove(self) -> None:
        """Delete the namespace with its epochs. For demos and retired registries; refused while a consumer is registered."""
        if names := [info.id for info in await self.active()]:
            raise InvalidError(f"registry to remove {self._namespace!r}", names, "one without registered consumers")
        root = keys.root(self._namespace)
        while entries := (await self._store.scan(root, prefix_end(root), limit=100)).entries:
            await self._commit([], [Delete(entry.key) for entry in entries])

    async def snapshot(self) -> RegistryView:
        """Everything, at one version."""
        root = keys.root(self._namespace)
        scan = await self._store.scan(root, prefix_end(root))
        return RegistryView(self._namespace, scan.version, scan.entries)

    async def watch(self, *, checkpoints: bool = False) -> AsyncGenerator[RegistryView, None]:
        """The view now, and again after each commit that changed an owner, a heartbeat or a registration.

        With `checkpoints`, after those that moved a checkpoint too. The same view is moved along: use it before asking for
        the next. Close the generator (`contextlib.aclosing`). An unreachable store is waited for.
        """
        attempt = 0
        while True:
            try:
                view = await self.snapshot()
                yield view
                async with self._store.watch(keys.root(self._namespace), from_version=view.version) as commits:
                    async for commit in commits:
                        attempt = 0
                        if isinstance(commit, Resync):
                            break
                        if view.apply(commit) or checkpoints:
                            yield view
            except UnavailableError:
                await self._clock.sleep_ms(backoff_ms(attempt, base_ms=20, max_ms=1_000, random=self._random))
                attempt += 1

    # --- consumers

    async def register(self, consumer: str) -> ConsumerInfo:
        """Announce a consumer under a new session, in place of any earlier registration of that id, which is ended."""
        keys.check_name("consumer id", consumer)
        key = keys.consumer(self._namespace, consumer)
        old = await self._store.get(key)
        for _ in range(_ATTEMPTS_MAX):
            session = await self._store.open_session(self.settings.ttl_ms)
            value = records.encode_consumer(session.id, session.ttl_ms, self._clock.now_ms())
            required = Absent(key) if old is None else AtVersion(key, old.version)
            outcome = await self._commit([required], [Put(key, value, session.id)])
            if isinstance(outcome, Committed):
                if old is not None and old.session is not None:
                    await self._end(old.session)
                return records.decode_consumer(Entry(key, value, outcome.version, session.id))
            await self._end(session.id)
            old = outcome.found[key]
        raise self._contended(key)

    async def keep_registered(self, info: ConsumerInfo) -> bool:
        """Renew a registration. False: it ended, or another took its place; either is for ever."""
        return await self._store.keep_alive(info.session)

    async def deregister(self, consumer: str) -> None:
        """End whatever registration the id has. Its partitions stay its own until reclaimed or released."""
        entry = await self._store.get(keys.consumer(self._namespace, consumer))
        if entry is not None and entry.session is not None:
            await self._store.close_session(entry.session)

    async def leave(self, info: ConsumerInfo) -> None:
        """End this very registration; a later one of the same id is not touched."""
        await self._store.close_session(info.session)

    async def registered(self, consumer: str) -> ConsumerInfo | None:
        """The present registration of an id."""
        entry = await self._store.get(keys.consumer(self._namespace, consumer))
        return None if entry is None else records.decode_consumer(entry)

    async def active(self) -> tuple[ConsumerInfo, ...]:
        """All registered consumers, by id."""
        prefix = keys.consumers(self._namespace)
        return tuple(map(records.decode_consumer, (await self._store.scan(prefix, prefix_end(prefix))).entries))

    # --- partitions, to look at

    async def partition(self, number: int) -> PartitionState | None:
        """One partition; None if there is no such number."""
        entry = await self._store.get(keys.partition(self._namespace, number))
        return None if entry is None else records.decode_partition(entry)

    async def partitions(self) -> tuple[PartitionState, ...]:
        """All partitions, by id."""
        prefix = keys.partitions(self._namespace)
        return tuple(map(records.decode_partition, (await self._store.scan(prefix, prefix_end(prefix))).entries))

    async def unowned(self) -> tuple[PartitionState, ...]:
        """What nobody owns."""
        return tuple(state for state in await self.partitions() if state.owner is None)

    async def owned_by(self, consumer: str) -> tuple[PartitionState, ...]:
        """What `consumer` owns, dead or alive."""
        return tuple(state for state in await self.partitions() if state.owner == consumer)

    async def checkpoint(self, number: int) -> int:
        """Where to go on; 0 for a partition nobody knows."""
        state = await self.partition(number)
        return 0 if state is None else state.checkpoint

    async def expired(self) -> tuple[PartitionState, ...]:
        """Owned, and the owner is not registered or its heartbeat is older than the TTL, by the store's clock."""
        return (await self.snapshot()).expired()

    # --- partitions, to change

    async def claim(self, number: int, consumer: str, expected_epoch: int, *, session: Session | None = None) -> bool:
        """Make `consumer` the owner. True iff the epoch was `expected_epoch` and nobody owned it; the epoch is then one more.

        The heartbeat starts in the same commit: a claimer that dies right after it leaves a claim that expires by itself.
        Under a `session` of the claimer's own the claim lives as long as that does, and whoever keeps the session alive
        vouches for the claim; `ExpiredError` if it is dead.
        """
        keys.check_name("consumer id", consumer)
        check_at_least("expected_epoch", expected_epoch, 0)
        entry = await self._entry(number)
        heartbeat_key = keys.heartbeat(self._namespace, number)
        for _ in range(_ATTEMPTS_MAX):
            state = records.decode_partition(entry)
            if state.epoch != expected_epoch or state.owner is not None:
                return False
            under = session or await self._store.open_session(self.settings.ttl_ms)
            claimed = replace(state, owner=consumer, epoch=expected_epoch + 1)
            heartbeat = records.encode_heartbeat(under.id, claimed.epoch, under.ttl_ms, shared=session is not None)
            outcome = await self._commit(
                [AtVersion(entry.key, entry.version)],
                [Put(entry.key, records.encode_partition(claimed)), Put(heartbeat_key, heartbeat, under.id)],
            )
            if isinstance(outcome, Committed):
                return True
            if session is None:
                await self._end(under.id)
            elif outcome.dead_session is not None:
                raise ExpiredError(f"session {session.id}", "the store has ended it")
            entry = self._found(outcome, entry.key)
        raise self._contended(entry.key)

    async def heartbeat(self, number: int, epoch: int) -> bool:
        """Renew the claim of `epoch` for another TTL. False: it expired or was released, and will never renew again."""
        heartbeat = await self._heartbeat(number, epoch)
        return heartbeat is not None and await self._store.keep_alive(heartbeat.session)

    async def expire_claim(self, number: int, epoch: int) -> None:
        """End the heartbeat of a claim: the partition counts as expired at once, and coordinators move it elsewhere."""
        heartbeat = await self._heartbeat(number, epoch)
        if heartbeat is not None and heartbeat.shared:
            key = keys.heartbeat(self._namespace, number)
            await self._commit([AtVersion(key, heartbeat.version)], [Delete(key)])
        elif heartbeat is not None:
            await self._store.close_session(heartbeat.session)

    async def release(self, number: int, consumer: str, epoch: int | None = None) -> bool:
        """Make the partition nobody's: owner none, epoch one more, checkpoint kept, heartbeat ended.

        True iff `consumer` owns it and, when given, under `epoch`. Without one, the epoch found first is the one released.
        """
        entry = await self._entry(number)
        held = records.decode_partition(entry).epoch if epoch is None else epoch
        heartbeat = await self._heartbeat(number, held)

        def decide(state: PartitionState) -> Sequence[Operation] | None:
            if state.owner != consumer or state.epoch != held:
                return None
            freed = replace(state, owner=None, epoch=held + 1)
            return Put(entry.key, records.encode_partition(freed)), Delete(keys.heartbeat(self._namespace, number))

        released = await self._change(entry, decide) is not None
        if released and heartbeat is not None and not heartbeat.shared:
            await self._end(heartbeat.session)
        return released

    async def release_all(self, consumer: str) -> tuple[int, ...]:
        """Release each partition `consumer` owns; the ids of those that were."""
        return tuple(
            [state.id for state in await self.owned_by(consumer) if await self.release(state.id, consumer, state.epoch)]
        )

    async def begin(self, number: int, consumer: str, epoch: int, intent: str) -> bool:
        """Record the range about to be processed (`intents`), before its first effect.

        True iff `consumer` owns the partition under `epoch` and no other range is begun; to begin the same one again changes
        nothing. It stays, through releases and claims, until `update_checkpoint` moves to its end: whoever owns the
        partition then does exactly this range. One that starts below the checkpoint is an `InvalidError`.
        """
        asked = intents.canonical_intent(intent)
        start = intents.intent_offsets(asked).start

        def decide(state: PartitionState) -> Sequence[Operation] | None:
            if state.owner != consumer or state.epoch != epoch or state.intent not in (None, asked):
                return None
            if state.intent == asked:
                return ()
            if start < state.checkpoint:
                raise InvalidError(f"start of partition {number}'s range", start, f"{state.checkpoint} or more")
            begun = replace(state, intent=asked)
            return (Put(keys.partition(self._namespace, number), records.encode_partition(begun)),)

        return await self._own_change(number, decide)

    async def update_checkpoint(self, number: int, consumer: str, offset: int, epoch: int) -> bool:
        """Move the checkpoint up to `offset`. True iff `consumer` owns the partition under `epoch`.

        It never moves backwards: an offset at or below the stored one changes nothing, and the answer is the same. While a
        range is begun it moves to that range's end and nowhere else (`InvalidError`), which finishes the range.
        """
        check_at_least("offset", offset, 0)

        def decide(state: PartitionState) -> Sequence[Operation] | None:
            if state.owner != consumer or state.epoch != epoch:
                return None
            if offset <= state.checkpoint:
                return ()
            if state.intent is not None and offset != (end := intents.intent_offsets(state.intent).end):
                raise InvalidError(f"checkpoint of partition {number}", offset, f"{end}, the end of the range begun")
            moved = replace(state, checkpoint=offset, intent=None)
            return (Put(keys.partition(self._namespace, number), records.encode_partition(moved)),)

        return await self._own_change(number, decide)

    # --- how

    async def _own_change(self, number: int, decide: _Decide) -> bool:
        # The record this process wrote last is most likely still there; if it is, the commit proves it without a read.
        entry, state = self._seen.pop(number, (None, None))
        if entry is None or state is None or not _allowed_by_cache(decide, state):
            entry = await self._entry(number)  # what is remembered may be old: it can confirm, never refuse
        left = await self._change(entry, decide)
        if left is None:
            return False
        self._seen[number] = (left, records.decode_partition(left))
        return True

    async def _change(self, entry: Entry, decide: _Decide) -> Entry | None:
        """Commit what `decide` says of the record, judging again whenever another change came first; None: it refused."""
        for _ in range(_ATTEMPTS_MAX):
            apply = decide(records.decode_partition(entry))
            if apply is None:
                return None
            if not apply:
                return entry
            outcome = await self._commit([AtVersion(entry.key, entry.version)], apply)
            if isinstance(outcome, Committed):
                value = next(each.value for each in apply if isinstance(each, Put) and each.key == entry.key)
                return Entry(entry.key, value, outcome.version)
            entry = self._found(outcome, entry.key)
        raise self._contended(entry.key)

    async def _commit(self, require: Sequence[Requirement], apply: Sequence[Operation]) -> Committed | Conflict:
        return await commit_resolved(self._store, clock=self._clock, random=self._random, require=require, apply=apply)

    async def _entry(self, number: int) -> Entry:
        entry = None
        if 0 <= number < self.settings.partitions:
            entry = await self._store.get(keys.partition(self._namespace, number))
        if entry is None:
            raise self._no_such(number)
        return entry

    async def _heartbeat(self, number: int, epoch: int) -> Heartbeat | None:
        entry = await self._store.get(keys.heartbeat(self._namespace, number))
        heartbeat = None if entry is None else records.decode_heartbeat(entry)
        return heartbeat if heartbeat is not None and heartbeat.epoch == epoch else None

    async def _end(self, session_id: str) -> None:
        """End a session that holds nothing any more. If that fails, its TTL does it."""
        with suppress(UnavailableError, OutcomeUnknownError):
            await self._store.close_session(session_id)

    def _found(self, conflict: Conflict, key: str) -> Entry:
        found = conflict.found[key]
        if found is None:
            raise self._no_such(records.partition_number(key))
        return found

    def _no_such(self, number: int) -> InvalidError:
        allowed = f"0 to {self.settings.partitions - 1}, once it is initialised"
        return InvalidError(f"partition of registry {self._namespace!r}", number, allowed)

    def _contended(self, key: str) -> UnavailableError:
        return UnavailableError(
            f"registry record {key}", f"it changed {_ATTEMPTS_MAX} times before it could be written"
        )


def _allowed_by_cache(decide: _Decide, remembered: PartitionState) -> bool:
    try:
        return bool(decide(remembered))
    except InvalidError:
        return False
