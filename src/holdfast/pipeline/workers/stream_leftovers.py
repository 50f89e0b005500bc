"""Files of streaming queries that nobody runs any more: pieces and checkpoints of retired generations and of deleted pipelines.

The one rule: files are listed before the catalog is read, and removed only while the objects are this cluster's. A generation that
is retired, or whose pipeline is gone, does not come back. What a running query leaves behind is its owner's to remove.
"""

import asyncio
import logging
import shutil
from collections import defaultdict
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Store
from holdfast.kernel.objects_owner import verify_objects
from holdfast.objects.urls import open_objects
from holdfast.pipeline.catalog.store import PipelineStore
from holdfast.pipeline.model.stream_files import STREAMS_FOLDER, GenerationFolder, folder_of, left_behind
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ClosedError, HoldfastError
from holdfast.vocabulary.random import Random

_log: Final = logging.getLogger(__name__)
_OBJECT_SCHEMES: Final = {"s3a": "s3", "s3": "s3", "gs": "gs", "abfs": "az", "abfss": "az", "az": "az"}


class StreamPlace(Protocol):
    """Somewhere that files of streams lie."""

    async def folders(self) -> set[GenerationFolder]: ...
    async def remove(self, folder: GenerationFolder) -> None: ...


class LocalStreams:
    """In a folder of this machine. Checksums that Hadoop keeps beside its files go with them."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def folders(self) -> set[GenerationFolder]:
        """Those that are there."""
        return await asyncio.to_thread(self._folders)

    def _folders(self) -> set[GenerationFolder]:
        names = (f"{each.parent.name}/{each.name}" for each in self._root.glob("*/*") if each.is_dir())
        return {found for name in names if (found := folder_of(name)) is not None}

    async def remove(self, folder: GenerationFolder) -> None:
        """Remove a folder, and that of its pipeline after the last one."""
        await asyncio.to_thread(self._remove, self._root / folder.name)

    def _remove(self, path: Path) -> None:
        shutil.rmtree(path, ignore_errors=True)  # two workers may do so at once; what stays is tried again
        if path.parent.is_dir() and not any(path.parent.iterdir()):
            shutil.rmtree(path.parent, ignore_errors=True)


class ObjectStreams:
    """In an object store."""

    def __init__(self, objects: Objects, prefix: str) -> None:
        self._objects, self._prefix = objects, prefix
        self._keys: dict[GenerationFolder, list[str]] = defaultdict(list)

    async def folders(self) -> set[GenerationFolder]:
        """Those that are there."""
        self._keys.clear()
        async for info in self._objects.list(self._prefix):
            if (found := folder_of(info.key.removeprefix(self._prefix))) is not None:
                self._keys[found].append(info.key)
        return set(self._keys)

    async def remove(self, folder: GenerationFolder) -> None:
        """Remove what was listed."""
        await self._objects.delete(self._keys.pop(folder, []))


class StreamLeftovers:
    """Of all queries of a cluster, looked for every `interval_ms` or so, by every worker."""

    def __init__(
        self,
        store: Store,
        *,
        objects: str,
        checkpoints: str,
        interval_ms: int,
        clock: Clock,
        random: Random,
    ) -> None:
        """`objects`: the URL of the cluster's; `checkpoints`: as configured, empty if they are there as well."""
        self._store, self._catalog = store, PipelineStore(store, clock=clock, random=random)
        self._objects, self._checkpoints = objects, checkpoints
        self._interval_ms, self._clock, self._random = interval_ms, clock, random

    async def run(self) -> None:
        """For ever."""
        logged = ""
        while True:
            await self._clock.sleep_ms(self._random.jitter(self._interval_ms))
            try:
                await self.remove()
                logged = ""
            except ClosedError:
                raise
            except (HoldfastError, OSError) as error:
                if str(error) != logged:
                    logged = str(error)
                    _log.warning("files of retired streaming queries cannot be removed, retrying: %s", error)

    async def remove(self) -> list[GenerationFolder]:
        """Remove what is left behind; what that was."""
        async with AsyncExitStack() as stack:
            opened = await stack.enter_async_context(
                open_objects(self._objects, clock=self._clock, random=self._random)
            )
            owner = await verify_objects(self._store, opened, clock=self._clock, random=self._random)
            if not owner.cluster:
                return []
            removed: list[GenerationFolder] = []
            for url in filter(None, (self._objects, self._checkpoints)):
                place = await self._place(stack, url, f"{owner.prefix}{STREAMS_FOLDER}/")
                if place is None:
                    continue
                folders = await place.folders()
                for folder in left_behind(sorted(folders), await self._catalog.list() if folders else ()):
                    await owner.check()
                    await place.remove(folder)
                    _log.info("files of streaming query %s, generation %d, removed", *folder)
                    removed.append(folder)
            return removed

    async def _place(self, stack: AsyncExitStack, url: str, prefix: str) -> StreamPlace | None:
        """None: a file system that only Spark can open; there, running queries remove what they find."""
        parts = urlsplit(url)
        if parts.scheme in ("file", ""):
            return LocalStreams(Path(unquote(parts.path)) / prefix)
        scheme = _OBJECT_SCHEMES.get(parts.scheme)
        objects = urlsplit(self._objects)
        if scheme is None or scheme != objects.scheme:
            return None
        found = objects._replace(netloc=parts.netloc, path=parts.path).geturl()  # with the options of the cluster's own
        opened = await stack.enter_async_context(open_objects(found, clock=self._clock, random=self._random))
        return ObjectStreams(opened, prefix)
