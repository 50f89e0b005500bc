"""Karapace, a schema registry that keeps its schemas in a topic. It cannot be had by a package manager."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from conformance.model import Case, Workplace
from holdfast.vocabulary.errors import UnavailableError


class Karapace:
    """Listed with the reason, so that its absence is seen."""

    name = "karapace"
    title = "Karapace"
    about = "A schema registry that keeps its schemas in a topic."
    server_options: Sequence[str] = ()
    lists_cases = True

    def prepare(self, cache: Path) -> str:
        raise UnavailableError(
            "karapace", "it is published as a container image and a repository, in no package registry"
        )

    def run(self, cache: Path, at: Workplace) -> Iterator[Case]:
        raise UnavailableError("karapace", "it is not prepared")
