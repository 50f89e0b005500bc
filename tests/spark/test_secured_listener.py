"""`format("holdfast")` against a server with SCRAM and TLS: it reads and writes, within its ACLs, and Spark shows no password."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from tests.support.secured_listener import PASSWORD, USER, Listener, starting_listeners

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # a cold JVM on a busy machine


@pytest.fixture(scope="module")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listener]:
    with starting_listeners(tmp_path_factory.mktemp) as start:
        yield start("SASL_SSL")


def options(listener: Listener, user: str, *, jaas: bool = False) -> dict[str, str]:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    entry = {"kafka.sasl.jaas.config": f'{module} required username="{user}" password="{PASSWORD}";'}
    named = {"kafka.sasl.username": user, "kafka.sasl.password": PASSWORD}
    return {
        "kafka.bootstrap.servers": listener.bootstrap,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(listener.server[0]),
        **(entry if jaas else named),
    }


def shown(frame: Any) -> str:
    return str(frame._jdf.queryExecution().toString())


def test_rows_are_written_and_read_back_by_who_may(spark: "SparkSession", listener: Listener) -> None:
    topic = listener.broker.unique("mine-spark")
    writer = spark.range(40).selectExpr("cast(id AS string) AS value").write.format("holdfast").mode("append")
    writer.options(**options(listener, "admin", jaas=True)).option("topic", topic).save()
    for jaas in (False, True):  # the user may not see where the store is: everything is read through the broker
        reader = spark.read.format("holdfast").options(**options(listener, USER, jaas=jaas))
        read = reader.option("subscribe", topic).load()
        assert sorted(int(row.value) for row in read.collect()) == list(range(40))
        assert PASSWORD not in shown(read)
    stream = spark.readStream.format("holdfast").options(**options(listener, USER, jaas=True))
    assert PASSWORD not in shown(stream.option("subscribe", topic).load())


def test_who_may_not_read_or_has_another_password_is_told_so(spark: "SparkSession", listener: Listener) -> None:
    reader = spark.read.format("holdfast").options(**options(listener, USER)).option("subscribe", "others")
    with pytest.raises(PySparkException, match="others") as refused:
        reader.load().collect()
    assert PASSWORD not in str(refused.value)
    wrong = spark.read.format("holdfast").options(**options(listener, USER) | {"kafka.sasl.password": "planted"})
    with pytest.raises(PySparkException, match="login to a broker") as refused:
        wrong.option("subscribe", "mine-x").load().collect()
    assert "planted" not in str(refused.value)
