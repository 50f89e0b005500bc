"""What keeps a log bounded: retention, folding of old segment keys, compaction, and the sweeping of what nobody names.

    retention.py      by time and bytes; delete_records       indexing.py     ≤ 64 segment keys per partition
    compaction.py     by key; survivors.py decides             sweeping.py     orphans; purging.py: deleted topics
    trash.py          what was unlinked, until it is deleted   loop.py         runs all of it
    begun.py          where retention and compaction stop

The one rule (SAFETY 13): first unlink, in a fenced commit; then wait; then delete. Nothing here appends or publishes.
"""

from holdfast.log.upkeep.begun import BegunRanges
from holdfast.log.upkeep.compaction import Compacted, compact
from holdfast.log.upkeep.indexing import fold
from holdfast.log.upkeep.loop import Upkept, run_upkeep
from holdfast.log.upkeep.purging import DeletedTopic, purge_deleted
from holdfast.log.upkeep.retention import Decision, decide, delete_records, retain
from holdfast.log.upkeep.settings import Kit, Policy, UpkeepSettings
from holdfast.log.upkeep.survivors import check_keys
from holdfast.log.upkeep.sweeping import SWEEPER, Swept, forget_dooms, sweep_orphans
from holdfast.log.upkeep.trash import Collected, collect_trash

__all__ = [
    "SWEEPER",
    "BegunRanges",
    "Collected",
    "Compacted",
    "Decision",
    "DeletedTopic",
    "Kit",
    "Policy",
    "Swept",
    "UpkeepSettings",
    "Upkept",
    "check_keys",
    "collect_trash",
    "compact",
    "decide",
    "delete_records",
    "fold",
    "forget_dooms",
    "purge_deleted",
    "retain",
    "run_upkeep",
    "sweep_orphans",
]
