"""Validation: what every engine refuses before any I/O, with the same errors."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import msgspec

from holdfast.contracts.store import AtVersion, Operation, Put, Requirement
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import KIB, check_at_least

_json: Final = msgspec.json.Decoder(msgspec.Raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """Bounds that hold on every engine; the defaults are what etcd accepts out of the box."""

    ops_max: int = 100
    bytes_max: int = 512 * KIB
    key_bytes_max: int = 1024
    ttl_ms_min: int = 100

    def __post_init__(self) -> None:
        check_at_least("ops_max", self.ops_max, 1)
        check_at_least("bytes_max", self.bytes_max, KIB)
        check_at_least("key_bytes_max", self.key_bytes_max, 16)
        check_at_least("ttl_ms_min", self.ttl_ms_min, 1)


def check_key(key: str, limits: StoreLimits) -> int:
    """Refuse an invalid key; return its size in bytes."""
    return _key_bytes(key, limits.key_bytes_max)


@lru_cache(maxsize=8_192)  # a holder writes the same few keys over and over
def _key_bytes(key: str, bytes_max: int) -> int:
    size = len(key) if key.isascii() else _utf8_size(key)
    if not 0 < size <= bytes_max:
        raise InvalidError("key", key[:80], f"1 to {bytes_max} bytes")
    if not key.isprintable():
        raise InvalidError("key", key, "printable")
    return size


def _utf8_size(key: str) -> int:
    try:
        return len(key.encode())
    except UnicodeEncodeError:
        raise InvalidError("key", ascii(key), "valid UTF-8 text") from None


def check_value(key: str, value: bytes) -> None:
    """Refuse a value that is not JSON text in `bytes`: a `str` or `bytearray` would be stored by some engines and not by others."""
    if type(value) is not bytes:
        raise InvalidError(f"value of {key}", type(value).__name__, "bytes")
    try:
        _json.decode(value)
        if not value.isascii():
            value.decode()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidError(f"value of {key}", bytes(value[:80]), f"JSON in UTF-8 ({error})") from None


def check_commit(require: Sequence[Requirement], apply: Sequence[Operation], limits: StoreLimits) -> None:
    """Refuse a commit beyond the limits: too many operations, too many bytes, a key written twice."""
    count = len(require) + len(apply)
    if count > limits.ops_max:
        raise InvalidError("operations in a commit", count, f"at most {limits.ops_max}, requirements included")
    size = 0
    for requirement in require:
        size += check_key(requirement.key, limits)
        if type(requirement) is AtVersion and requirement.version < 1:
            raise InvalidError(f"required version of {requirement.key}", requirement.version, "at least 1")
    written = set()
    for operation in apply:
        size += check_key(operation.key, limits)
        written.add(operation.key)
        if type(operation) is Put:
            check_value(operation.key, operation.value)
            size += len(operation.value)
    if len(written) != len(apply):
        raise InvalidError("keys written in a commit", [op.key for op in apply], "distinct")
    if size > limits.bytes_max:
        raise InvalidError("bytes in a commit", size, f"at most {limits.bytes_max}")


def check_ttl(ttl_ms: int, limits: StoreLimits) -> None:
    """Refuse a TTL below the limit."""
    check_at_least("session ttl_ms", ttl_ms, limits.ttl_ms_min)


def next_key(key: str) -> str:
    """Where a scan continues after `key`: keys are printable, and a space is the least of what is."""
    return key + " "


def prefix_end(prefix: str) -> str:
    """The least key above every key that starts with `prefix`."""
    for at in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[at])
        if code < 0x10FFFF:
            following = 0xE000 if code == 0xD7FF else code + 1  # surrogates are not text
            return prefix[:at] + chr(following)
    return chr(0x10FFFF) * 2
