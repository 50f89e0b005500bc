"""Samples of a source, decoded, for display and for inference.

The one rule: a record that cannot be decoded is shown with the reason, never left out, because the pipeline will meet it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from holdfast.client.topic_reader import KafkaRecord
from holdfast.pipeline.mapping.inference import infer
from holdfast.pipeline.model.records import SourceRecords
from holdfast.pipeline.service.responses import FieldEvidence, Inferred, Sample, SampledRecord
from holdfast.vocabulary.types import OffsetRange

Where = Literal["first", "last"]

TEXT_CHARS_MAX: Final = 10_000


def sample(topic: str, partitions: int, found: Sequence[KafkaRecord]) -> Sample:
    """Records for display, by timestamp."""
    in_order = sorted(found, key=lambda record: (record.timestamp_ms, record.partition, record.offset))
    records = tuple(map(shown, in_order))
    not_json = sum(1 for record in records if record.error)
    return Sample(topic=topic, records=records, partitions=partitions, not_json=not_json)


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


def shown(record: KafkaRecord) -> SampledRecord:
    """A record for display."""
    value, text, error = decoded(record.value)
    return SampledRecord(
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp_ms,
        key=_text(record.key),
        headers={name: _text(header) for name, header in record.headers},
        value=value,
        text=text,
        error=error,
    )


def decoded(payload: bytes | None) -> tuple[Any, str | None, str]:
    """The value of a payload; or its text, and the reason why it has no value."""
    if payload is None:
        return None, None, "no value: null"
    try:
        return msgspec.json.decode(payload), None, ""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return None, (_text(payload) or "")[:TEXT_CHARS_MAX], f"not JSON: {error}"


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


def inferred(given: Sample) -> Inferred:
    """A mapping proposed for a sample. `InvalidError`: it has no object."""
    found = infer([record.value for record in given.records if not record.error], given.topic)
    return Inferred(
        mapping=found.mapping,
        order_by=found.order_by,
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
