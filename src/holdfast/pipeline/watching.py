"""Pipelines as they change."""

from collections.abc import AsyncGenerator, Sequence

from holdfast.contracts.checks import prefix_end
from holdfast.contracts.store import Resync, Store
from holdfast.pipeline import stored
from holdfast.pipeline.keys import PIPELINES
from holdfast.pipeline.nouns import Pipeline
from holdfast.vocabulary.clock import Chance, Clock, backoff_ms
from holdfast.vocabulary.errors import UnavailableError


async def pipelines(store: Store, *, clock: Clock, chance: Chance) -> AsyncGenerator[Sequence[Pipeline], None]:
    """All of them now, and again after each commit that changed one. An unreachable store is waited for."""
    attempt = 0
    while True:
        try:
            scan = await store.scan(PIPELINES, prefix_end(PIPELINES))
            entries = {entry.key: entry for entry in scan.entries}
            yield stored.pipelines_of(entries.values())
            async with store.watch(PIPELINES, from_version=scan.version) as commits:
                async for commit in commits:
                    attempt = 0
                    if isinstance(commit, Resync):
                        break
                    for change in commit.changes:
                        entries.pop(change.key, None)
                        if change.entry is not None:
                            entries[change.key] = change.entry
                    yield stored.pipelines_of(entries.values())
        except UnavailableError:
            await clock.sleep_ms(backoff_ms(attempt, base_ms=20, max_ms=1_000, chance=chance))
            attempt += 1
