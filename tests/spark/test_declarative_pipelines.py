"""examples/declarative_pipeline runs: our source and both sinks in Spark Declarative Pipelines, again and after a full refresh."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.broker import Broker
from tests.support.librdkafka_client import read_all
from tests.support.spark_servers import JVM, spark_environment
from tests.support.spark_session import ROOT
from tests.support.spark_topics import Sent, send

from holdfast.pipeline.model.column_mapping import Column, Mapping
from holdfast.pipeline.model.definition import ClickHouseConfig, DriftPolicy, FiltersConfig, KafkaConfig
from holdfast.pipeline.service.declarative_project import PipelineParts, export_project
from holdfast.spark.spark_home import unzipped_spark_home
from holdfast.testing.clickhouse import ClickHouseServer

EXAMPLE = ROOT / "examples" / "declarative_pipeline"
RUN_TIMEOUT_S = 600  # each run starts a JVM; a busy machine is no defect
ORDERS = 300
CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": JVM,
    "spark.python.authenticate.socketTimeout": "60s",  # a busy machine starts workers slowly
}


@dataclass(frozen=True)
class Project:
    """A copy of the example, with storage, topics and tables of its own."""

    folder: Path
    variables: dict[str, str]

    def run(self, *arguments: str) -> str:
        program = Path(sys.executable).parent / "spark-pipelines"
        done = subprocess.run(
            [str(program), *(part for pair in CONF.items() for part in ("--conf", "=".join(pair))), *arguments],
            cwd=self.folder,
            env={**os.environ, **spark_environment(self.folder), **self.variables},  # noqa: TID251 (as a user starts it)
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
        output = done.stdout + done.stderr
        assert done.returncode == 0, output
        return output


@pytest.fixture
def variables(broker: Broker, clickhouse: ClickHouseServer, clickhouse_database: str) -> dict[str, str]:
    """The environment of a project."""
    for module in ("grpc", "yaml"):
        pytest.importorskip(module, reason=f"spark-pipelines needs {module}")
    home = unzipped_spark_home({name: value for name, value in os.environ.items() if name != "SPARK_HOME"})  # noqa: TID251
    # Without it every worker compiles PySpark; Spark waits 10 s for one.
    return {
        **({"SPARK_HOME": str(home)} if home else {}),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # noqa: TID251
        "HOLDFAST_BOOTSTRAP": broker.bootstrap,
        "ORDERS_TOPIC": broker.create_topic("sdp-orders", 2),
        "LARGE_ORDERS_TOPIC": broker.create_topic("sdp-large", 2),
        "CLICKHOUSE_URL": f"http://{clickhouse.host}:{clickhouse.port}/{clickhouse_database}",
        "CLICKHOUSE_USER": clickhouse.user,
        "CLICKHOUSE_PASSWORD": clickhouse.password,
    }


@pytest.fixture
def project(variables: dict[str, str], tmp_path: Path) -> Project:
    folder = tmp_path / "project"
    shutil.copytree(EXAMPLE, folder)
    spec = folder / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("file:///tmp/holdfast-orders", f"file://{tmp_path}/storage"))
    return Project(folder, variables)


def send_orders(broker: Broker, topic: str, first: int, end: int) -> None:
    orders = ({"id": number, "customer": f"c{number % 7}", "amount": number * 1.0} for number in range(first, end))
    send(broker, topic, [Sent(json.dumps(each).encode(), each["id"] % 2) for each in orders])  # type: ignore[operator]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(4 * RUN_TIMEOUT_S)
def test_the_example_runs_again_and_refreshes_without_rows_that_stay_behind(
    project: Project, broker: Broker, clickhouse: ClickHouseServer, clickhouse_database: str
) -> None:
    def ids() -> list[int]:
        found = clickhouse.query(f"SELECT id FROM {clickhouse_database}.orders ORDER BY id")
        return [int(line) for line in found.decode().split()]

    def large() -> int:
        return len(read_all(broker, project.variables["LARGE_ORDERS_TOPIC"], range(2)))

    topic = project.variables["ORDERS_TOPIC"]
    send_orders(broker, topic, 0, ORDERS)
    output = project.run("run")
    assert clickhouse.password not in output
    assert ids() == list(range(ORDERS))
    assert large() == ORDERS - 100
    send_orders(broker, topic, ORDERS, ORDERS + 10)
    project.run("run")
    assert ids() == list(range(ORDERS + 10))
    assert large() == ORDERS + 10 - 100
    project.run("run", "--full-refresh-all")
    assert ids() == list(range(ORDERS + 10))  # a new generation: the rows of the one before are deleted
    assert large() == 2 * (ORDERS + 10 - 100)  # a topic keeps what was written


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(2 * RUN_TIMEOUT_S)
def test_an_exported_pipeline_writes_the_rows_of_the_pipeline(
    variables: dict[str, str], broker: Broker, clickhouse: ClickHouseServer, clickhouse_database: str, tmp_path: Path
) -> None:
    parts = PipelineParts(
        name="big orders",
        source=KafkaConfig(topic=variables["ORDERS_TOPIC"]),
        sink=ClickHouseConfig(table="big", order_by=("id",)),
        mapping=Mapping(
            (
                Column("id", "id", "Int64"),
                Column("customer", "customer", "LowCardinality(String)", nullable=True),
                Column("amount", "amount", "Decimal(18, 2)", when_null="default"),
            )
        ),
        filters=FiltersConfig(enabled=True, expression="number(amount) >= 290 and startsWith(customer, 'c')"),
        sql="",
        drift=DriftPolicy(),
    )
    export = export_project(parts, f"file://{tmp_path}/storage")
    assert not export.missing
    for name, text in export.files.items():
        (tmp_path / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "project" / name).write_text(text)
    send_orders(broker, variables["ORDERS_TOPIC"], 0, ORDERS)
    Project(tmp_path / "project", variables).run("run")
    rows = clickhouse.query(f"SELECT id, customer, amount FROM {clickhouse_database}.big_sdp ORDER BY id").decode()
    assert rows.splitlines() == [f"{number}\tc{number % 7}\t{number}" for number in range(290, ORDERS)]
