"""What agents that are gone for good left in the store: whose WAL it was, their numeric id, when they were seen last.

    wal-agent/{wal id}    which agent had a WAL last: names who has the last records of a partition that is offline
    node/{id}             its numeric id, in Metadata of such a partition
    seen/{kind}/{id}      its last heartbeat

The one rule: a WAL to which anything refers keeps its agent. A record that names it, clean or not, as its WAL or as a replica, or
a gap that a takeover left in it, is a reference; who comes back with the WAL registers it again, which these commits require not to
have happened. New references cannot come about meanwhile: only who has registered a WAL writes its name, and only to a set whose
members are alive. A numeric id is never given to another agent; one that comes back after all gets a new one.
"""

from collections.abc import Collection, Mapping

import msgspec

from holdfast.contracts.store import Absent, AtVersion, Committed, Delete, Entry, Operation, Requirement
from holdfast.contracts.validation import next_key, prefix_end
from holdfast.kernel.keys import LAST_SEEN, MEMBERS, NODES
from holdfast.kernel.lease import Lease, commit_fenced
from holdfast.kernel.membership import read_seen_at_ms
from holdfast.log.keys import LOGS, WAL_AGENTS, WALS, wal_key
from holdfast.log.maintenance.settings import MaintenanceContext
from holdfast.log.metadata import PartitionRecord
from holdfast.log.wal_owners import read_wal_agent

_PAGE = 500


async def forget_departed(lease: Lease, context: MaintenanceContext) -> int:
    """Remove what departed agents left and nothing refers to; how many keys. Without a departed agent it costs four scans."""
    departed = await _departed(context)
    owned = await _entries(WAL_AGENTS, context)
    open_wals = {entry.key.removeprefix(WALS) for entry in await _entries(WALS, context)}
    candidates = {
        wal: entry
        for wal, entry in ((entry.key.removeprefix(WAL_AGENTS), entry) for entry in owned)
        if wal not in open_wals and read_wal_agent(entry) in departed
    }
    referred = await _referred_wals(context) if candidates else frozenset()
    forgotten, kept = 0, {read_wal_agent(entry) for entry in owned} - {read_wal_agent(e) for e in candidates.values()}
    for wal, entry in candidates.items():
        unregistered = (AtVersion(entry.key, entry.version), Absent(wal_key(wal)))
        if wal not in referred and await _forget(lease, context, unregistered, (Delete(entry.key),)):
            forgotten += 1
        else:
            kept.add(read_wal_agent(entry))
    for member, seen in departed.items():
        if member not in kept:
            forgotten += await _forget_member(lease, context, member, seen)
    return forgotten


async def _departed(context: MaintenanceContext) -> Mapping[str, Collection[Entry]]:
    """Members of any kind that were not seen for long, and their last heartbeats, one of each kind."""
    before_ms = context.clock.now_ms() - context.settings.departed_keep_ms
    live = {entry.key.removeprefix(MEMBERS).partition("/")[2] for entry in await _entries(MEMBERS, context)}
    seen: dict[str, list[Entry]] = {}
    for entry in await _entries(LAST_SEEN, context):
        seen.setdefault(entry.key.removeprefix(LAST_SEEN).partition("/")[2], []).append(entry)
    return {
        member: entries
        for member, entries in seen.items()
        if member not in live and all(read_seen_at_ms(entry) < before_ms for entry in entries)
    }


async def _referred_wals(context: MaintenanceContext) -> frozenset[str]:
    """The WALs that some partition's record names."""
    found: set[str] = set()
    start = LOGS
    while True:
        page = await context.store.scan(start, prefix_end(LOGS), limit=_PAGE)
        for entry in page.entries:
            if entry.key.endswith("/state"):
                record = msgspec.json.decode(entry.value, type=PartitionRecord)
                found.update((record.wal, *record.opened_replicas, *(gap.wal for gap in record.gaps)))
        if not page.more:
            return frozenset(found)
        start = next_key(page.entries[-1].key)


async def _forget_member(lease: Lease, context: MaintenanceContext, member: str, seen: Collection[Entry]) -> int:
    node = await context.store.get(NODES + member)
    entries = (*seen, *(() if node is None else (node,)))
    absent = [Absent(MEMBERS + entry.key.removeprefix(LAST_SEEN)) for entry in seen]
    unchanged = [AtVersion(entry.key, entry.version) for entry in entries]
    done = await _forget(lease, context, (*absent, *unchanged), [Delete(entry.key) for entry in entries])
    return len(entries) if done else 0


async def _forget(
    lease: Lease, context: MaintenanceContext, require: Collection[Requirement], apply: Collection[Operation]
) -> bool:
    """Whether nothing had changed, and it is gone."""
    outcome = await commit_fenced(
        context.store, lease, clock=context.clock, random=context.random, require=tuple(require), apply=tuple(apply)
    )
    return isinstance(outcome, Committed)


async def _entries(prefix: str, context: MaintenanceContext) -> tuple[Entry, ...]:
    return (await context.store.scan(prefix, prefix_end(prefix))).entries
