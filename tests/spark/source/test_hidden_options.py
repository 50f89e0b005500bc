"""What Spark shows of the options in a session that Holdfast has not made: no secret, in no plan and no error."""

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STORE, OBJECTS = (
    "postgresql://me:planted-1@127.0.0.1:1/x",
    "s3://b/x?endpoint=http://127.0.0.1:1&session_token=planted-2",
)
SHOWN_BY_SPARK = "spark.sql.redaction.options.regex"


@pytest.fixture
def plain(spark: "SparkSession") -> "SparkSession":
    """As anybody's session: with Spark's own rule of what is hidden."""
    made = spark.newSession()
    made.conf.set(SHOWN_BY_SPARK, "(?i)url")
    return made


def shown(frame: Any) -> str:
    return str(frame._jdf.queryExecution().toString())


@pytest.mark.parametrize("streaming", [False, True])
def test_no_secret_is_in_a_plan(plain: "SparkSession", streaming: bool, capsys: pytest.CaptureFixture[str]) -> None:
    reader = plain.readStream if streaming else plain.read
    frame = (
        reader.format("holdfast").option("storeUrl", STORE).option("objectsUrl", OBJECTS).option("topics", "t").load()
    )
    frame.explain(True)
    text = shown(frame) + capsys.readouterr().out
    with pytest.raises(PySparkException) as failed:
        frame.selectExpr("no_such_column")
    assert "holdfast" in text
    for each in (text, str(failed.value)):
        assert "planted" not in each


def test_a_secret_in_an_option_that_spark_shows_is_refused_without_it(plain: "SparkSession") -> None:
    reader = plain.readStream.format("holdfast").option("store", STORE).option("objectsUrl", OBJECTS)
    with pytest.raises(PySparkException, match="given as storeUrl, because it holds a secret") as refused:
        reader.option("topics", "t").load()
    assert "planted" not in str(refused.value)
