"""A topic as a query sees it: the fields of its values and `_key`, `_topic`, …; or, without a schema, its records.

The one rule: whether a value is bad depends on the record alone. The stream leaves bad records out and counts them; if there are
any, the same batch is read once more for them (`dead_letters`), by the same expressions.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from holdfast.client.cluster_address import ClusterAddress
from holdfast.pipeline.formats.decoded import NO_VALUE
from holdfast.pipeline.formats.stream_values import REASON, TEXT, DecodeValues, decoder_config, is_plain_json
from holdfast.pipeline.model.query import StreamSource
from holdfast.spark.cluster_options import address_options
from holdfast.vocabulary.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

RECORD_COLUMNS: Final = ("key", "topic", "partition", "offset", "timestamp")
"""Of a record, beside the fields of its value: `_key`, `_topic`, …"""
PARSED: Final = "_parsed"
BAD: Final = "_bad"
_CORRUPT: Final = "_holdfast_corrupt"
_OF_TEXTS: Final = ("csv", "raw")  # formats whose fields are texts


def metric_name(source: StreamSource) -> str:
    """Under which Spark counts the bad records of a source in a batch."""
    return f"holdfast_bad_{source.name}"


def source_view(
    session: "SparkSession",
    source: StreamSource,
    address: ClusterAddress,
    start: Mapping[str, Mapping[str, int]],
    rows_max: int,
) -> "DataFrame":
    """The view of a source, as a stream."""
    reader = session.readStream.format("holdfast").option("topics", source.topic).option("sourceName", source.name)
    for name, value in address_options(address).items():
        reader = reader.option(name, value)
    reader = reader.option("startingOffsets", json.dumps(start)).option("maxRowsPerTrigger", str(rows_max))
    frame = reader.load()
    if source.schema:
        frame = _fields(decoded(frame, source), source)
    mark = source.watermark
    return frame.withWatermark(mark.column, mark.delay) if mark.column else frame


def _fields(frame: "DataFrame", source: StreamSource) -> "DataFrame":
    if source.has_dead_letters:
        counted, fingerprint = fingerprint_of(frame)
        frame = frame.observe(metric_name(source), counted, fingerprint).where(~frame[BAD])
    names = value_schema(source).names
    return frame.select(
        *(frame[PARSED][name].alias(name) for name in names),
        *(frame[name].alias(f"_{name}") for name in RECORD_COLUMNS),
    )


def value_schema(source: StreamSource) -> "StructType":
    """The fields of a source's values."""
    from pyspark.sql.types import StructType

    text = source.schema.strip()
    found = StructType.fromJson(json.loads(text)) if text.startswith("{") else StructType.fromDDL(text)
    if not isinstance(found, StructType):
        raise InvalidError(f"schema of {source.name}", text[:100], "fields with their types: id BIGINT, at TIMESTAMP")
    return found


def decoded(frame: "DataFrame", source: StreamSource) -> "DataFrame":
    """Records with their fields, whether they are bad, and their value as JSON."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    if is_plain_json(source):
        frame = frame.withColumn(TEXT, frame["value"].cast("string")).withColumn(REASON, f.lit(None).cast("string"))
    else:
        schema = StructType(list(frame.schema.fields)).add(TEXT, "string").add(REASON, "string")
        frame = frame.mapInArrow(DecodeValues(decoder_config(source)), schema)
    frame = frame.withColumn(PARSED, _parsed(frame[TEXT], value_schema(source), source))
    return frame.withColumn(BAD, frame[PARSED].isNull() | frame[PARSED][_CORRUPT].isNotNull())


def _parsed(text: "Column", schema: "StructType", source: StreamSource) -> "Column":
    """The fields of a value, with one more that is not null if they do not fit."""
    return _cast(text, schema) if source.format in _OF_TEXTS else _from_json(text, schema)


def _from_json(text: "Column", schema: "StructType") -> "Column":
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    marked = StructType(list(schema.fields)).add(_CORRUPT, "string")
    return f.from_json(text, marked, {"columnNameOfCorruptRecord": _CORRUPT})


def _cast(text: "Column", schema: "StructType") -> "Column":
    """The same of a value whose fields are all texts: a text that its type cannot be made of does not fit."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

    texts = _from_json(text, StructType([StructField(each.name, StringType()) for each in schema.fields]))
    fields, misfits = [], f.lit(False)
    for each in schema.fields:
        nested = isinstance(each.dataType, ArrayType | MapType | StructType)
        given = texts[each.name]
        typed = f.from_json(given, each.dataType) if nested else given.try_cast(each.dataType)  # type: ignore[arg-type]
        fields.append(typed.alias(each.name))
        misfits = misfits | (given.isNotNull() & typed.isNull())
    corrupt = f.coalesce(texts[_CORRUPT], f.when(misfits, text))
    return f.when(texts.isNotNull(), f.struct(*fields, corrupt.alias(_CORRUPT)))


def fingerprint_of(frame: "DataFrame") -> tuple["Column", "Column"]:
    """Number of the bad records of a decoded frame, and which they are."""
    from pyspark.sql import functions as f

    which = f.when(frame[BAD], f.xxhash64("topic", "partition", "offset"))
    return f.count(which).alias("records"), f.bit_xor(which).alias("which")


def rejected(frame: "DataFrame", source: StreamSource) -> "DataFrame":
    """The bad records of a decoded frame, with the reason."""
    from pyspark.sql import functions as f

    misfits = [
        f.when(_parsed(frame[TEXT], _alone(field), source)[_CORRUPT].isNotNull(), f.lit(field.name))
        for field in value_schema(source).fields
    ]
    is_json = f.get_json_object(frame[TEXT], "$").isNotNull()
    reason = (
        f.when(frame["value"].isNull(), f.lit(NO_VALUE))
        .when(frame[REASON].isNotNull(), frame[REASON])
        .when(~is_json, f.lit("not JSON"))
        .otherwise(f.concat(f.lit("not of the type in the schema: "), f.concat_ws(", ", *misfits)))
    )
    bad = frame.where(frame[BAD])
    return bad.select("topic", "partition", "offset", "key", bad["value"].alias("payload"), reason.alias("reason"))


def _alone(field: Any) -> "StructType":
    from pyspark.sql.types import StructType

    return StructType([field])
