"""Values of a query's source, decoded to JSON texts, on executors.

The one rule: what comes out is JSON, whatever the format; Spark makes fields of it. Plain JSON needs no decoder.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isinf, isnan
from typing import Any, Final

import msgspec

from holdfast.pipeline.formats.decoders import value_decoder
from holdfast.pipeline.model.definition import KafkaConfig
from holdfast.pipeline.model.query import StreamSource

TEXT: Final = "_text"
"""The column of a value as JSON; null: it cannot be decoded."""
REASON: Final = "_reason"


def decoder_config(source: StreamSource) -> KafkaConfig:
    """The format of a source as decoders take it."""
    return KafkaConfig(
        topic=source.topic,
        format=source.format,
        schema_registry=source.schema_registry,
        schema=source.value_schema,
        message=source.message,
        csv=source.csv,
        raw=source.raw,
    )


def is_plain_json(source: StreamSource) -> bool:
    """Whether values are JSON as they are."""
    return source.format == "json" and not source.schema_registry.url


@dataclass(frozen=True, slots=True)
class DecodeValues:
    """For `mapInArrow`: the columns of records, with two more. `UnavailableError`: a schema registry does not answer."""

    config: KafkaConfig

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        decoder = value_decoder(self.config)
        for batch in batches:
            decoded = decoder.decode(batch.column("value").to_pylist())
            reasons: list[str | None] = [None] * batch.num_rows
            for row, reason in decoded.bad:
                reasons[row] = reason
            texts = [
                _as_json(value) if reason is None else None
                for value, reason in zip(decoded.values, reasons, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, pa.array(texts, pa.string()), pa.array(reasons, pa.string())],
                names=[*batch.schema.names, TEXT, REASON],
            )


def _as_json(value: Any) -> str:
    """A value as JSON; numbers that are not finite as the texts that Spark reads as such, since JSON has none."""
    text = msgspec.json.encode(value)
    return (text if b"null" not in text else msgspec.json.encode(_finite(value))).decode()


def _finite(value: Any) -> Any:
    match value:
        case float() if isnan(value):
            return "NaN"
        case float() if isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {key: _finite(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_finite(inner) for inner in value]
        case _:
            return value
