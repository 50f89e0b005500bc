"""How Holdfast is installed: the one source of every hint that is printed.

On PyPI the name `holdfast` belongs to an unrelated project. Ours is distributed as `holdfast-engine`; until that is published,
it is installed from a checkout.
"""

from typing import Final

from holdfast.vocabulary.errors import InvalidError

DISTRIBUTION: Final = "holdfast-engine"


def install_hint(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install '.[{extra}]' in a checkout of Holdfast"


class NotInstalledError(InvalidError):
    """`what` needs a module that an extra brings. Install the extra."""

    def __init__(self, what: str, module: str, extra: str) -> None:
        super().__init__(what, module, extra)
        self.module, self.extra = module, extra

    def __str__(self) -> str:
        return f"{self.what} needs {self.module}, which is not installed: {install_hint(self.extra)}"
