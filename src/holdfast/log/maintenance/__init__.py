"""What keeps a log bounded: retention, merging, roll-up of old segment keys, compaction, and deletion of unreferenced objects.

    retention.py        by time and bytes; delete_records       index_rollup.py     ≤ 64 segment keys per partition
    compaction.py       by key; compaction_filter.py decides    orphan_sweeper.py   orphans; deleted_topics.py
    segment_merge.py    small neighbours become one segment     segment_rewrite.py  what both use to write anew
    trash.py            what was unlinked, until it is deleted  loop.py             runs all of it
    pending_ranges.py   where retention and compaction stop     departed_agents.py  what agents left in the store

The one rule (docs/safety.md, rule 13): first unlink, in a fenced commit; then wait; then delete. Nothing here appends or publishes.
"""

from holdfast.log.maintenance.compaction import CompactionResult, compact
from holdfast.log.maintenance.deleted_topics import forget_leases, purge_deleted
from holdfast.log.maintenance.index_rollup import roll_up_segment_keys
from holdfast.log.maintenance.loop import MaintainedAgent, run_maintenance
from holdfast.log.maintenance.orphan_sweeper import SWEEPER, SweepResult, expire_deletion_marks, sweep_orphans
from holdfast.log.maintenance.pending_ranges import PendingRanges
from holdfast.log.maintenance.retention import RetentionDecision, apply_retention, decide_retention, delete_records
from holdfast.log.maintenance.segment_merge import merge_segments
from holdfast.log.maintenance.settings import MaintenanceContext, MaintenanceSettings
from holdfast.log.maintenance.trash import CollectionResult, collect_trash

__all__ = [
    "SWEEPER",
    "CollectionResult",
    "CompactionResult",
    "MaintainedAgent",
    "MaintenanceContext",
    "MaintenanceSettings",
    "PendingRanges",
    "RetentionDecision",
    "SweepResult",
    "apply_retention",
    "collect_trash",
    "compact",
    "decide_retention",
    "delete_records",
    "expire_deletion_marks",
    "forget_leases",
    "merge_segments",
    "purge_deleted",
    "roll_up_segment_keys",
    "run_maintenance",
    "sweep_orphans",
]
