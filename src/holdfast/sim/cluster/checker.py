"""The checker of clusters: what must be true of every history of agents, producers, readers and groups.

Pure: events in, violations out. The rules of records are in `record_rules`, those of what the store and the bucket hold in
`store_rules`; the store's own promises and those of leases are checked by `holdfast.sim.checker`, as in the world of leases.
"""

from collections.abc import Iterable
from typing import Final

from holdfast.sim import checker
from holdfast.sim.checker import Violation
from holdfast.sim.cluster.history import ClusterEvent
from holdfast.sim.cluster.record_rules import RECORD_RULES, RecordRules
from holdfast.sim.cluster.store_rules import STORE_RULES, StoreRules

CLUSTER_RULES: Final = {**checker.RULES, **RECORD_RULES, **STORE_RULES}


def check_cluster(events: Iterable[ClusterEvent]) -> list[Violation]:
    """Every violation, in the order in which they happened or came to light."""
    leases, records, stored = checker.Checker(), RecordRules(), StoreRules()
    for index, event in enumerate(events):
        leases.take(event)  # type: ignore[arg-type]  # it passes over those it does not know
        records.take(index, event)
        stored.take(index, event)
    records.finish()
    found = [*leases.violations, *records.violations, *stored.violations]
    return sorted(found, key=lambda violation: violation.index)
