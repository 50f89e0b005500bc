"""Suites whose cases are our own: what a foreign program does for its users, one function each, named by a sentence.

Steps share the program that they run, so they are in order; one that fails leaves the others to be tried.
"""

from collections.abc import Callable, Iterable, Iterator

from conformance.model import Case, Outcome

Step = Callable[[], object]


def played(steps: Iterable[Step]) -> Iterator[Case]:
    """Each step as a case, by its name."""
    for step in steps:
        name = step.__name__.replace("_", " ").strip()
        try:
            step()
        except Exception as error:
            yield Case(name, Outcome.FAILED, f"{type(error).__name__}: {error}")
        else:
            yield Case(name, Outcome.PASSED)
