"""Store entries, copied page by page and then compared, every one of them.

The one rule: values are moved, versions are not. A store numbers its own commits, and nothing that outlives a session compares the
versions of two keys: epochs, offsets and generations are in values. Keys of sessions are not moved: a source with one is refused.
"""

import hashlib
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Final

import msgspec

from holdfast.app.migration.inventory import entries_of
from holdfast.app.migration.model import MigrationSettings
from holdfast.app.migration.object_copy import OnDone, chained
from holdfast.app.migration.target import TargetRecord
from holdfast.contracts.store import Entry, Put, Store
from holdfast.kernel.cluster_move import CopyProgress
from holdfast.vocabulary.errors import CorruptError, UsageError
from holdfast.vocabulary.settings import KIB

_OPS_MAX: Final = 90
_BYTES_MAX: Final = 256 * KIB


async def copy_entries(
    source: Store, target: TargetRecord, progress: CopyProgress, *, settings: MigrationSettings, on_done: OnDone
) -> CopyProgress:
    """Copy everything after `progress`. Each page is recorded with the commit after it."""
    async with aclosing(entries_of(source, after=progress.after, page=settings.page)) as pages:
        async for found in pages:
            page = [entry for entry in found if entry.session is None]
            for chunk in _chunks(page):
                await target.apply([Put(entry.key, entry.value) for entry in chunk])
            for entry in page:
                progress = _with(progress, entry)
            await target.update(msgspec.structs.replace(target.record, entries=progress))
            on_done(progress)
    return progress


async def verify_entries(
    source: Store, target: Store, *, closed_at: int, settings: MigrationSettings, on_done: OnDone
) -> CopyProgress:
    """Compare every entry of both. `closed_at`: the source's version from which on nobody was to write there.

    `SourceChangedError`: somebody has; `CorruptError`: the target has something else.
    """
    progress = CopyProgress()
    async with aclosing(_each(source, settings)) as ours, aclosing(_each(target, settings)) as theirs:
        while True:
            mine, other = await anext(ours, None), await anext(theirs, None)
            if mine is None and other is None:
                on_done(progress)
                return progress
            if mine is None or other is None or (mine.key, mine.value) != (other.key, other.value):
                raise _difference(mine, other, closed_at)
            progress = _with(progress, mine)
            if progress.count % settings.page == 0:
                on_done(progress)


class SourceChangedError(UsageError):
    """Somebody wrote to the source after it was closed."""


def _difference(mine: Entry | None, other: Entry | None, closed_at: int) -> SourceChangedError | CorruptError:
    first = min(each.key for each in (mine, other) if each is not None)
    written = mine is not None and mine.key == first and mine.version > closed_at
    removed = mine is None or mine.key != first
    if written or removed:
        return SourceChangedError(
            f"the source was written to during the migration (key {first}): stop every server, worker and client that uses it, "
            "then run this again"
        )
    found = "it is missing at the target" if other is None or other.key != first else "the target has another value"
    return CorruptError(f"the copy of entry {first}", found)


async def _each(store: Store, settings: MigrationSettings) -> AsyncGenerator[Entry, None]:
    async with aclosing(entries_of(store, page=settings.page)) as pages:
        async for page in pages:
            for entry in page:
                if entry.session is None:
                    yield entry


def _with(progress: CopyProgress, entry: Entry) -> CopyProgress:
    size = len(entry.key) + len(entry.value)
    return chained(progress, entry.key, size, hashlib.sha256(entry.value).hexdigest())


def _chunks(page: Sequence[Entry]) -> Iterator[list[Entry]]:
    """The page in pieces that fit into a commit."""
    chunk: list[Entry] = []
    size = 0
    for entry in page:
        more = len(entry.key.encode()) + len(entry.value)
        if chunk and (len(chunk) >= _OPS_MAX or size + more > _BYTES_MAX):
            yield chunk
            chunk, size = [], 0
        chunk.append(entry)
        size += more
    if chunk:
        yield chunk
