"""Where the registry keeps what, below `registry/{namespace}/`.

    meta               {"partitions", "initial"?}                     how many, and how many before some were added (`growth`)
    partitions/{id}    {"owner", "checkpoint", "epoch", "intent"?}    never deleted: epochs never repeat
    beats/{id}         {"session", "epoch", "ttl_ms"}                 under the claim's session: gone when it expires
    consumers/{id}     {"session", "ttl_ms", "registered_at_ms"}      under the consumer's session
    starts/{id}        {"offset"}                                     where a partition without a checkpoint begins
    source             {"topic", "topic_id"}                          the topic whose offsets all checkpoints are
    stream             {"retain", …} or {"zlib": these}               of a query that owns the namespace (`streams`)

The registry is the only owner of these keys: other packages ask `holdfast.registry.queries`.
"""

from typing import Final

from holdfast.vocabulary.errors import InvalidError

NAME_CHARS_MAX: Final = 200
REGISTRIES: Final = "registry/"
PARTITIONS: Final = "partitions"
HEARTBEATS: Final = "beats"
CONSUMERS: Final = "consumers"
STREAM: Final = "stream"


def namespace_prefix(namespace: str) -> str:
    """The prefix of everything in a namespace."""
    return f"{REGISTRIES}{namespace}/"


def meta_key(namespace: str) -> str:
    """The number of partitions: decided by the first `initialize`, raised by `growth` alone."""
    return f"{namespace_prefix(namespace)}meta"


def partitions_prefix(namespace: str) -> str:
    """The prefix of all partition records."""
    return f"{namespace_prefix(namespace)}{PARTITIONS}/"


def partition_key(namespace: str, number: int) -> str:
    """The record of one partition; never deleted, so that its epoch never repeats."""
    return f"{partitions_prefix(namespace)}{number:05d}"


def heartbeat_key(namespace: str, number: int) -> str:
    """The heartbeat of a partition's present owner, under a session of its own."""
    return f"{namespace_prefix(namespace)}{HEARTBEATS}/{number:05d}"


def consumers_prefix(namespace: str) -> str:
    """The prefix of all registrations."""
    return f"{namespace_prefix(namespace)}{CONSUMERS}/"


def consumer_key(namespace: str, name: str) -> str:
    """A consumer's registration, under its process's session."""
    return f"{consumers_prefix(namespace)}{name}"


def start_key(namespace: str, number: int) -> str:
    """Where a partition is to be read from while it has no checkpoint, once that was decided."""
    return f"{starts_prefix(namespace)}{number:05d}"


def source_key(namespace: str) -> str:
    """The topic that the checkpoints of a namespace are offsets of, once that was decided."""
    return f"{namespace_prefix(namespace)}source"


def stream_key(namespace: str) -> str:
    """The record of a query that owns the whole namespace."""
    return f"{namespace_prefix(namespace)}{STREAM}"


def starts_prefix(namespace: str) -> str:
    """The prefix of all decided starts."""
    return f"{namespace_prefix(namespace)}starts/"


def namespace_of(key: str) -> str:
    """The namespace a key is in."""
    return key.removeprefix(REGISTRIES).partition("/")[0]


def record_kind(key: str) -> str:
    """The kind of record a key holds: `PARTITIONS`, `HEARTBEATS`, `CONSUMERS`; something else for the rest."""
    return key.removeprefix(REGISTRIES).partition("/")[2].rpartition("/")[0]


def is_stream(key: str) -> bool:
    """Whether a key is that of a query's record."""
    return key.removeprefix(REGISTRIES).partition("/")[2] == STREAM


def check_name(what: str, name: str) -> None:
    """Refuse a namespace or consumer id that would not be one plain step of a key."""
    if not 0 < len(name) <= NAME_CHARS_MAX or "/" in name or not name.isprintable():
        raise InvalidError(what, name[:NAME_CHARS_MAX], f"1 to {NAME_CHARS_MAX} printable characters, none of them '/'")
