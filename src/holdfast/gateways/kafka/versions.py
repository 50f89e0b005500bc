"""ApiVersions (18), versions 0 to 4: says exactly what `apis` implements. By hand, because it comes first on every connection.

Not implemented: features (there are none to finalize yet).
"""

from functools import cache
from struct import Struct
from typing import Final

from holdfast.gateways.kafka.api import Api, Call, Chunks
from holdfast.gateways.kafka.codes import Code
from holdfast.gateways.kafka.wire import INT16, INT32, NO_TAGS, Reader, array_length

_RANGE: Final = Struct(">hhh")


async def api_versions(call: Call, body: memoryview) -> Chunks:
    """List every API with its versions."""
    if not call.api.speaks(call.version):
        return unsupported_version()
    if call.api.is_flexible(call.version):
        reader = Reader(body, flexible=True)
        name, version = reader.text(), reader.text()
        reader.tags()
        call.peer.software = f"{name} {version}"
    return (_body(call.version, Code.NONE),)


def unsupported_version() -> Chunks:
    """A client that is newer than we are asks again with a version of this list: the answer is always version 0."""
    return (_body(0, Code.UNSUPPORTED_VERSION),)


@cache
def _body(version: int, code: Code) -> bytes:
    from holdfast.gateways.kafka.apis import APIS  # which lists this one, too

    flexible = API.is_flexible(version)
    out = bytearray(INT16.pack(code))
    out += array_length(len(APIS), flexible=flexible)
    for key in sorted(APIS):
        low, high = APIS[key].versions
        out += _RANGE.pack(key, low, high)
        if flexible:
            out += NO_TAGS
    if version >= 1:
        out += INT32.pack(0)  # throttle time
    if flexible:
        out += NO_TAGS
    return bytes(out)


API: Final = Api(key=18, name="ApiVersions", versions=(0, 4), flexible_from=3, raw=api_versions)
APIS: Final = (API,)
