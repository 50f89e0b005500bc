"""Limits of the pipeline service."""

from dataclasses import dataclass

from holdfast.vocabulary.settings import check_at_least, check_between


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """Values an operator may tune: limits and timeouts of one process."""

    sample_records_max: int = 1_000
    source_timeout_ms: int = 10_000
    clickhouse_timeout_ms: int = 20_000
    delete_timeout_ms: int = 600_000
    """Limit of one deletion of rows that a rewind replaces."""
    dlq_page_max: int = 1_000
    replay_rows_max: int = 100_000
    """Dead letters replayed by one request; the rest is left to the next."""
    threads_max: int = 8
    upkeep_interval_ms: int = 5_000
    dlq_interval_ms: int = 600_000
    """How often DLQs are trimmed to `dlqRowsKept`."""

    def __post_init__(self) -> None:
        check_between("sample_records_max", self.sample_records_max, 1, 100_000)
        check_between("source_timeout_ms", self.source_timeout_ms, 100, 600_000)
        check_between("clickhouse_timeout_ms", self.clickhouse_timeout_ms, 100, 600_000)
        check_between("delete_timeout_ms", self.delete_timeout_ms, 1_000, 86_400_000)
        check_between("dlq_page_max", self.dlq_page_max, 1, 100_000)
        check_at_least("replay_rows_max", self.replay_rows_max, 1)
        check_between("threads_max", self.threads_max, 1, 256)
        check_at_least("upkeep_interval_ms", self.upkeep_interval_ms, 100)
        check_at_least("dlq_interval_ms", self.dlq_interval_ms, 1_000)
