"""JSON texts as lines of one buffer, for Arrow's reader. Needs `pyarrow`.

The one rule: each line is certainly one object, in UTF-8 and not deep. Arrow counts objects and not lines, and deep values take it
seconds, or crash the process.
"""

from typing import Any, Final

_BLOCK_BYTES_MAX: Final = 1 << 30
_NEWLINE: Final = ord("\n")
_BRACKETS_MAX: Final = 64
"""Opening brackets that a record may have. Deeply nested values are left to the slow path."""
_CASE_BIT: Final = 0x20  # `{` is `[` with it


def joined_lines(payloads: Any) -> Any | None:
    """All texts as an Arrow buffer; None: some are not certainly objects.

    Every newline is between a closing and an opening brace. A newline cannot be in a string, and adjacent objects without a comma
    occur at the top level only, so each line consists of whole objects; with as many objects as lines, each line is one.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    count = len(payloads)
    if not count or payloads.null_count or payloads.nbytes > _BLOCK_BYTES_MAX:
        return None
    if not (pc.all(pc.starts_with(payloads, b"{")).as_py() and pc.all(pc.ends_with(payloads, b"}")).as_py()):
        return None
    lines = pa.LargeListArray.from_arrays(pa.array([0, count], pa.int64()), payloads)
    text = pc.binary_join(lines, b"\n")[0].as_buffer()
    octets = np.frombuffer(text, np.uint8)
    if np.count_nonzero(octets == _NEWLINE) != count - 1 or _may_be_deep(octets, payloads):
        return None
    try:
        payloads.cast(pa.string())  # checks that they are UTF-8
    except pa.ArrowInvalid:
        return None
    return text


def _may_be_deep(octets: Any, payloads: Any) -> bool:
    """Whether some record has so many opening brackets that its values may be nested too deeply."""
    import numpy as np
    import pyarrow.compute as pc

    opening = np.flatnonzero((octets | _CASE_BIT) == ord("{"))
    if len(opening) - len(payloads) <= _BRACKETS_MAX:
        return False
    # No record reaches from a bracket to the next but so many, if none is that long.
    spans = opening[_BRACKETS_MAX:] - opening[:-_BRACKETS_MAX]
    if spans.min() > pc.max(pc.binary_length(payloads)).as_py():
        return False
    each = pc.add(pc.count_substring(payloads, b"["), pc.count_substring(payloads, b"{"))
    return bool(pc.max(each).as_py() > _BRACKETS_MAX)
