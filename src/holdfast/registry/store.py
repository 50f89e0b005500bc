"""RegistryStore: one namespace of partitions and consumers over any Store.

It adds to `PartitionRecords` what concerns the namespace as a whole: making and removing it, views of it, and registrations.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from holdfast.contracts.compare_and_swap import Swap, compare_and_swap, put_if_absent
from holdfast.contracts.store import Absent, Changed, Delete, Entry, Put
from holdfast.contracts.validation import prefix_end
from holdfast.kernel.cluster_move import MOVED_KEY, check_not_moved
from holdfast.kernel.mirror import scan_and_watch
from holdfast.registry import keys, records
from holdfast.registry.model import ConsumerInfo, PartitionState, SourceTopic
from holdfast.registry.partitions import PartitionTable
from holdfast.registry.queries import fix_source
from holdfast.registry.view import RegistryView
from holdfast.vocabulary.errors import ExpiredError, InvalidError, UnavailableError

_PARTITIONS_PER_COMMIT: Final = 50  # each is a requirement and a put; a commit takes 100 operations


class RegistryStore(PartitionTable):
    """One namespace of partitions and consumers in a store. Safe for many tasks, many processes, many coordinators."""

    async def initialize(self) -> None:
        """Create what is missing; never wipe. Racing calls, and calls after one that died half-way, end in the same state.

        Another number of partitions than the namespace has is an `InvalidError`: keys would change their partitions.
        """
        key, count = keys.meta_key(self._namespace), self.settings.partitions
        clock, random = self._clock, self._random
        held = await put_if_absent(self._store, key, records.encode_meta(count), clock=clock, random=random)
        stored = records.decode_partition_count(Entry(key, held, 0))
        if stored != count:
            raise InvalidError(f"partitions of registry {self._namespace!r}", count, f"{stored}, as it was created")
        # The count is decided before the partitions are made, so that two counts can never mix.
        while missing := await self._missing():
            for at in range(0, len(missing), _PARTITIONS_PER_COMMIT):
                states = [PartitionState(id=number) for number in missing[at : at + _PARTITIONS_PER_COMMIT]]
                puts = [
                    Put(keys.partition_key(self._namespace, state.id), records.encode_partition(state))
                    for state in states
                ]
                await self._commit([Absent(put.key) for put in puts], puts)

    async def bind_topic(self, topic: str, topic_id: str) -> None:
        """Decide once which topic the checkpoints are offsets of. `InvalidError`: another one, or one that was recreated since."""
        source = SourceTopic(topic, topic_id)
        bound = await fix_source(self._store, self._namespace, source, clock=self._clock, random=self._random)
        if bound != source:
            again = ", which was deleted and recreated since" if bound.topic == topic else ""
            raise InvalidError(
                f"topic of registry {self._namespace!r}", topic, f"{bound.topic!r}, as it was bound{again}"
            )

    async def _missing(self) -> list[int]:
        made = {state.id for state in await self.partitions()}
        return [number for number in range(self.settings.partitions) if number not in made]

    async def remove(self) -> None:
        """Delete the namespace with its epochs. For demos and retired registries; refused while a consumer is registered."""
        if names := [info.id for info in await self.active()]:
            raise InvalidError(f"registry to remove {self._namespace!r}", names, "one without registered consumers")
        prefix = keys.namespace_prefix(self._namespace)
        while entries := (await self._store.scan(prefix, prefix_end(prefix), limit=100)).entries:
            await self._commit([], [Delete(entry.key) for entry in entries])

    async def snapshot(self) -> RegistryView:
        """Everything, at one version."""
        prefix = keys.namespace_prefix(self._namespace)
        return RegistryView(self._namespace, await self._store.scan(prefix, prefix_end(prefix)))

    async def expired(self) -> tuple[PartitionState, ...]:
        """Owned, and the owner is not registered or its heartbeat is older than the TTL, by the store's clock."""
        return (await self.snapshot()).expired()

    async def watch(self, *, checkpoints: bool = False) -> AsyncGenerator[RegistryView, None]:
        """The view now, and again after each commit that changed an owner, a heartbeat or a registration.

        With `checkpoints`, after those that moved a checkpoint too. The same view is updated in place: use it before asking for
        the next. Close the generator (`contextlib.aclosing`). It waits for a store that does not answer.
        """
        prefix = keys.namespace_prefix(self._namespace)
        view: RegistryView | None = None
        async with aclosing(scan_and_watch(self._store, prefix, clock=self._clock, random=self._random)) as events:
            async for event in events:
                if view is None or not isinstance(event, Changed):
                    assert not isinstance(event, Changed)  # a scan comes first
                    view = RegistryView(self._namespace, event)
                    yield view
                elif view.apply(event) or checkpoints:
                    yield view

    async def register(self, consumer: str) -> ConsumerInfo:
        """Announce a consumer under a new session, in place of any earlier registration of that id, which is ended.

        `ClusterMovedError`: the cluster has left this store.
        """
        keys.check_name("consumer id", consumer)
        key = keys.consumer_key(self._namespace, consumer)
        session = await self._store.open_session(self.settings.ttl_ms)
        value = records.encode_consumer(session.id, session.ttl_ms, self._clock.now_ms())

        async def replace_earlier(entry: Entry | None) -> Swap[str | None]:
            await check_not_moved(self._store)
            earlier = None if entry is None else entry.session
            return Swap(earlier, [Put(key, value, session.id)], (Absent(MOVED_KEY),))

        try:
            earlier, version = await compare_and_swap(
                self._store, key, replace_earlier, clock=self._clock, random=self._random
            )
        except ExpiredError as expired:
            raise UnavailableError(
                f"consumer {consumer}", f"registration took longer than its TTL: {expired}"
            ) from None
        if earlier is not None:
            await self._end_session(earlier)
        return records.decode_consumer(Entry(key, value, version, session.id))

    async def keep_registered(self, info: ConsumerInfo) -> bool:
        """Renew a registration. False: it ended or was replaced; either is final."""
        return await self._store.keep_alive(info.session)

    async def deregister(self, consumer: str) -> None:
        """End the registration of an id, if there is one. Its partitions stay its own until reclaimed or released."""
        entry = await self._store.get(keys.consumer_key(self._namespace, consumer))
        if entry is not None and entry.session is not None:
            await self._store.close_session(entry.session)

    async def leave(self, info: ConsumerInfo) -> None:
        """End this very registration; a later one of the same id is not touched."""
        await self._store.close_session(info.session)

    async def registered(self, consumer: str) -> ConsumerInfo | None:
        """The present registration of an id."""
        entry = await self._store.get(keys.consumer_key(self._namespace, consumer))
        return None if entry is None else records.decode_consumer(entry)

    async def active(self) -> tuple[ConsumerInfo, ...]:
        """All registered consumers, by id."""
        prefix = keys.consumers_prefix(self._namespace)
        return tuple(map(records.decode_consumer, (await self._store.scan(prefix, prefix_end(prefix))).entries))
