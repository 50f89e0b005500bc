"""Update mode: a function for `foreachBatch`, because Spark refuses update mode for every sink that is written in Python."""

from typing import TYPE_CHECKING

from holdfast.vocabulary.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VERSION_COLUMN = "_version"


def upsert(
    df: "DataFrame", batch_id: int, *, scope: str, version_column: str = VERSION_COLUMN, **options: object
) -> None:
    """Write the rows of a batch so that the last one of each key counts. Call it in `foreachBatch`.

    The table is a `ReplacingMergeTree` whose version is `version_column`, ordered by the key; it is created so if it does not
    exist. `scope` names the query: a new checkpoint under the same scope continues above the old versions. Read with `FINAL`.
    The other options are those of the data source (`url`, `table`, `order_by`, …), in either spelling.
    """
    if not scope:
        raise InvalidError("scope", scope, "a name for the query, which stays when its checkpoint is replaced")
    given = {name.replace("_", ""): _text(value) for name, value in options.items()}
    given = {"engine": "ReplacingMergeTree", "onNewGeneration": "keep", **given}
    writing = df.write.format("holdfast.clickhouse").mode("append").options(**given)
    writing = writing.option("writeId", scope).option("writeNumber", batch_id)
    writing.option("versionColumn", version_column).save()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
