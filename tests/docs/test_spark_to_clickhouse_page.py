"""docs/how-to/spark-to-clickhouse.md is true: its Python runs on Spark and the embedded ClickHouse."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.testing.clickhouse import ClickHouseServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "spark-to-clickhouse.md").read_text()


@pytest.mark.long  # two streams; what the page shows is tested in tests/spark/clickhouse, too
@pytest.mark.timeout(300)
def test_the_python_of_the_page_runs(
    spark: "SparkSession", clickhouse: ClickHouseServer, clickhouse_database: str, tmp_path: Path
) -> None:
    changes = {
        "http://127.0.0.1:8123": f"http://{clickhouse.host}:{clickhouse.port}/{clickhouse_database}",
        '"default"': repr(clickhouse.user),
        '"secret"': repr(clickhouse.password),
        "/checkpoints/": f"{tmp_path}/",
    }
    names: dict[str, Any] = {"spark": spark}
    for snippet in re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        for old, new in changes.items():
            snippet = snippet.replace(old, new)
        exec(snippet, names)
    for name in ("query", "updates"):
        names[name].processAllAvailable()
        names[name].stop()
    assert names["stored"].count() == 100 + 10
