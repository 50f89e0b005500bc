"""Responses to runs of Produce requests: one response, again and again, with another correlation id and base offset.

Those to what succeeded are the same for minutes, so they are kept: encoding one costs more than all else that a response takes.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from holdfast.gateways.kafka.api import RequestContext
from holdfast.gateways.kafka.produce import PartitionData, PartitionResult, base_offset_at, encode_results
from holdfast.kafka.error_codes import ErrorCode

_HEADER: Final = Struct(">ii")  # size, correlation id
_HEADER_FLEXIBLE: Final = Struct(">iix")
_CORRELATION: Final = Struct(">i")
_CORRELATION_AT: Final = 4
_OFFSET: Final = Struct(">q")
_KEPT_MAX: Final = 1_000


class ResponseTemplate(NamedTuple):
    """A response but for its correlation id and its base offset, at `offset_at`; -1: it has none."""

    data: bytes
    offset_at: int

    def responses(self, correlations: Sequence[int], offsets: Sequence[int]) -> bytearray:
        """The responses to requests whose batches got these offsets."""
        data, offset_at = self
        out = bytearray(data * len(correlations) if len(correlations) > 1 else data)
        at = 0
        for correlation, offset in zip(correlations, offsets, strict=True):
            _CORRELATION.pack_into(out, at + _CORRELATION_AT, correlation)
            if offset_at >= 0:
                _OFFSET.pack_into(out, at + offset_at, offset)
            at += len(data)
        return out


def response_template(call: RequestContext, named: str | UUID, result: PartitionResult) -> ResponseTemplate:
    """The response to a request that `call` is like, for one partition of the topic."""
    body = encode_results(call, [(named, [result.data])], [result])
    header = _HEADER_FLEXIBLE if call.api.is_flexible(call.version) else _HEADER
    data = header.pack(header.size - _CORRELATION_AT + len(body), 0) + body
    return ResponseTemplate(data, header.size + base_offset_at(call, named) if result.code is ErrorCode.NONE else -1)


def as_named(named: str | bytes) -> str | UUID:
    """A topic as a response names it; bytes are its id."""
    return named if isinstance(named, str) else UUID(bytes=named)


class SuccessTemplates:
    """Templates of responses to what was appended."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, str | bytes, int, int, int], ResponseTemplate] = {}

    def get(
        self, call: RequestContext, named: str | bytes, data: PartitionData, append_time_ms: int, start_offset: int
    ) -> ResponseTemplate:
        """The one for these values."""
        key = (call.version, named, data.number, append_time_ms, start_offset)
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= _KEPT_MAX:
                self._kept.clear()
            result = PartitionResult(data, ErrorCode.NONE, 0, append_time_ms, start_offset)
            found = self._kept[key] = response_template(call, as_named(named), result)
        return found
