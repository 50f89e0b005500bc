"""What a migration is given, shows and reports. Data only."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from holdfast.app.advertised_urls import advertised_url
from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Store
from holdfast.kernel.cluster_move import Location
from holdfast.objects.urls import open_objects, parse_objects_url
from holdfast.stores.urls import open_store, parse_store_url
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import MIB, check_at_least, check_between

PARALLEL_MAX: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationSettings:
    """How much is done at a time: objects in flight, and their bytes in memory; an object beyond that is copied alone."""

    parallel: int = 8
    memory_bytes_max: int = 256 * MIB
    page: int = 200
    record_every_ms: int = 1_000
    record_every: int = 64

    def __post_init__(self) -> None:
        check_between("parallel", self.parallel, 1, PARALLEL_MAX)
        check_at_least("memory_bytes_max", self.memory_bytes_max, 1)
        check_between("page", self.page, 1, 1_000)
        check_at_least("record_every_ms", self.record_every_ms, 0)
        check_at_least("record_every", self.record_every, 1)


@dataclass(frozen=True, slots=True)
class MigrationProgress:
    """How far one stage is. `total` counts what was found at the beginning."""

    stage: str
    done: int
    total: int
    bytes_done: int
    bytes_total: int


OnProgress = Callable[[MigrationProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpublishedTail:
    """A partition whose last records may be in the WAL of an agent alone: it must be started with that WAL."""

    topic: str
    partition: int
    agent: str
    offsets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationReport:
    """What was moved, or, in a dry run, would be. The digests are hash chains over all keys, sizes and SHA-256s, in key order."""

    cluster: str
    origin: Location
    to: Location
    entries: int
    entry_bytes: int
    entries_digest: str = ""
    objects: int
    object_bytes: int
    objects_digest: str = ""
    copied_objects: int = 0
    copied_entries: int = 0
    unpublished: tuple[UnpublishedTail, ...] = ()
    finished: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationEnd:
    """One end of the migration, open."""

    store: Store
    objects: Objects
    location: Location


@asynccontextmanager
async def opened_end(
    store: str, objects: str, *, create: bool, clock: Clock, random: Random, keep: MigrationEnd | None = None
) -> AsyncIterator[MigrationEnd]:
    """Store and objects of one end. `keep`: the end whose objects these are. `InvalidError`: one is the memory of a process."""
    parsed = parse_store_url(store), parse_objects_url(objects)
    for each in parsed:
        if each.parts.scheme == "memory":
            raise InvalidError("URL", each.shown, "one that outlives its process")
    async with AsyncExitStack() as stack:
        yield MigrationEnd(
            store=await stack.enter_async_context(open_store(store, clock=clock, random=random, create=create)),
            objects=(
                await stack.enter_async_context(open_objects(objects, clock=clock, random=random, create=create))
                if keep is None
                else keep.objects
            ),
            location=Location(
                store=advertised_url(store) or parsed[0].shown, objects=advertised_url(objects) or parsed[1].shown
            ),
        )
