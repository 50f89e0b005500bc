"""Limits of the catalog of pipelines."""

from dataclasses import dataclass

from holdfast.vocabulary.settings import check_at_least, check_between


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSettings:
    """Values an operator may tune."""

    pipelines_max: int = 1_000
    replicas_max: int = 64
    recipes_kept: int = 20
    """Revisions kept besides those that a range under way still needs."""
    generations_max: int = 100
    """Generations of one pipeline that are kept; the oldest retired ones are dropped first."""
    backfills_max: int = 8
    """Backfills of one pipeline at a time."""

    def __post_init__(self) -> None:
        check_between("pipelines_max", self.pipelines_max, 1, 100_000)
        check_between("replicas_max", self.replicas_max, 1, 1_000)
        check_at_least("recipes_kept", self.recipes_kept, 1)
        check_between("generations_max", self.generations_max, 4, 1_000)
        check_between("backfills_max", self.backfills_max, 1, self.generations_max - 2)
