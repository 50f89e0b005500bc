"""Messages through kio, both ways: a server decodes requests and encodes responses, a client the reverse.

Handlers of the server use the newest version: they return mappings with its field names, and fields that an older version lacks are
left out here. Plain numbers become kio's types for error codes, durations, times and ids. kio is imported at the first use: the
import is large, and a server should listen before it.
"""

import dataclasses
import io
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, cast
from uuid import UUID

from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.length_checks import check_lengths, nested_entity
from holdfast.kafka.wire import ENTRIES_MAX, INT32, MalformedRequestError
from holdfast.vocabulary.import_lock import hide_module, import_lock

Convert = Callable[[Any], Any]

ZERO_UUID = UUID(int=0)


def decode(key: int, version: int, body: memoryview, *, entries_max: int = ENTRIES_MAX) -> Any:
    """The request in `body`. `MalformedRequestError`, also if its arrays have more elements.

    Bytes after its last field are ignored, as in Kafka: librdkafka 2.16 sends some.
    """
    import_kio()
    from kio.serial.errors import SerialError

    kind, read = _reader(key, version)
    check_lengths(kind, body, entries_max=entries_max)
    try:
        request, _ = read(bytes(body), 0)  # kio accepts immutable bytes only
    except (SerialError, ValueError, LookupError, OverflowError, TypeError, MemoryError) as error:
        what = f"{ApiKey(key).api_name} v{version} request of {len(body)} bytes"
        raise MalformedRequestError(what, f"{type(error).__name__}: {error}", "decodable") from None
    return request


def encode(key: int, version: int, response: Mapping[str, object]) -> bytes:
    """The response in `version`, without its header."""
    build, write = _writer(key, version)
    out = io.BytesIO()
    write(out, build(response))
    return out.getvalue()


def encode_request(request: Any, correlation_id: int, *, client_id: str) -> bytes:
    """A kio request as a frame, with its length and header."""
    header = request.__header_schema__(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    out = io.BytesIO()
    _entity_writer(cast(Hashable, type(header)))(out, header)
    _entity_writer(cast(Hashable, type(request)))(out, request)
    body = out.getvalue()
    return INT32.pack(len(body)) + body


def decode_response(request_type: Any, frame: bytes, correlation_id: int) -> Any:
    """The response to a request of a kio type. `ConnectionError`: it belongs to another request."""
    import_kio()
    from kio.index import load_response_schema

    kind = load_response_schema(request_type.__api_key__, request_type.__version__)
    header, size = _entity_reader(cast(Hashable, kind.__header_schema__))(frame, 0)
    if header.correlation_id != correlation_id:
        raise ConnectionError("response with another correlation id")
    return _entity_reader(kind)(frame, size)[0]


def prepare(request_type: Any) -> None:
    """Import and compile what a request of a kio type and its response need: the first use takes a second or more."""
    import_kio()
    from kio.index import load_response_schema

    response_type = load_response_schema(request_type.__api_key__, request_type.__version__)
    for kind in (request_type.__header_schema__, request_type):
        _entity_writer(cast(Hashable, kind))
    for kind in (response_type.__header_schema__, response_type):
        _entity_reader(cast(Hashable, kind))


@cache
def import_kio() -> None:
    """Import kio, on any thread, before anything of it is used. It takes a while.

    One thread at a time: its modules import each other in a circle, and two threads that meet there get Python's deadlock error.
    """
    # Where hypothesis is installed, kio builds strategies for tests at import: seconds of work.
    with import_lock, hide_module("hypothesis"):
        import kio.index
        import kio.schema.errors
        import kio.serial  # noqa: F401


@cache
def _reader(key: int, version: int) -> tuple[type, Callable[[bytes, int], tuple[Any, int]]]:
    import_kio()
    from kio.index import load_request_schema

    kind = load_request_schema(key, version)
    return kind, _entity_reader(kind)


@cache
def _writer(key: int, version: int) -> tuple[Convert, Callable[[io.BytesIO, Any], None]]:
    import_kio()
    from kio.index import load_response_schema

    kind = load_response_schema(key, version)
    return _builder(kind), _entity_writer(kind)


@cache
def _entity_reader(kind: Hashable) -> Callable[[bytes, int], tuple[Any, int]]:
    import_kio()
    from kio.serial import entity_reader

    return entity_reader(cast(Any, kind))


@cache
def _entity_writer(kind: Hashable) -> Callable[[io.BytesIO, Any], None]:
    import_kio()
    from kio.serial import entity_writer

    return entity_writer(cast(Any, kind))


@cache
def _builder(kind: type) -> Convert:
    """A function that builds a `kind` from a mapping."""
    steps = [(field.name, _converter(field), _default(field)) for field in dataclasses.fields(kind)]

    def build(given: Mapping[str, Any]) -> Any:
        values = {}
        for name, convert, default in steps:
            if name in given:
                value = given[name]
                values[name] = value if convert is None or value is None else convert(value)
            elif default is not dataclasses.MISSING:
                values[name] = default
            elif name == "throttle_time":
                values[name] = timedelta(0)
            else:
                raise KeyError(f"{kind.__module__}.{kind.__name__}: missing field {name}")
        return kind(**values)

    return build


def _default(field: "dataclasses.Field[Any]") -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def _converter(field: "dataclasses.Field[Any]") -> Convert | None:
    kafka_type = field.metadata.get("kafka_type", "")
    of_one = _SCALARS.get(kafka_type)
    entity = nested_entity(field.type)
    if entity is not None:
        of_one = _builder(entity)
    if "tuple[" in str(field.type):
        return _tuple_of(of_one)
    if kafka_type == "error_code":
        return _error_code()
    return of_one


def _tuple_of(convert: Convert | None) -> Convert:
    if convert is None:
        return tuple

    def convert_all(values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(map(convert, values))

    return convert_all


def _error_code() -> Convert:
    from kio.schema.errors import ErrorCode

    codes: dict[int, ErrorCode] = {int(code.value): code for code in ErrorCode}
    return lambda value: codes[int(value)]


def _milliseconds(value: Any) -> timedelta:
    return timedelta(milliseconds=value)


def _moment(value: Any) -> datetime | None:
    """Milliseconds since 1970; -1 is Kafka's "none"."""
    return None if value < 0 else datetime.fromtimestamp(value / 1000, UTC)


_SCALARS: dict[str, Convert] = {
    "timedelta_i32": _milliseconds,
    "timedelta_i64": _milliseconds,
    "datetime_i64": _moment,
    "uuid": lambda value: (
        value if isinstance(value, UUID) else UUID(value) if isinstance(value, str) else UUID(bytes=bytes(value))
    ),
}
