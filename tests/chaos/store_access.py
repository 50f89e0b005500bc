"""How an agent reaches the store of a chaos run."""

from typing import NamedTuple

from tests.chaos.links import Link


class StoreAccess(NamedTuple):
    """An agent's URL, what it goes through (nothing for a file), and what else its command line needs."""

    url: str
    links: list[Link]
    options: tuple[str, ...] = ()
