"""Lag for metrics: from memory where the partition is led here, as of the last look elsewhere, never guessed."""

from collections.abc import Iterator, Mapping
from typing import cast

from holdfast.gateways.http.metrics.exposition import MetricFamily
from holdfast.gateways.http.metrics.groups import group_metrics
from holdfast.gateways.http.metrics.settings import MetricsSettings
from holdfast.groups.lags import GroupLags
from holdfast.groups.model import CommittedOffset
from holdfast.groups.service import GroupService
from holdfast.groups.settings import GroupCounters
from holdfast.kafka.special_offsets import LATEST
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.types import TopicPartition


class Committed:
    """Groups with these offsets: all that lag needs of the service."""

    leading = None
    counters = GroupCounters()

    def __init__(self, **groups: dict[TopicPartition, int]) -> None:
        self._groups = groups

    def committed(self) -> Iterator[tuple[str, Mapping[TopicPartition, CommittedOffset]]]:
        for group, offsets in self._groups.items():
            yield group, {partition: CommittedOffset(offset=offset) for partition, offset in offsets.items()}


HERE, THERE = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Ends:
    def __init__(self) -> None:
        self.here = {HERE: 100}
        self.there = {1: 50}
        self.away = False

    async def elsewhere(self, topic: str, numbers: list[int]) -> Mapping[int, int]:
        assert (topic, numbers) == ("orders", [1])
        if self.away:
            raise UnavailableError("agent bob", "gone")
        return self.there


def lags_of(groups: Committed, ends: Ends) -> GroupLags:
    return GroupLags(cast(GroupService, groups), ends.here.get, ends.elsewhere, clock=FakeClock())


async def test_ends_here_are_read_at_once_and_those_elsewhere_when_looked_up() -> None:
    ends = Ends()
    lags = lags_of(Committed(billing={HERE: 90, THERE: 45}), ends)
    assert (lags.read(), lags.unknown) == ([("billing", "orders", 0, 10)], 1)
    await lags.look()
    assert (lags.read(), lags.unknown) == ([("billing", "orders", 0, 10), ("billing", "orders", 1, 5)], 0)
    ends.here[HERE] = 101
    assert lags.read()[0].lag == 11
    ends.away = True
    await lags.look()
    assert (len(lags.read()), lags.unknown) == (1, 1), "what does not answer is not guessed"


async def test_an_offset_beyond_the_end_is_no_lag_and_a_special_one_is_unknown() -> None:
    lags = lags_of(Committed(a={HERE: 500}, b={HERE: LATEST}), Ends())
    assert (lags.read(), lags.unknown) == ([("a", "orders", 0, 0)], 1)


async def test_series_are_bounded_and_those_most_behind_are_shown() -> None:
    groups = Committed(**{f"g{number}": {HERE: number} for number in range(10)})
    settings = MetricsSettings(lags_max=3, groups_max=2)
    found = await group_metrics(cast(GroupService, groups), lags_of(groups, Ends()), settings)()
    by_name = {each.name: each for each in found}

    def groups_of(family: MetricFamily) -> list[str]:
        return [labels["group"] for labels, _ in family.samples]

    assert groups_of(by_name["holdfast_group_lag_records"]) == ["g0", "g1", "g2"]
    assert groups_of(by_name["holdfast_group_lag_sum_records"]) == ["g0", "g1"]
    assert list(by_name["holdfast_metrics_left_out"].samples) == [({"of": "groups"}, 8), ({"of": "lags"}, 7)]
