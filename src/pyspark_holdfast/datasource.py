"""The data source `holdfast`: topics as DataFrames, and DataFrames as topics."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from holdfast.spark.cluster_options import check_shown_options
from holdfast.spark.source.options import include_headers, parse_source_options
from holdfast.vocabulary.errors import InvalidError


class DefaultSource(DataSource):
    """`format("holdfast")`."""

    def __init__(self, options: dict[str, str]) -> None:
        check_shown_options(options)  # before they are in a plan
        super().__init__(options)
        self._planned = False

    def __getstate__(self) -> dict[str, object]:
        """Spark pickles a source for the process that plans, and with its reader for the tasks, which need no options."""
        return {**self.__dict__, "options": {}} if self._planned else dict(self.__dict__)

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def schema(self) -> StructType:
        """The columns of Spark's Kafka source."""
        fields = [
            StructField("key", BinaryType()),
            StructField("value", BinaryType()),
            StructField("topic", StringType()),
            StructField("partition", IntegerType()),
            StructField("offset", LongType()),
            StructField("timestamp", TimestampType()),
            StructField("timestampType", IntegerType()),
        ]
        if include_headers(self.options):
            pair = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
            fields.append(StructField("headers", ArrayType(pair)))
        return StructType(fields)

    def reader(self, schema: StructType) -> DataSourceReader:
        from holdfast.spark.source.batch import batch_reader

        self._check(schema)
        self._planned = True
        return batch_reader(parse_source_options(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from holdfast.spark.source.stream import StreamReader

        self._check(schema)
        self._planned = True
        return StreamReader(parse_source_options(self.options, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from holdfast.spark.sink.writers import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from holdfast.spark.sink.writers import stream_writer

        return stream_writer(self.options, schema, overwrite)

    def _check(self, schema: StructType) -> None:
        ours = self.schema()
        if schema != ours:
            raise InvalidError("schema", schema.simpleString(), f"absent or {ours.simpleString()}")
