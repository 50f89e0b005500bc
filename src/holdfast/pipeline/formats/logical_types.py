"""Logical types of Avro and of Kafka Connect as the texts that mappings understand: ISO 8601, decimals, UUIDs, base64.

The one rule: a text says what it means. A number of milliseconds would be taken for seconds if it were small, bytes would not
survive as text. Whole columns are converted at once, by Arrow where it can.
"""

import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from holdfast.pipeline.formats.decoded import BadValueError

_SECOND: Final = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_YEARS_S: Final = (-62_135_596_800, 253_402_300_799)  # 0001-01-01 to 9999-12-31
_DAY_S: Final = 86_400
SCALE_MAX: Final = 1_000
DECIMAL_BYTES_MAX: Final = 1_000
"""No column holds more than 76 digits; a record may say that its number has billions."""


@dataclass(frozen=True, slots=True)
class Logical:
    """What a primitive value means: timestamp, local-timestamp, date, time, decimal, uuid or base64."""

    kind: str
    unit: str = ""
    scale: int = 0

    @property
    def name(self) -> str:
        """A name for it; the scale is not part of it."""
        return f"holdfast-{self.kind}" + (f"-{self.unit}" if self.unit else "")


BASE64: Final = Logical("base64")
UUID_BYTES: Final = Logical("uuid")
_UNITS: Final = {"millis": "ms", "micros": "us", "nanos": "ns"}
_AVRO: Final = {
    "date": Logical("date"),
    **{f"timestamp-{name}": Logical("timestamp", unit) for name, unit in _UNITS.items()},
    **{f"local-timestamp-{name}": Logical("local-timestamp", unit) for name, unit in _UNITS.items()},
    **{f"time-{name}": Logical("time", unit) for name, unit in _UNITS.items()},
}
_CONNECT: Final = {
    "org.apache.kafka.connect.data.Date": Logical("date"),
    "org.apache.kafka.connect.data.Time": Logical("time", "ms"),
    "org.apache.kafka.connect.data.Timestamp": Logical("timestamp", "ms"),
    "io.debezium.time.Date": Logical("date"),
    "io.debezium.time.Time": Logical("time", "ms"),
    "io.debezium.time.MicroTime": Logical("time", "us"),
    "io.debezium.time.NanoTime": Logical("time", "ns"),
    "io.debezium.time.Timestamp": Logical("local-timestamp", "ms"),
    "io.debezium.time.MicroTimestamp": Logical("local-timestamp", "us"),
    "io.debezium.time.NanoTimestamp": Logical("local-timestamp", "ns"),
}
CONNECT_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
EVERY: Final = (*dict.fromkeys((*_AVRO.values(), *_CONNECT.values())), Logical("decimal"), UUID_BYTES, BASE64)


def avro_logical(schema: Mapping[str, Any]) -> Logical | None:
    """What a primitive or fixed type of an Avro schema means; None: its value is a JSON value as it is."""
    kind, named = schema.get("type"), schema.get("logicalType")
    if kind in ("bytes", "fixed"):
        if named == "decimal":
            return Logical("decimal", scale=int(schema.get("scale", 0)))
        return UUID_BYTES if named == "uuid" and schema.get("size") == 16 else BASE64
    if kind in ("int", "long"):
        return _AVRO.get(str(named)) or _CONNECT.get(str(schema.get("connect.name")))
    return None


def connect_logical(schema: Mapping[str, Any]) -> Logical | None:
    """What a field of a Kafka Connect schema means; None: its value is a JSON value as it is."""
    name = str(schema.get("name"))
    if name == CONNECT_DECIMAL:
        return Logical("decimal", scale=_scale(schema.get("parameters")))
    return _CONNECT.get(name)


def _scale(parameters: Any) -> int:
    given = parameters.get("scale", 0) if isinstance(parameters, dict) else 0
    try:
        return int(given)
    except (TypeError, ValueError):
        raise BadValueError(f"invalid scale {str(given)[:50]!r} of a decimal: must be a whole number") from None


def to_texts(logical: Logical, values: Sequence[Any]) -> list[Any]:
    """Values as texts; null stays null. `BadValueError`: one of them is out of range."""
    match logical.kind:
        case "timestamp" | "local-timestamp":
            return _times(logical, values)
        case "date":
            return _dates(values)
        case "time":
            return _clock_times(logical.unit, values)
        case "decimal":
            return [None if value is None else decimal_text(value, logical.scale) for value in values]
        case "uuid":
            return [None if value is None else str(UUID(bytes=bytes(value))) for value in values]
    return [None if value is None else base64_text(value) for value in values]


def base64_text(value: bytes) -> str:
    """Bytes as base64."""
    return binascii.b2a_base64(value, newline=False).decode()


def decimal_text(value: bytes, scale: int) -> str:
    """The number whose unscaled value is in two's complement, with `scale` digits behind the point. `BadValueError`."""
    if len(value) > DECIMAL_BYTES_MAX:
        raise BadValueError(f"a decimal of {len(value)} bytes: at most {DECIMAL_BYTES_MAX} are read")
    return scaled_text(int.from_bytes(value, "big", signed=True), scale)


def scaled_text(unscaled: int, scale: int) -> str:
    """`unscaled` × 10^-scale. `BadValueError`."""
    if abs(scale) > SCALE_MAX:
        raise BadValueError(f"invalid scale {scale} of a decimal: must be -{SCALE_MAX} to {SCALE_MAX}")
    if scale <= 0:
        return str(unscaled * 10**-scale)
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def _times(logical: Logical, values: Sequence[Any]) -> list[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    second = _SECOND[logical.unit]
    numbers = _numbers(values, _YEARS_S[0] * second, (_YEARS_S[1] + 1) * second - 1, logical)
    zone = "UTC" if logical.kind == "timestamp" else None
    spaced = numbers.cast(pa.timestamp(logical.unit, zone)).cast(pa.string())
    texts: list[Any] = pc.replace_substring(spaced, " ", "T").to_pylist()
    return texts


def _dates(values: Sequence[Any]) -> list[Any]:
    import pyarrow as pa

    days = _numbers(values, _YEARS_S[0] // _DAY_S, _YEARS_S[1] // _DAY_S, Logical("date"))
    texts: list[Any] = days.cast(pa.int32()).cast(pa.date32()).cast(pa.string()).to_pylist()
    return texts


def _clock_times(unit: str, values: Sequence[Any]) -> list[Any]:
    import pyarrow as pa

    ticks = _numbers(values, 0, _DAY_S * _SECOND[unit] - 1, Logical("time", unit))
    kind = (pa.int32(), pa.time32("ms")) if unit == "ms" else (pa.int64(), pa.time64(unit))
    texts: list[Any] = ticks.cast(kind[0]).cast(kind[1]).cast(pa.string()).to_pylist()
    return texts


def _numbers(values: Sequence[Any], least: int, most: int, logical: Logical) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        numbers = pa.array(values, pa.int64())
    except (pa.ArrowException, OverflowError) as error:
        raise BadValueError(f"not a {logical.kind}: {error}") from None
    ends = pc.min_max(numbers).as_py()
    if ends["min"] is not None and (ends["min"] < least or ends["max"] > most):
        worst = ends["min"] if ends["min"] < least else ends["max"]
        raise BadValueError(f"{logical.kind} {worst} {logical.unit} is out of range".replace("  ", " "))
    return numbers
