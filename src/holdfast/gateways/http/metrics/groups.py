"""What consumer groups count."""

from collections.abc import Iterable
from typing import Final

from holdfast.gateways.http.metrics.exposition import MetricFamily, MetricSource, counters_of, gauge
from holdfast.groups.service import GroupService

_GROUP_HELP: Final = {
    "joins": "Requests to join a group.",
    "rebalances": "Generations begun.",
    "members_expired": "Members that fell silent.",
    "offset_commits": "Requests to commit offsets.",
    "offsets_committed": "Offsets committed.",
    "store_commits": "Commits to the store: many requests share one.",
    "offsets_forgotten": "Offsets removed because they were old.",
    "shards_opened": "Shards of groups taken over.",
    "shards_lost": "Shards of groups lost to another agent.",
}


def group_metrics(groups: GroupService) -> MetricSource:
    """The numbers of the groups coordinated here."""

    async def families() -> Iterable[MetricFamily]:
        leading = groups.leading
        led = len(leading.shards()) if leading is not None else 0
        return (
            *counters_of("holdfast_groups", groups.counters, _GROUP_HELP),
            gauge("holdfast_groups_shards_led", "Shards of groups coordinated here.", led),
        )

    return families
