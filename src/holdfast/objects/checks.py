"""Input checks that every engine runs before any I/O, so that all refuse the same input with the same error."""

from typing import Final

from holdfast.vocabulary.errors import InvalidError

KEY_BYTES_MAX: Final = 900  # the limit of S3 and GCS is 1,024, including the URL's prefix
SEGMENT_BYTES_MAX: Final = 200  # the limit of file systems is 255; engines append suffixes


def check_key(key: str) -> None:
    """Refuse a key that some engine could not store."""
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise InvalidError("object key", ascii(key), "valid Unicode") from None
    if not 0 < size <= KEY_BYTES_MAX:
        raise InvalidError("object key", key[:80], f"1 to {KEY_BYTES_MAX} bytes long")
    # A backslash is a separator to some servers and to Windows.
    if not key.isprintable() or "\\" in key:
        raise InvalidError("object key", key, "printable characters without backslash")
    for segment in key.split("/"):
        if not segment or segment[0] == "." or len(segment.encode()) > SEGMENT_BYTES_MAX:
            allowed = f"segments of 1 to {SEGMENT_BYTES_MAX} bytes separated by slashes, none starting with a dot"
            raise InvalidError("object key", key, allowed)


def check_prefix(prefix: str) -> None:
    """Refuse a prefix that no key can have."""
    if prefix:
        check_key(prefix.removesuffix("/"))


def check_range(key: str, start: int, end: int | None) -> None:
    """Refuse an invalid range."""
    if start < 0:
        raise InvalidError(f"range start of {key}", start, "at least 0")
    if end is not None and end < start:
        raise InvalidError(f"range end of {key}", end, f"at least {start}, or None")


def check_tail(key: str, size_bytes: int) -> None:
    """Refuse an empty tail."""
    if size_bytes < 1:
        raise InvalidError(f"tail size of {key}", size_bytes, "at least 1")
