"""Steps shared by the suite."""

from collections.abc import Iterable

from holdfast.contracts.objects import Missing, Objects, Stored

# Every kind of character a key may hold, each on its own so that a failure names it.
ODD_KEYS = (
    "odd/ü",
    "odd/e\u0301",  # a letter and its accent apart
    "odd/😀",
    "odd/a b",
    "odd/100%",
    "odd/%41",
    "odd/a+b",
    "odd/a#b?c=d&e",
    "odd/~*'\"<>|^`[]{}",
    "odd/:@!$(),;",
    "odd/-._/x.seg",
    "odd/" + "long" * 50,
    "/".join(["deep" * 10] * 20),
)

REFUSED_KEYS = (
    "",
    "/lead",
    "trail/",
    "two//slashes",
    ".",
    "a/../b",
    "a/.hidden",
    "back\\slash",
    "tab\t",
    "line\n",
    "nul\0",
    "lone\ud800surrogate",
    "x" * 201,
    "/".join(["x" * 150] * 7),
)


async def put(objects: Objects, key: str, *body: bytes) -> None:
    """Put a key that must be new."""
    parts = body or (key.encode(),)
    outcome = await objects.put(key, parts)
    assert outcome == Stored(key, sum(map(len, parts)))


async def read(objects: Objects, key: str) -> bytes:
    """All of an object that must be there."""
    found = await objects.get(key)
    assert not isinstance(found, Missing), f"{key} is missing"
    return bytes(found)


async def keys_below(objects: Objects, prefix: str, *, after: str = "") -> list[str]:
    """The keys of a listing, in its order."""
    return [info.key async for info in objects.list(prefix, after=after)]


def chunks(keys: Iterable[str], size: int) -> Iterable[list[str]]:
    """The keys, `size` at a time."""
    every = list(keys)
    return (every[at : at + size] for at in range(0, len(every), size))
