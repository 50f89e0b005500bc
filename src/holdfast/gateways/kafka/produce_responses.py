"""Responses to runs of Produce requests: one response, again and again, with another correlation id and base offset.

Those to what succeeded are the same for minutes, so they are kept: encoding one costs more than all else that a response takes.
"""

from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from holdfast.gateways.kafka.api import RequestContext
from holdfast.gateways.kafka.produce import PartitionData, PartitionResult, base_offset_at, encode_results
from holdfast.kafka.error_codes import ErrorCode
from holdfast.vocabulary.native import native

_HEADER: Final = Struct(">ii")  # size, correlation id
_HEADER_FLEXIBLE: Final = Struct(">iix")
_CORRELATION_AT: Final = 4
_KEPT_MAX: Final = 1_000


class ResponseTemplate(NamedTuple):
    """A response but for its correlation id and its base offset, at `offset_at`; -1: it has none."""

    data: bytes
    offset_at: int

    def responses(self, runs: list[list[int]], offsets: list[int]) -> list[bytes]:
        """The responses to each run of requests, by their correlation ids, whose batches got these offsets."""
        assert native is not None, "without it there are no runs"
        return native.responses(self.data, self.offset_at, runs, offsets)


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
