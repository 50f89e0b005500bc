"""Settings of metrics: how many series a page may have, and how often lag is looked up."""

from dataclasses import dataclass

from holdfast.vocabulary.settings import check_at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """`partitions_max`: partitions led here that get series of their own, those led longest; 0: totals alone. `topics_max`: topics
    likewise. `lags_max`: partitions of groups whose lag is shown, those most behind first; 0: sums by group alone. `groups_max`:
    groups whose sum is shown. What is left out is counted. `lag_interval_ms`: how often the ends of partitions that other agents
    lead are asked for.
    """

    partitions_max: int = 500
    topics_max: int = 500
    lags_max: int = 1_000
    groups_max: int = 500
    lag_interval_ms: int = 10_000

    def __post_init__(self) -> None:
        for name in ("partitions_max", "topics_max", "lags_max", "groups_max"):
            check_at_least(name, getattr(self, name), 0)
        check_at_least("lag_interval_ms", self.lag_interval_ms, 100)
