"""ApiVersions (18), versions 0 to 4: lists exactly what `api_table` implements. By hand: it is the first request of a connection.

Not implemented: features (there are none to finalize yet).
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseChunks
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kafka.wire import INT16, INT32, NO_TAGS, WireReader, encode_length

_VERSIONS: Final = (0, 4)
_FLEXIBLE_FROM: Final = 3
_RANGE: Final = Struct(">hhh")

_Ranges = Sequence[tuple[int, tuple[int, int]]]


def api_versions_api(others: Sequence[Api]) -> Api:
    """ApiVersions, listing these and itself."""
    ranges = sorted([(ApiKey.API_VERSIONS, _VERSIONS), *((api.key, api.versions) for api in others)])
    bodies = {version: _body(version, ErrorCode.NONE, ranges) for version in range(_VERSIONS[0], _VERSIONS[1] + 1)}
    # A client newer than this server retries with a version of this list: this response is always version 0.
    too_new = _body(0, ErrorCode.UNSUPPORTED_VERSION, ranges)

    async def api_versions(call: RequestContext, body: memoryview) -> ResponseChunks:
        if not call.api.supports(call.version):
            return (too_new,)
        if call.api.is_flexible(call.version):
            reader = WireReader(body, flexible=True)
            name, version = reader.text(), reader.text()
            reader.tags()
            call.peer.software = f"{name} {version}"
        return (bodies[call.version],)

    return Api(key=ApiKey.API_VERSIONS, versions=_VERSIONS, flexible_from=_FLEXIBLE_FROM, raw=api_versions)


def _body(version: int, code: ErrorCode, ranges: _Ranges) -> bytes:
    flexible = version >= _FLEXIBLE_FROM
    out = bytearray(INT16.pack(code))
    out += encode_length(len(ranges), flexible=flexible)
    for key, (low, high) in ranges:
        out += _RANGE.pack(key, low, high)
        if flexible:
            out += NO_TAGS
    if version >= 1:
        out += INT32.pack(0)  # throttle time
    if flexible:
        out += NO_TAGS
    return bytes(out)
