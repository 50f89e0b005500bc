"""What keeps a log bounded: retention, folding of old segment keys, compaction, and the sweeping of what nobody names.

    retention.py      by time and bytes; delete_records       indexing.py     ≤ 64 segment keys per partition
    compaction.py     by key; survivors.py decides             sweeping.py     orphans; purging.py: deleted topics
    trash.py          what was unlinked, until it is deleted   loop.py         runs all of it
    begun.py          where retention and compaction stop

The one rule (SAFETY 13): first unlink, in a fenced commit; then wait; then delete. Nothing here appends or publishes.
"""

from holdfast.log.maintenance.compaction import CompactionResult, compact
from holdfast.log.maintenance.compaction_filter import check_keys
from holdfast.log.maintenance.deleted_topics import DeletedTopic, purge_deleted
from holdfast.log.maintenance.index_rollup import roll_up_segment_keys
from holdfast.log.maintenance.loop import MaintainedAgent, run_maintenance
from holdfast.log.maintenance.orphan_sweeper import SWEEPER, SweepResult, expire_deletion_marks, sweep_orphans
from holdfast.log.maintenance.pending_ranges import PendingRanges
from holdfast.log.maintenance.retention import RetentionDecision, apply_retention, decide_retention, delete_records
from holdfast.log.maintenance.settings import CleanupPolicy, MaintenanceContext, MaintenanceSettings
from holdfast.log.maintenance.trash import CollectionResult, collect_trash

__all__ = [
    "SWEEPER",
    "CleanupPolicy",
    "CollectionResult",
    "CompactionResult",
    "DeletedTopic",
    "MaintainedAgent",
    "MaintenanceContext",
    "MaintenanceSettings",
    "PendingRanges",
    "RetentionDecision",
    "SweepResult",
    "apply_retention",
    "check_keys",
    "collect_trash",
    "compact",
    "decide_retention",
    "delete_records",
    "expire_deletion_marks",
    "purge_deleted",
    "roll_up_segment_keys",
    "run_maintenance",
    "sweep_orphans",
]
