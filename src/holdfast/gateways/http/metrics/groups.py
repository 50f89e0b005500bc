"""Metrics of consumer groups."""

from collections.abc import Iterable
from typing import Final

from holdfast.gateways.http.metrics.exposition import MetricFamily, MetricSource, counters_of, gauge
from holdfast.groups.service import GroupService

_GROUP_HELP: Final = {
    "joins": "Requests to join a group.",
    "rebalances": "Rebalances started.",
    "members_expired": "Members removed: session timeout.",
    "offset_commits": "Requests to commit offsets.",
    "offsets_committed": "Offsets committed.",
    "store_commits": "Commits to the store; requests share them.",
    "offsets_forgotten": "Offsets removed: expired.",
    "shards_opened": "Group shards opened.",
    "shards_lost": "Group shards lost to another agent.",
}


def group_metrics(groups: GroupService) -> MetricSource:
    """Metrics of the groups coordinated by this node."""

    async def families() -> Iterable[MetricFamily]:
        leading = groups.leading
        led = len(leading.shards()) if leading is not None else 0
        return (
            *counters_of("holdfast_groups", groups.counters, _GROUP_HELP),
            gauge("holdfast_groups_shards_led", "Group shards coordinated by this node.", led),
        )

    return families
