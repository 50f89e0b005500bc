"""What consumer groups count."""

from collections.abc import Iterable
from typing import Final

from holdfast.gateways.http.metrics.exposition import Family, Source, counted, gauge
from holdfast.groups.service import GroupService

_GROUPS: Final = {
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


def group_metrics(groups: GroupService) -> Source:
    """The numbers of the groups coordinated here."""

    async def families() -> Iterable[Family]:
        leading = groups.leading
        led = len(leading.shards()) if leading is not None else 0
        return (
            *counted("holdfast_groups", groups.counters, _GROUPS),
            gauge("holdfast_groups_shards_led", "Shards of groups coordinated here.", led),
        )

    return families
