"""The inventory of a source: what there is to move, and why it may not be moved now. Reads alone, page by page.

Not moved are the keys below `cluster/` (the target gets its own), what fences the source's leases, and marks of owners.
Everything else below the cluster's id is, and what release 0.1.0 wrote without that id. WALs stay on the agents' disks: the
target's servers are started with the same data directories, whose records may not be published yet.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from holdfast.app.migration.model import MigrationEnd, UnpublishedTail
from holdfast.contracts.objects import ObjectInfo, Objects
from holdfast.contracts.store import Entry, Store
from holdfast.contracts.validation import next_key, prefix_end
from holdfast.kernel.cluster_move import CLUSTER_KEYS
from holdfast.kernel.keys import HOLDERS, MEMBERS
from holdfast.kernel.lease_fencing import is_fence
from holdfast.kernel.membership import read_member
from holdfast.log.keys import LOGS, WALS, topic_id_key
from holdfast.log.maintenance.index_objects import INDEXES
from holdfast.log.metadata import PartitionRecord
from holdfast.log.segments.keys import SEGMENTS, SHARED
from holdfast.log.wal_owners import last_wal_agent
from holdfast.pipeline.catalog.worker_status import WORKERS
from holdfast.vocabulary.errors import UsageError

FIRST_KEY: Final = " "  # the least of what is printable
_UNPUBLISHED_SHOWN: Final = 1_000
_LIVE_SHOWN: Final = 5


@dataclass(slots=True)
class Inventory:
    """What a source holds. `live`: whoever has a session there."""

    entries: int = 0
    entry_bytes: int = 0
    objects: int = 0
    object_bytes: int = 0
    live: list[str] = field(default_factory=list)
    unpublished: list[UnpublishedTail] = field(default_factory=list)


async def entries_of(store: Store, *, after: str = "", page: int) -> AsyncGenerator[list[Entry], None]:
    """Every entry that is moved, a page at a time, in key order."""
    start, end = next_key(after) if after else FIRST_KEY, prefix_end("")
    while True:
        found = await store.scan(start, end, limit=page)
        yield [entry for entry in found.entries if not entry.key.startswith(CLUSTER_KEYS) and not is_fence(entry)]
        if not found.more or not found.entries:
            return
        start = next_key(found.entries[-1].key)


async def objects_of(objects: Objects, cluster: str, *, after: str = "") -> AsyncGenerator[ObjectInfo, None]:
    """Every object that is moved, in key order."""
    for root in sorted((f"{cluster}/", INDEXES, SEGMENTS, SHARED)):
        if prefix_end(root) <= after:
            continue
        async for info in objects.list(root, after=after):
            yield info


async def take_inventory(source: MigrationEnd, cluster: str, *, page: int, with_objects: bool) -> Inventory:
    """Count everything, and find who is alive and what is unpublished."""
    found = await look_at_entries(source.store, page=page)
    if not with_objects:
        return found
    async for info in objects_of(source.objects, cluster):
        found.objects += 1
        found.object_bytes += info.size_bytes
    return found


async def look_at_entries(store: Store, *, page: int) -> Inventory:
    """The same, of the store alone."""
    found = Inventory()
    async for entries in entries_of(store, page=page):
        for entry in entries:
            if entry.session is not None:
                if who := _live(entry):
                    found.live.append(who)
                continue
            found.entries += 1
            found.entry_bytes += len(entry.key) + len(entry.value)
            if entry.key.startswith(LOGS) and entry.key.endswith("/state"):
                await _look_at_partition(store, entry, found)
    return found


def check_stopped(found: Inventory) -> None:
    """`UsageError` if a session lives: its holder would go on writing."""
    if not found.live:
        return
    names = sorted(set(found.live), key=lambda each: (not each.startswith(("agent", "worker")), each))
    more = f" and {len(names) - _LIVE_SHOWN} more" if len(names) > _LIVE_SHOWN else ""
    raise UsageError(
        f"the source is in use by {', '.join(names[:_LIVE_SHOWN])}{more}: stop every server, worker and client of it, then run "
        "this again. The session of a process that crashed ends by itself, after 30 s unless set otherwise"
    )


def _live(entry: Entry) -> str:
    if entry.key.startswith(MEMBERS):
        member = read_member(entry)
        kind = entry.key.removeprefix(MEMBERS).partition("/")[0]
        return f"{kind} {member.id}" + (f" ({member.address})" if member.address else "")
    if entry.key.startswith(WORKERS):
        return f"worker {entry.key.removeprefix(WORKERS)}"
    if entry.key.startswith(WALS):
        return ""  # an agent's, which is named as a member, or does not get so far
    if entry.key.startswith(HOLDERS):
        return f"the holder of lease {entry.key.removeprefix(HOLDERS)}"
    return f"the session of {entry.key}"


async def _look_at_partition(store: Store, entry: Entry, found: Inventory) -> None:
    record = msgspec.json.decode(entry.value, type=PartitionRecord)
    if record.clean or len(found.unpublished) >= _UNPUBLISHED_SHOWN:
        return
    topic_id, number = entry.key.removeprefix(LOGS).split("/")[:2]
    named = await store.get(topic_id_key(topic_id))
    found.unpublished.append(
        UnpublishedTail(
            topic=topic_id if named is None else msgspec.json.decode(named.value)["name"],
            partition=int(number),
            agent=await last_wal_agent(store, record.wal) or f"with WAL {record.wal}",
            offsets=record.reserved - record.published,
        )
    )
