"""How Holdfast is installed: the one place that says it, for every hint that is printed.

On PyPI the name `holdfast` belongs to an unrelated project. Ours is distributed as `holdfast-engine`; until that is published,
it is installed from a checkout.
"""

from typing import Final

DISTRIBUTION: Final = "holdfast-engine"


def install_hint(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install '.[{extra}]' in a checkout of Holdfast"
