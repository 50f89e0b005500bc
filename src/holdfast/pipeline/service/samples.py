"""Samples of a source, decoded, for display and for inference.

The one rule: a record that cannot be decoded is shown with the reason, never left out, because the pipeline will meet it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from holdfast.client.topic_reader import KafkaRecord
from holdfast.pipeline.formats.debezium import DELETE
from holdfast.pipeline.formats.declared_fields import Declared
from holdfast.pipeline.formats.decoders import envelope_of, value_decoder
from holdfast.pipeline.mapping.declared_columns import with_declared
from holdfast.pipeline.mapping.inference import infer
from holdfast.pipeline.model.definition import KafkaConfig
from holdfast.pipeline.model.records import SourceRecords
from holdfast.pipeline.service.responses import FieldEvidence, Inferred, Sample, SampledRecord
from holdfast.vocabulary.types import OffsetRange

Where = Literal["first", "last"]

TEXT_CHARS_MAX: Final = 10_000


def sample(source: KafkaConfig, partitions: int, found: Sequence[KafkaRecord]) -> Sample:
    """Records for display, by timestamp. `UnavailableError`: their schemas cannot be read now."""
    in_order = sorted(found, key=lambda record: (record.timestamp_ms, record.partition, record.offset))
    payloads = [record.value for record in in_order]
    decoded = value_decoder(source).decode(payloads)
    values, reasons, ops = decoded.values, dict(decoded.bad), [""] * len(in_order)
    key_fields: tuple[str, ...] = ()
    if (envelope := envelope_of(source)) is not None:
        keys = [record.key for record in in_order]
        changes = envelope.read(decoded, payloads, keys, [record.offset for record in in_order])
        values, reasons, key_fields = changes.rows, dict(changes.bad), envelope.key_fields(keys)
        ops = [op or (DELETE if gone else "") for op, gone in zip(changes.ops, changes.deleted, strict=True)]
    records = tuple(shown(each, values[at], reasons.get(at, ""), ops[at]) for at, each in enumerate(in_order))
    return Sample(
        topic=source.topic, records=records, partitions=partitions, not_json=len(reasons), key_fields=key_fields
    )


def shares(bounds: Mapping[int, OffsetRange], limit: int, where: Where) -> dict[int, OffsetRange]:
    """What to read of each partition: shares as equal as possible, `limit` records in all."""
    left, chosen = limit, {}
    fewest_first = sorted(bounds.items(), key=lambda item: (item[1].end - item[1].start, item[0]))
    for at, (number, bound) in enumerate(fewest_first):
        fair = -(-left // (len(fewest_first) - at))
        count = min(fair, bound.end - bound.start, left)
        left -= count
        if count:
            start = bound.start if where == "first" else bound.end - count
            chosen[number] = OffsetRange(start, start + count)
    return chosen


def shown(record: KafkaRecord, value: Any, error: str, op: str = "") -> SampledRecord:
    """A record for display; one that could not be decoded as text."""
    return SampledRecord(
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp_ms,
        key=_text(record.key),
        headers={name: _text(header) for name, header in record.headers},
        value=value,
        text=(_text(record.value) or "")[:TEXT_CHARS_MAX] if error and record.value is not None else None,
        error=error,
        op=op,
    )


def has_row(record: SampledRecord) -> bool:
    """Whether a record has a row to map: it could be decoded, and is no delete."""
    return not record.error and record.op != DELETE


def _text(given: bytes | None) -> str | None:
    return None if given is None else given.decode("utf-8", "backslashreplace")


def synthetic_records(values: Sequence[Any]) -> list[SampledRecord]:
    """Values that a user typed, as records."""
    return [SampledRecord(partition=0, offset=at, timestamp=0, value=value) for at, value in enumerate(values)]


def records_of(topic: str, partition: int, sampled: Sequence[SampledRecord]) -> SourceRecords:
    """Records of one partition in the form that filters and mappings take. The caller leaves out those without a value."""
    return SourceRecords(
        fields=[record.value for record in sampled],
        keys=[record.key for record in sampled],
        headers=[record.headers for record in sampled],
        topic=topic,
        partition=partition,
        offsets=[record.offset for record in sampled],
        timestamps=[record.timestamp for record in sampled],
    )


def inferred(given: Sample, declared: Declared | None = None) -> Inferred:
    """A mapping proposed for a sample, and for what its schema declares. `InvalidError`: it has no object."""
    found = with_declared(
        infer([record.value for record in given.records if has_row(record)], given.topic), declared or {}
    )
    keys = tuple(each.column for each in found.mapping.columns if each.field_path in given.key_fields)
    return Inferred(
        mapping=found.mapping,
        order_by=keys or found.order_by,
        table=found.table,
        evidence=tuple(
            FieldEvidence(
                column=each.column,
                type=each.type,
                why=each.why,
                seen=each.seen,
                nulls=each.nulls,
                absent=each.absent,
                distinct=each.distinct,
                examples=each.examples,
            )
            for each in found.evidence
        ),
        records=found.records,
        not_objects=found.not_objects + given.not_json,
        left_out=found.left_out,
    )
