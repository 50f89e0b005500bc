"""Where the registry keeps what, below `registry/{namespace}/`.

`meta` says how many partitions there are; `partitions/{id}` is who owns one, how far it got, and its epoch; `beats/{id}`
lives while its owner's heartbeat does; `consumers/{id}` lives while its process does.
"""

from typing import Final

from holdfast.vocabulary.errors import InvalidError

PARTITIONS_MAX: Final = 100_000  # ids are five digits, so that key order is number order
NAME_CHARS_MAX: Final = 200
REGISTRIES: Final = "registry/"


def root(namespace: str) -> str:
    """The prefix of everything in a namespace."""
    return f"{REGISTRIES}{namespace}/"


def meta(namespace: str) -> str:
    """The number of partitions, fixed by the first `initialize`."""
    return f"{root(namespace)}meta"


def partitions(namespace: str) -> str:
    """The prefix of all partition records."""
    return f"{root(namespace)}partitions/"


def partition(namespace: str, number: int) -> str:
    """The record of one partition; never deleted, so that its epoch never repeats."""
    return f"{partitions(namespace)}{number:05d}"


def heartbeat(namespace: str, number: int) -> str:
    """The heartbeat of a partition's present owner, under a session of its own."""
    return f"{root(namespace)}beats/{number:05d}"


def consumers(namespace: str) -> str:
    """The prefix of all registrations."""
    return f"{root(namespace)}consumers/"


def consumer(namespace: str, name: str) -> str:
    """A consumer's registration, under its process's session."""
    return f"{consumers(namespace)}{name}"


def check_name(what: str, name: str) -> None:
    """Refuse a namespace or consumer id that would not be one plain step of a key."""
    if not 0 < len(name) <= NAME_CHARS_MAX or "/" in name or not name.isprintable():
        raise InvalidError(what, name[:NAME_CHARS_MAX], f"1 to {NAME_CHARS_MAX} printable characters without '/'")
