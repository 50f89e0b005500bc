"""Pipelines as they change."""

from collections.abc import AsyncGenerator, Sequence

from holdfast.contracts.store import Resync, Store
from holdfast.contracts.validation import prefix_end
from holdfast.pipeline.catalog import encoding
from holdfast.pipeline.catalog.keys import PIPELINES
from holdfast.pipeline.model.definition import Pipeline
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import Random, backoff_ms


async def pipelines(store: Store, *, clock: Clock, random: Random) -> AsyncGenerator[Sequence[Pipeline], None]:
    """All of them now, and again after each commit that changed one. An unreachable store is waited for."""
    attempt = 0
    while True:
        try:
            scan = await store.scan(PIPELINES, prefix_end(PIPELINES))
            entries = {entry.key: entry for entry in scan.entries}
            yield encoding.pipelines_of(entries.values())
            async with store.watch(PIPELINES, from_version=scan.version) as commits:
                async for commit in commits:
                    attempt = 0
                    if isinstance(commit, Resync):
                        break
                    for change in commit.changes:
                        entries.pop(change.key, None)
                        if change.entry is not None:
                            entries[change.key] = change.entry
                    yield encoding.pipelines_of(entries.values())
        except UnavailableError:
            await clock.sleep_ms(backoff_ms(attempt, base_ms=20, max_ms=1_000, random=random))
            attempt += 1
