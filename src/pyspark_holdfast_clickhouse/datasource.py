"""The data source `holdfast.clickhouse`: DataFrames into tables of ClickHouse, exactly once, and tables as DataFrames."""

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """`format("holdfast.clickhouse")`."""

    @classmethod
    def name(cls) -> str:
        return "holdfast.clickhouse"

    def schema(self) -> StructType:
        """The columns of the table."""
        from holdfast.spark.clickhouse.reader import read_schema

        return read_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from holdfast.spark.clickhouse.reader import table_reader

        return table_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from holdfast.spark.clickhouse.writers import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from holdfast.spark.clickhouse.writers import stream_writer

        return stream_writer(self.options, schema, overwrite)
