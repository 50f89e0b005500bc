"""The step of a replay that is under way, as it is in the store. See `replay` for the order of its parts."""

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.compare_and_swap import unchanged
from holdfast.contracts.store import Committed, Conflict, Entry, Put, Store
from holdfast.pipeline.catalog.keys import replay_key
from holdfast.pipeline.catalog.stored_parts import PendingReplay, ReplayRecord, read_replay
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random


class ReplaySteps:
    """The one step of a pipeline's replays that may be under way."""

    def __init__(self, store: Store, pipeline_id: str, *, clock: Clock, random: Random) -> None:
        self._store, self._key, self._clock, self._random = store, replay_key(pipeline_id), clock, random

    async def read(self) -> tuple[Entry | None, ReplayRecord]:
        """The stored record."""
        entry = await self._store.get(self._key)
        return entry, ReplayRecord() if entry is None else read_replay(entry)

    async def begin(self, entry: Entry | None, record: ReplayRecord, step: PendingReplay) -> bool:
        """Record a step before it is executed. False: another process was faster; read again."""
        return await self._write(entry, msgspec.structs.replace(record, pending=step))

    async def clear(self, entry: Entry, record: ReplayRecord) -> bool:
        """Record that the step is done. False: another process did so."""
        return await self._write(entry, ReplayRecord(number=record.number + 1))

    async def _write(self, entry: Entry | None, record: ReplayRecord) -> bool:
        outcome: Committed | Conflict = await commit_resolved(
            self._store,
            clock=self._clock,
            random=self._random,
            require=[unchanged(self._key, entry)],
            apply=[Put(self._key, msgspec.json.encode(record))],
        )
        return isinstance(outcome, Committed)
