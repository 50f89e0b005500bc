"""Metrics of consumer groups."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from holdfast.gateways.http.metrics.exposition import MetricFamily, MetricSource, counters_of, gauge
from holdfast.gateways.http.metrics.settings import MetricsSettings
from holdfast.groups.lags import GroupLags
from holdfast.groups.service import GroupService

_GROUP_HELP: Final = {
    "joins": "Requests to join a group.",
    "joins_refused": "Requests of group members that a limit refused: its name is in the log.",
    "groups_evicted": "Groups that were not in the store and gave way to new ones: groups.unsaved_kept_ms.",
    "rebalances": "Rebalances started.",
    "members_expired": "Members removed: session timeout.",
    "offset_commits": "Requests to commit offsets.",
    "offsets_committed": "Offsets committed.",
    "store_commits": "Commits to the store; requests share them.",
    "offsets_forgotten": "Offsets removed: expired.",
    "shards_opened": "Group shards opened.",
    "shards_lost": "Group shards lost to another agent.",
}


def group_metrics(groups: GroupService, lags: GroupLags, settings: MetricsSettings) -> MetricSource:
    """Metrics of the groups coordinated by this node."""

    async def families() -> Iterable[MetricFamily]:
        leading = groups.leading
        shards = leading.shards() if leading is not None else ()
        by_state = Counter(str(listing.state) for shard in shards for listing in shard.list())
        return (
            *counters_of("holdfast_groups", groups.counters, _GROUP_HELP),
            gauge("holdfast_groups_shards_led", "Group shards coordinated by this node.", len(shards)),
            MetricFamily(
                "holdfast_groups",
                "gauge",
                "Groups coordinated by this node, by state.",
                [({"state": state}, float(count)) for state, count in sorted(by_state.items())],
            ),
            *_lags(lags, settings),
        )

    return families


def _lags(lags: GroupLags, settings: MetricsSettings) -> Iterator[MetricFamily]:
    found = lags.read()
    sums: dict[str, int] = {}
    for each in found:
        sums[each.group] = sums.get(each.group, 0) + each.lag
    shown = sorted(sums.items(), key=lambda item: (-item[1], item[0]))[: settings.groups_max]
    most_behind = sorted(found, key=lambda each: (-each.lag, each))[: settings.lags_max]
    yield MetricFamily(
        "holdfast_group_lag_sum_records",
        "gauge",
        "Records that a group has not read, of all partitions with a committed offset.",
        [({"group": group}, float(lag)) for group, lag in sorted(shown)],
    )
    yield MetricFamily(
        "holdfast_group_lag_records",
        "gauge",
        "Records that a group has not read of a partition.",
        [
            ({"group": each.group, "topic": each.topic, "partition": str(each.number)}, float(each.lag))
            for each in sorted(most_behind)
        ],
    )
    yield gauge(
        "holdfast_group_lag_unknown_partitions", "Partitions of groups whose end is not known here.", lags.unknown
    )
    yield MetricFamily(
        "holdfast_metrics_left_out",
        "gauge",
        "Topics, partitions and groups without series of their own: metrics.*_max.",
        [
            ({"of": "groups"}, float(len(sums) - len(shown))),
            ({"of": "lags"}, float(len(found) - len(most_behind))),
        ],
    )
