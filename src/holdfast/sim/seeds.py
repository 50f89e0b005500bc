"""Kept seeds: a text file of worlds worth replaying, one `variant seed` per line, with the rule that was broken as a comment.

    correct 4711  # acting-alone
    effect-unfenced 9  # no-old-effect

A seed means the same run only as long as the simulator draws its random numbers in the same order: after a change to the world,
kept seeds are different runs.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from holdfast.sim.worlds import LEASES, SimWorld
from holdfast.vocabulary.errors import InvalidError


class SavedSeed(msgspec.Struct, frozen=True):
    """One line of the file."""

    variant: str
    seed: int
    rule: str = ""


def read_seeds(path: Path, world: SimWorld = LEASES) -> list[SavedSeed]:
    """Every kept seed, in the order they were kept; none if the file does not exist."""
    if not path.exists():
        return []
    kept = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        words, _, rule = line.partition("#")
        if not words.strip():
            continue
        match words.split():
            case [name, seed] if seed.isdecimal():
                kept.append(SavedSeed(world.variant(name).name, int(seed), rule.strip()))
            case _:
                raise InvalidError(f"line {number} of {path}", line, "`variant seed  # rule`")
    return kept


def save_seeds(path: Path, found: Iterable[SavedSeed], world: SimWorld = LEASES) -> int:
    """Append those that are new; return how many."""
    known = {(each.variant, each.seed) for each in read_seeds(path, world)}
    new = [each for each in found if (each.variant, each.seed) not in known]
    if new:
        with path.open("a") as file:
            file.writelines(f"{each.variant} {each.seed}  # {each.rule}\n" for each in new)
    return len(new)
