"""A stream of all pipelines, after every change of one."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from holdfast.contracts.store import Changed, Entry, Store
from holdfast.kernel.mirror import scan_and_watch
from holdfast.pipeline.catalog import stored_parts
from holdfast.pipeline.catalog.keys import PIPELINES
from holdfast.pipeline.model.definition import Pipeline
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random


async def pipelines(store: Store, *, clock: Clock, random: Random) -> AsyncGenerator[Sequence[Pipeline], None]:
    """All pipelines now, and again after each commit that changed one. Waits while the store is unavailable."""
    entries: dict[str, Entry] = {}
    async with aclosing(scan_and_watch(store, PIPELINES, clock=clock, random=random)) as events:
        async for event in events:
            if isinstance(event, Changed):
                for change in event.changes:
                    entries.pop(change.key, None)
                    if change.entry is not None:
                        entries[change.key] = change.entry
            else:
                entries = {entry.key: entry for entry in event.entries}
            yield stored_parts.pipelines_of(entries.values())
