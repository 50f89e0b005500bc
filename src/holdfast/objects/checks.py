"""What every engine refuses before it does any I/O, so that all refuse the same things in the same words."""

from typing import Final

from holdfast.vocabulary.errors import InvalidError

KEY_BYTES_MAX: Final = 900  # S3 and GCS take 1,024, the prefix of the URL included
SEGMENT_BYTES_MAX: Final = 200  # file systems take 255; engines add to it for names of their own


def check_key(key: str) -> None:
    """Refuse a key that some engine could not hold."""
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise InvalidError("object key", ascii(key), "text that UTF-8 can hold") from None
    if not 0 < size <= KEY_BYTES_MAX:
        raise InvalidError("object key", key[:80], f"1 to {KEY_BYTES_MAX} bytes")
    # A backslash is a separator to some servers and to Windows.
    if not key.isprintable() or "\\" in key:
        raise InvalidError("object key", key, "printable characters, no backslash")
    for segment in key.split("/"):
        if not segment or segment[0] == "." or len(segment.encode()) > SEGMENT_BYTES_MAX:
            allowed = f"segments of 1 to {SEGMENT_BYTES_MAX} bytes between slashes, none begins with a dot"
            raise InvalidError("object key", key, allowed)


def check_prefix(prefix: str) -> None:
    """Refuse a prefix that no key can have."""
    if prefix:
        check_key(prefix.removesuffix("/"))


def check_range(key: str, start: int, end: int | None) -> None:
    """Refuse a range that is none."""
    if start < 0:
        raise InvalidError(f"start of a range of {key}", start, "0 or more")
    if end is not None and end < start:
        raise InvalidError(f"end of a range of {key}", end, f"{start} or more, or none")


def check_tail(key: str, size_bytes: int) -> None:
    """Refuse a tail of nothing."""
    if size_bytes < 1:
        raise InvalidError(f"tail of {key}", size_bytes, "1 byte or more")
