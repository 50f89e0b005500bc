"""Limits of the catalog of pipelines."""

from dataclasses import dataclass

from holdfast.vocabulary.settings import check_at_least, check_between


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSettings:
    """Values an operator may tune."""

    pipelines_max: int = 1_000
    replicas_max: int = 64
    recipes_kept: int = 20
    """Old recipes that stay although no range that was begun names them."""
    generations_max: int = 100
    """Generations of one pipeline that are remembered; the oldest retired ones go first."""
    backfills_max: int = 8
    """Backfills of one pipeline at a time."""

    def __post_init__(self) -> None:
        check_between("pipelines_max", self.pipelines_max, 1, 100_000)
        check_between("replicas_max", self.replicas_max, 1, 1_000)
        check_at_least("recipes_kept", self.recipes_kept, 1)
        check_between("generations_max", self.generations_max, 4, 1_000)
        check_between("backfills_max", self.backfills_max, 1, self.generations_max - 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """Limits of what one process does for those who ask about pipelines."""

    sample_records_max: int = 1_000
    source_timeout_ms: int = 10_000
    clickhouse_timeout_ms: int = 20_000
    delete_timeout_ms: int = 600_000
    """How long the deletion of what a rewind replaces may take at a time."""
    dlq_page_max: int = 1_000
    replay_rows_max: int = 100_000
    """Letters of one request to replay; the rest waits for the next."""
    threads_max: int = 8
    upkeep_interval_ms: int = 5_000
    dlq_interval_ms: int = 600_000
    """How often DLQs are cut to the length that is kept."""

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
