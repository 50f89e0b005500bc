"""How the values of records are encoded: the options that a mapped source and the sources of a query share."""

from typing import Literal

from holdfast.pipeline.model.stored import StoredStruct

ValueFormat = Literal["json", "avro", "protobuf", "csv", "raw"]


class SchemaRegistry(StoredStruct, frozen=True):
    """A schema registry with Confluent's HTTP API. The password is never shown."""

    url: str = ""
    user: str = ""
    password: str = ""
    ca_file: str = ""
    timeout_ms: int = 10_000


class CsvOptions(StoredStruct, frozen=True):
    """How a record of CSV is read: one row, with a line of names before it or without."""

    columns: tuple[str, ...] = ()
    """Names of the fields, in their order."""
    header: bool = False
    """Every record begins with a line of names."""
    delimiter: str = ","
    quote: str = '"'
    escape: str = ""
    nulls: tuple[str, ...] = ("",)
    """Texts that are null where they are not quoted."""
